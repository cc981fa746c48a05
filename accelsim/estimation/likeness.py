"""What makes two runs alike: their mode, number format and kind of model.

Predictions are off in ways that a class of devices, a mode, a format and a kind of model share, so
that what runs were measured says something of a run only where these agree.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from accelsim.dtype import Precision
from accelsim.frozen import frozen
from accelsim.workloads.graph import FloatArray, OperatorGraph, TextArray, is_kind
from accelsim.workloads.operator import ATTENTION_KINDS, CONV_KINDS, OperatorKind

_K = OperatorKind
_ATTENTION = ATTENTION_KINDS | {_K.BATCHED_GEMM}
_LOOKUPS = frozenset({_K.EMBEDDING_BAG, _K.TREE_ENSEMBLE, _K.TREE_HISTOGRAM})
#: Share of the arithmetic from which on a model is one of convolutions.
_CONVOLUTIONAL = 0.5
#: Formats of one width and one rate.
_HALF = {"fp16": "16-bit", "bf16": "16-bit"}


@frozen
class Setting:
    """Mode, format and kind of model of a run.

    Attributes:
        mode: "inference", "training", or "parallel-training" on several devices; the figure's name
            where other figures of a run are off by other amounts: "parallel-speed-up";
            "serving-rate" (over the offline rate); "serving-ttft", "serving-tpot", "serving-energy"
            and "serving-power" under load, the first two also as "split-serving-…" where prompts
            have replicas of their own.
        precision: Name of its precision; "16-bit" for both formats of 16 bits.
        model: "convolution", "transformer", "generation" or "other".
    """

    mode: str
    precision: str
    model: str

    @classmethod
    def of(cls, mode: str, precision: Precision | str, model: str) -> Setting:
        """Setting of a precision."""
        name = precision if isinstance(precision, str) else precision.name
        return cls(mode, _HALF.get(name, name), model)

    def __str__(self) -> str:
        return f"{self.mode} {self.precision} {self.model}"

    @property
    def words(self) -> str:
        """For a sentence: "16-bit inference of transformers"."""
        kinds = {
            "convolution": "convolutional networks",
            "transformer": "transformers",
            "generation": "text generation",
        }
        mode = self.mode.replace("-", " ")
        return f"{self.precision} {mode} of {kinds.get(self.model, 'other models')}"


def model_kinds(kind: NDArray[np.integer[Any]], flop: FloatArray, *, generates: bool) -> TextArray:
    """Kind of model by its operators, in s scenarios.

    Args:
        kind: Operator kinds, shape (n,).
        flop: FLOP of all launches of each, shape (s, n).
        generates: Whether tokens are generated.

    Returns:
        Shape (s,).
    """
    if generates:
        return np.full(len(flop), "generation")
    share = flop[:, is_kind(kind, CONV_KINDS)].sum(axis=1) / np.maximum(flop.sum(axis=1), 1.0)
    attends = is_kind(kind, _ATTENTION).any() and not is_kind(kind, _LOOKUPS).any()
    without_convolutions = "transformer" if attends else "other"
    return np.where(share > _CONVOLUTIONAL, "convolution", without_convolutions)


def setting_of(
    mode: str, precision: Precision, graph: OperatorGraph, *, generates: bool = False
) -> Setting:
    """Setting of a run by its first graph.

    Args:
        mode: As in `Setting`.
        precision: Its formats.
        graph: Operators of its first pass.
        generates: Whether tokens are generated.
    """
    (model,) = model_kinds(graph.kind, graph.flop[None, :], generates=generates).tolist()
    return Setting.of(mode, precision, model)
