"""Measures operators with torch: what to measure, how to build it, how to time it, and the
loop that does so.
"""
