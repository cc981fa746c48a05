"""Distributions of prompt and output lengths, as text.

``512`` is always 512; ``uniform:100-900``; ``lognormal:600:1.1`` (median and sigma of ln);
``exponential:200`` (mean); ``geometric:200``.
"""

from __future__ import annotations

import numpy as np

from accelsim.errors import InvalidValueError
from accelsim.serving.loads.requests import LONGEST_TOKENS
from accelsim.workloads.graph import FloatArray, IntArray

_FORMS = "N, uniform:LOW-HIGH, lognormal:MEDIAN:SIGMA, exponential:MEAN or geometric:MEAN"


def draw_lengths(
    field: str, text: str, count: int, generator: np.random.Generator, lowest: int = 1
) -> IntArray:
    """Draw lengths.

    Args:
        field: Name of what is drawn, for messages.
        text: The distribution.
        count: How many.
        generator: Random numbers.
        lowest: Smallest length; shorter draws become it.

    Raises:
        InvalidValueError: If the text is no distribution.
    """
    name, _, parameters = text.strip().partition(":")
    try:
        if not parameters:
            values = np.full(count, float(int(name)))
        else:
            values = _drawn(name, parameters, count, generator)
    except (ArithmeticError, ValueError, KeyError):
        raise InvalidValueError(field, text, _FORMS) from None
    if not np.isfinite(values).all() or values.max() > LONGEST_TOKENS or values.max() < lowest:
        raise InvalidValueError(field, text, f"lengths from {lowest} to {LONGEST_TOKENS:,} tokens")
    lengths: IntArray = np.maximum(np.rint(values), lowest).astype(np.int64)
    return lengths


def _drawn(form: str, text: str, count: int, generator: np.random.Generator) -> FloatArray:
    """Draws of a form with its parameters; the median of a log-normal distribution is the
    exponential of the mean of ln (Law, Simulation Modeling and Analysis, 2015).

    Raises:
        KeyError: If there is no such form.
    """
    if form == "uniform":
        low, high = (int(end) for end in text.split("-"))
        return generator.integers(low, high + 1, count).astype(np.float64)
    if form == "lognormal":
        median, sigma = (float(number) for number in text.split(":"))
        draws = median * np.exp(sigma * generator.standard_normal(count))
        return np.minimum(draws, LONGEST_TOKENS)
    if form == "exponential":
        return generator.exponential(float(text), count)
    if form == "geometric":
        return generator.geometric(1.0 / float(text), count).astype(np.float64)
    raise KeyError(form)
