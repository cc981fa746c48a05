"""The engine's queues against theory: closed forms and confidence intervals to check it by.

``python benchmarks/queues.py [SEED]`` runs long queues beside their formulas.
"""
