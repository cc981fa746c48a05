"""Loads of requests: arrivals, lengths, traces and their columns."""
