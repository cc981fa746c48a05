"""Whole models that check a calibration: torch definitions of the networks people run, none of them
used in a fit.

Each factory returns a module and example inputs for a batch. Networks have their published sizes,
except those whose names end in ``shaped`` and what a factory says. On a CPU batches and lengths are
such that one pass takes a few milliseconds to half a second on one core.
"""

from __future__ import annotations

from accelsim.calibration.check_models import (  # noqa: F401  (they register)
    image_networks,
    language_models,
    texts_and_tables,
)
from accelsim.calibration.check_models.parts import CHECK_MODELS, Factory, Inputs, in_format

__all__ = ["CHECK_MODELS", "Factory", "Inputs", "in_format"]
