"""Workloads from the ``config.json`` of published checkpoints."""
