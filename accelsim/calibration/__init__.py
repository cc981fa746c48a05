"""Calibration: fit cost-model parameters to measurements, and say how far predictions are from
measurements.
"""
