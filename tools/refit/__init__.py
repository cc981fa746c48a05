"""Refits of the class-wide data that ships: what maintainers run, with reference tables at hand.

``python -m tools.refit --data DIR`` refits every file that ships.
"""
