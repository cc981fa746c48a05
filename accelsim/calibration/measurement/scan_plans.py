"""Scans, sorts, spectra, comparisons, random numbers, and what runs across the last axis: code of
their own.
"""

from __future__ import annotations

from collections.abc import Sequence

from accelsim.calibration.measurement.plan import Plan
from accelsim.calibration.measurement.shape_rules import elements_allowed

__all__ = ["SCAN_PLANS"]

_STRETCHES = {"outer": (1, 64, 1), "columns": (8, 512, 1), "inner": (16, 4096, 16)}
_LINES = {"rows": (16, 4096, 1), "columns": (16, 4096, 8)}

#: Further plans of the suite.
SCAN_PLANS: Sequence[Plan] = (
    Plan(
        "softmax",
        (
            "_softmax_across",
            "_log_softmax_across",
            "_softmax_backward_data_across",
            "_log_softmax_backward_data_across",
        ),
        _STRETCHES,
        8,
        allowed=elements_allowed(1e6),
        devices=("cpu",),
    ),
    Plan(
        "reduction", ("cumsum", "sort"), _LINES, 8, allowed=elements_allowed(4e5), devices=("cpu",)
    ),
    Plan(
        "reduction",
        ("cumsum_across", "norm_outer"),
        _STRETCHES,
        7,
        allowed=elements_allowed(6e5),
        devices=("cpu",),
    ),
    Plan("elementwise", ("randn", "gt"), {"elements": (256, 1_000_000, 16)}, 8, devices=("cpu",)),
    Plan(
        "elementwise",
        ("fft",),
        _LINES,
        7,
        allowed=elements_allowed(1e6),
        dtypes=("fp32",),
        devices=("cpu",),
    ),
    Plan(
        "elementwise",
        ("fft_across",),
        _STRETCHES,
        7,
        allowed=elements_allowed(1e6),
        dtypes=("fp32",),
        devices=("cpu",),
    ),
    Plan(
        "copy",
        ("upsample_bicubic2d",),
        {"channels": (3, 128, 1), "side": (7, 64, 1), "factor": (2, 4, 1)},
        7,
        fixed={"batch": 1},
        allowed=lambda s: s["channels"] * (s["side"] * s["factor"]) ** 2 <= 3e5,
        devices=("cpu",),
    ),
    Plan(
        "copy",
        ("reflection_pad2d", "reflection_pad2d_backward"),
        {"channels": (3, 256, 1), "side": (7, 128, 1), "pad": (1, 3, 1)},
        7,
        fixed={"batch": 1},
        allowed=lambda s: s["channels"] * s["side"] ** 2 <= 6e5,
        devices=("cpu",),
    ),
)
