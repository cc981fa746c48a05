"""Capacity plans: which offers, how many, for which load; what they cost, and how sure it is."""
