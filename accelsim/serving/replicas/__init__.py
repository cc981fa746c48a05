"""Request-level simulation of serving: arrivals, schedulers, cache blocks, routers, fleets.

One event per engine step, none per token or layer; steps in which the batch does not change are
one event.
"""
