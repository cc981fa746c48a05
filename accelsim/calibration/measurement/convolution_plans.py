"""Convolutions of volumes and of channels that fill no block of the library's, further to other
plans.
"""

from __future__ import annotations

from collections.abc import Sequence

from accelsim.calibration.measurement.plan import Plan, Shape
from accelsim.calibration.measurement.shape_rules import conv_allowed

__all__ = ["CONVOLUTION_PLANS"]


def _volume(shape: Shape) -> Shape:
    """Windows of 3 x 3 x 3, of a plane, or along the depth."""
    taps, kernel = {1: (3, 3), 2: (1, 3), 3: (3, 1), 4: (3, 3)}[shape.pop("window")]
    return shape | {"taps": taps, "kernel": kernel}


def _channel_volume(shape: Shape) -> Shape:
    """A window for each channel, of steps of one or two along the plane."""
    step, channels = min(shape.pop("step"), 2), shape["groups"]
    return shape | {"channels_in": channels, "channels_out": channels, "stride": step}


def _volume_allowed(shape: Shape) -> bool:
    """At most 4 GFLOP and 8 million elements."""
    pixels = shape["batch"] * shape["depth"] * shape["side"] ** 2
    window = shape["taps"] * shape["kernel"] ** 2
    flop = 2.0 * pixels * shape["channels_in"] * shape["channels_out"] * window
    return flop <= 4e9 and pixels * (shape["channels_in"] + shape["channels_out"]) <= 8e6


#: Further plans of the suite.
CONVOLUTION_PLANS: Sequence[Plan] = (
    # one filter over each channel of an image by itself: results of blocks that leave the
    # last-level cache
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
    # gradients of groups, and of a first layer whose outputs fill no block, which the library
    # unfolds
    Plan(
        "convolution_backward",
        ("convolution_backward.grad_input", "convolution_backward.grad_weight"),
        {
            "groups": (2, 32, 2),
            "wide": (3, 22, 1),
            "side": (7, 56, 7),
            "batch": (1, 8, 1),
            "stride": (1, 2, 1),
        },
        7,
        fixed={"kernel": 3},
        finish=lambda s: (
            s | dict.fromkeys(("channels_in", "channels_out"), s["groups"] * s.pop("wide"))
        ),
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
    # volumes: whole windows, planes and depths one after the other, and a window for each channel
    *(
        Plan(
            family,
            (operator,),
            {
                "window": (1, 4, 1),
                "channels_in": (16, 256, 16),
                "side": (7, 56, 1),
                "channels_out": (16, 256, 16),
                "depth": (8, 16, 1),
            },
            count,
            fixed={"groups": 1, "stride": 1, "batch": 1},
            finish=_volume,
            allowed=_volume_allowed,
            devices=("cpu",),
        )
        for family, operator, count in (
            ("convolution_other", "convolution_3d", 8),
            ("convolution_backward", "convolution_3d_backward.grad_input", 7),
            ("convolution_backward", "convolution_3d_backward.grad_weight", 7),
        )
    ),
    *(
        Plan(
            family,
            (operator,),
            {"groups": (24, 432, 8), "side": (7, 80, 1), "depth": (4, 16, 1), "step": (1, 4, 1)},
            6,
            fixed={"batch": 1, "kernel": 3, "taps": 3},
            finish=_channel_volume,
            allowed=lambda s: s["groups"] * s["depth"] * s["side"] ** 2 <= 4e6,
            devices=("cpu",),
        )
        for family, operator in (
            ("convolution_depthwise", "convolution_3d"),
            ("convolution_backward", "convolution_3d_backward.grad_input"),
            ("convolution_backward", "convolution_3d_backward.grad_weight"),
        )
    ),
)
