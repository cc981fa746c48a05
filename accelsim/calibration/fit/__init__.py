"""Fits of a GPU's cost-model parameters to its measured operators: priors, robust least squares,
residuals.
"""
