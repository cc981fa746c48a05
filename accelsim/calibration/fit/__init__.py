"""Fits of cost-model parameters to measured operators: class-wide sets, sets with a chip left out, overlays of devices."""
