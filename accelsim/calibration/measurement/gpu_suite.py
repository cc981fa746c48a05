"""The operator suite of a GPU: the plans of the CPU's with larger shapes, in the conditions that
exist there.

A GPU does in microseconds what takes a core milliseconds: dimensions that models grow (batch, rows,
sequence) reach further, and the bounds on work and memory with them. Operands rotate past the
cache, so that there is no cold condition of its own. Kernels are timed in replayed graphs, where
the host's pace does not show, and eagerly, where it does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from accelsim.calibration.measurement.case import Case
from accelsim.calibration.measurement.plan import Plan

__all__ = ["MATRIX_FAMILIES", "UNCAPTURED_OPERATORS", "gpu_plans", "runs_on_gpu"]

_IMAGES: Final = {"batch": 16}
_TABLE: Final = {"rows": 8}
#: Factor on the upper end of each dimension, by family.
_GROWTH: Final[Mapping[str, Mapping[str, int]]] = {
    "gemm": {"m": 4, "n": 2, "k": 2},
    "gemv": {"n": 2, "k": 2},
    "batched_gemm": {"batch": 8, "m": 2, "n": 2},
    "convolution": _IMAGES,
    "convolution_1x1": _IMAGES,
    "convolution_depthwise": _IMAGES,
    "convolution_other": _IMAGES,
    "convolution_backward": _IMAGES,
    "attention": {"q_len": 4, "kv_len": 4, "batch": 8},
    "softmax": _TABLE,
    "layer_norm": _TABLE,
    "batch_norm": _IMAGES,
    "group_norm": _IMAGES,
    "elementwise": {"elements": 4},
    "reduction": _TABLE,
    "pooling": _IMAGES,
    "embedding": {"lookups": 8},
    "embedding_bag": {"bags": 8, "lookups": 8},
    "recurrent": {"batch": 4},
    "optimizer": {"parameters": 5},
    "copy": _TABLE,
    "routing": _TABLE,
}
#: Families whose FP32 products may run as TF32.
MATRIX_FAMILIES: Final = frozenset(
    {
        "gemm",
        "gemv",
        "batched_gemm",
        "recurrent",
        *(name for name in _GROWTH if name.startswith("convolution")),
    }
)
#: Operators that a graph cannot hold: the backward pass runs on the stream of its forward pass,
#: optimizers count their steps on the host, and copies from and to the host wait for it.
UNCAPTURED_OPERATORS: Final = frozenset(
    {
        "scaled_dot_product_attention_backward",
        "lstm_train",
        "lstm_backward",
        "adamw",
        "sgd",
        "host_to_device",
        "device_to_host",
    }
)


def gpu_plans(plans: Sequence[Plan]) -> list[Plan]:
    """Plans with ranges and bounds grown to a GPU's, hot weights alone."""
    return [_grown(plan, _GROWTH.get(plan.family, {})) for plan in plans]


def _grown(plan: Plan, growth: Mapping[str, int]) -> Plan:
    ranges = {
        name: (low, high * growth.get(name, 1), step)
        for name, (low, high, step) in plan.ranges.items()
    }
    return replace(plan, ranges=ranges, allowed=_bounds(plan, growth), cold=False)


def _bounds(plan: Plan, growth: Mapping[str, int]) -> Callable[[Mapping[str, int]], bool]:
    """The plan's bounds, asked for the shape shrunk by the growth."""

    def allowed(shape: Mapping[str, int]) -> bool:
        return plan.allowed(
            {name: max(1, value // growth.get(name, 1)) for name, value in shape.items()}
        )

    return allowed


def runs_on_gpu(case: Case) -> bool:
    """Whether the combination of operator, format and execution exists on a GPU."""
    if case.dtype == "tf32" and case.family not in MATRIX_FAMILIES:
        return False
    return case.execution == "eager" or case.operator not in UNCAPTURED_OPERATORS
