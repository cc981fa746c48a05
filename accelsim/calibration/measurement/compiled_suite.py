"""The part of the suite that ``torch.compile`` generates code for; library kernels are the same as
without it.

Compiling takes seconds, so there are few sizes of columns, each compiled once per format and thread
count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from accelsim.calibration.measurement.case import Case
from accelsim.calibration.measurement.plan import Plan, Shape
from accelsim.calibration.measurement.suite import operator_suite

__all__ = ["COMPILED_PLANS", "compiled_suite"]

_COLUMNS: Final = (128, 768)


def _columns(shape: Shape) -> Shape:
    return {"rows": shape["rows"], "columns": _COLUMNS[shape["choice"] - 1]}


COMPILED_PLANS: Final[Sequence[Plan]] = (
    Plan(
        "framework",
        ("compiled_call",),
        {},
        1,
        fixed={"count": 1},
        devices=("cpu",),
        dtypes=("fp32",),
    ),
    Plan("compiled", ("compiled_elementwise",), {"elements": (4096, 20_000_000, 64)}, 32),
    Plan(
        "compiled",
        ("compiled_layer_norm", "compiled_softmax"),
        {"rows": (32, 16384, 1), "choice": (1, len(_COLUMNS), 1)},
        16,
        finish=_columns,
    ),
)


def compiled_suite(device: str, dtypes: Sequence[str], threads: Sequence[int]) -> list[Case]:
    """Cases of compiled operators, in the order of `operator_suite`.

    Args:
        device: "cpu" or "cuda".
        dtypes: Formats to measure.
        threads: Thread counts; (0,) on a GPU.
    """
    return operator_suite(device, dtypes, threads, ("compiled",), COMPILED_PLANS)
