"""Measures operators with torch alone: what to measure, how to build it, how to time it, and the
loop that does so.
"""
