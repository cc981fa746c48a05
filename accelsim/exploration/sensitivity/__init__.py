"""Sensitivity: the same answer with one thing changed at a time, each predicted again."""
