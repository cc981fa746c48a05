"""Learns from the user's own measured runs: reads their files, and predicts what they measured."""
