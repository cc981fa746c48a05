"""Discrete-event simulation on SimPy: one engine, timelines, and the simulation of one
device.
"""
