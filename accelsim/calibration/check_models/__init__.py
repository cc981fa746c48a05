"""Whole models that check a calibration: torch definitions of the networks people run, none of them
used in a fit.

Each factory returns a module and example inputs for a batch. Batches and lengths are such that one
pass takes a few milliseconds to half a second on one core. The networks have their published sizes,
except those whose names end in ``shaped``; the set includes families that the operator suite has no
shapes of (recommenders, mixtures of experts, recurrent networks, U-Nets).

The check list is of the modules here. `first` to `seventh` were the lists of earlier committed
runs, the first three of smaller networks of the same families: once a list has been measured, its
errors teach, so it serves development and another takes its place. The check of a GPU uses some of
the first.
"""

from __future__ import annotations

import torch
from torch import nn

from accelsim.calibration.check_models import (  # noqa: F401  (they register)
    classifiers,
    fifth,
    first,
    fourth,
    language_models,
    pixels,
    second,
    sequences,
    seventh,
    sixth,
    tables_and_graphs,
    third,
    transformers,
)
from accelsim.calibration.check_models.first.transformers import (
    Encoder,
    Llama,
    MoeTransformer,
    VisionTransformer,
)
from accelsim.calibration.check_models.register import CHECK_MODELS, Factory, Inputs

__all__ = [
    "CHECK_MODELS",
    "Encoder",
    "Factory",
    "Inputs",
    "Llama",
    "MoeTransformer",
    "VisionTransformer",
    "build",
]


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
