"""Discrete-event simulation on SimPy: one engine, timelines, queues, and the simulation of one
device.
"""
