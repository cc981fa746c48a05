"""Whole models that check a calibration: torch definitions of the networks people run, none of them
used in a fit.

Each factory returns a module and example inputs for a batch. Networks have their published sizes,
except those whose names end in ``shaped`` and what a factory says. On a CPU batches and lengths are
such that one pass takes a few milliseconds to half a second on one core.
"""

from __future__ import annotations

import torch
from torch import nn

from accelsim.calibration.check_models import (  # noqa: F401  (they register)
    image_classifiers,
    image_to_image,
    language_models,
    sequences,
    tables_and_graphs,
)
from accelsim.calibration.check_models.parts import CHECK_MODELS, Factory, Inputs

__all__ = ["CHECK_MODELS", "Factory", "Inputs", "build"]


def build(name: str, batch: int, dtype: torch.dtype = torch.float32) -> tuple[nn.Module, Inputs]:
    """A module and its inputs, floating-point parts in `dtype`.

    Args:
        name: A key of `CHECK_MODELS`.
        batch: Samples.
        dtype: Format of weights and activations.
    """
    torch.manual_seed(0)
    module, inputs = CHECK_MODELS[name](batch)
    cast = tuple(x.to(dtype) if x.is_floating_point() else x for x in inputs)
    return module.to(dtype), cast
