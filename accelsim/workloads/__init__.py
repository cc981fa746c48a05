"""Workloads: operators, graphs, model families, capture of torch modules, request traces."""
