"""Serving: a model, devices and a load in; times, energy and cost of requests out."""
