"""Convolutions and gradients whose channels fill no block of the library's, further to those of a family's other plans."""

from __future__ import annotations

from collections.abc import Sequence

from accelsim.calibration.measurement.plan import Plan
from accelsim.calibration.measurement.shape_rules import conv_allowed

__all__ = ["CONVOLUTION_PLANS"]

#: Further plans of the suite.
CONVOLUTION_PLANS: Sequence[Plan] = (
    # one filter over each channel of an image by itself: results of blocks that leave the last-level cache
    *(
        Plan(
            "convolution_other",
            (operator,),
            {"batch": (96, 512, 1), "side": sides, "half": (1, 2, 1)},
            count,
            fixed={"channels_in": 1, "channels_out": 1, "groups": 1, "stride": 1},
            finish=lambda s: s | {"kernel": 2 * s.pop("half") + 1},
            allowed=lambda s: s["batch"] * s["side"] ** 2 <= 1.5e6,
            devices=("cpu",),
        )
        for operator, sides, count in (
            ("convolution", (40, 72, 1), 3),
            ("convolution_backward.grad_input", (10, 24, 1), 2),
        )
    ),
    # gradients of groups, and of a first layer whose outputs fill no block, which the library unfolds
    Plan(
        "convolution_backward",
        ("convolution_backward.grad_input", "convolution_backward.grad_weight"),
        {"groups": (2, 32, 2), "wide": (3, 22, 1), "side": (7, 56, 7), "batch": (1, 8, 1), "stride": (1, 2, 1)},
        7,
        fixed={"kernel": 3},
        finish=lambda s: s | dict.fromkeys(("channels_in", "channels_out"), s["groups"] * s.pop("wide")),
        allowed=conv_allowed,
        devices=("cpu",),
    ),
    Plan(
        "convolution_backward",
        ("convolution_backward.grad_weight",),
        {
            "channels_in": (1, 4, 1),
            "channels_out": (6, 300, 2),
            "side": (20, 96, 4),
            "batch": (4, 64, 1),
            "half": (1, 3, 1),
        },
        3,
        fixed={"groups": 1, "stride": 1},
        finish=lambda s: s | {"kernel": 2 * s.pop("half") + 1},
        allowed=conv_allowed,
        devices=("cpu",),
    ),
)
