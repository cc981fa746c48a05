"""The engine's queues against theory: closed forms and confidence intervals to check it by.

``python -m tools.queues [SEED]`` runs long queues beside their formulas.
"""
