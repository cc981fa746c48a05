"""Which shapes of the operator suite fit in memory and time, and the dimensions that follow from
those drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from accelsim.calibration.measurement.plan import Shape

__all__ = [
    "attention_allowed",
    "attention_finish",
    "conv_allowed",
    "conv_finish",
    "elements_allowed",
    "gather_allowed",
    "gemm_allowed",
    "gemm_bytes",
    "gemm_flop",
    "other_conv",
    "patches",
    "recurrent_allowed",
]


def gemm_flop(shape: Shape) -> float:
    """FLOP of a product."""
    return 2.0 * shape.get("batch", 1) * shape["m"] * shape["n"] * shape["k"]


def gemm_bytes(shape: Shape) -> float:
    """Bytes of a product's operands and result in fp32."""
    m, n, k = shape["m"], shape["n"], shape["k"]
    return 4.0 * shape.get("batch", 1) * (m * n + m * k + n * k)


def gemm_allowed(shape: Shape) -> bool:
    """At most 6 GFLOP and 300 MB."""
    return gemm_flop(shape) <= 6e9 and gemm_bytes(shape) <= 300e6


def conv_finish(shape: Shape) -> Shape:
    """Windows, strides and groups that follow from the numbers drawn."""
    if shape.pop("first", 0) > 9:  # some are a network's first layer
        shape["channels_in"] = 3
    if "width" in shape:  # a power of two of channels in every group
        shape["channels_in"] = shape["channels_out"] = shape["groups"] * 2 ** shape.pop("width")
    kernel = (
        {1: 1, 2: 3, 3: 3, 4: 3, 5: 5, 6: 7}[shape.pop("window")]
        if "window" in shape
        else shape["kernel"]
    )
    groups = shape["channels_in"] if shape.pop("depthwise", 0) else shape.get("groups", 1)
    if groups > 1 and groups == shape["channels_in"]:
        shape["channels_out"] = shape["channels_in"]
    elif groups > 1:
        for name in ("channels_in", "channels_out"):
            shape[name] = groups * max(1, shape[name] // groups)
    stride = {1: 1, 2: 1, 3: 2}[shape.pop("strides", 1)]
    return shape | {"kernel": kernel, "groups": groups, "stride": stride}


def patches(shape: Shape) -> Shape:
    """Windows side by side, as a vision transformer's first layer."""
    size = 2 ** shape.pop("patch")
    return shape | {"kernel": size, "stride": size}


def other_conv(shape: Shape) -> Shape:
    """Four groups where the channels allow it."""
    return conv_finish(shape | {"groups": 4 if shape["channels_in"] % 3 else 1})


def conv_allowed(shape: Shape) -> bool:
    """From 10 kFLOP to 6 GFLOP, images of at most 120 MB."""
    side, kernel, stride = shape["side"], shape["kernel"], shape["stride"]
    pixels = shape["batch"] * (side // stride) ** (shape.get("rank", 2))
    per_group = shape["channels_in"] // shape["groups"]
    flop = 2.0 * pixels * shape["channels_out"] * per_group * kernel ** shape.get("rank", 2)
    memory = (
        4.0
        * shape["batch"]
        * side ** shape.get("rank", 2)
        * (shape["channels_in"] + shape["channels_out"])
    )
    return side >= kernel and 1e4 <= flop <= 6e9 and memory <= 120e6


def attention_allowed(shape: Shape) -> bool:
    """At most 1.5 G multiply-adds and 100 MB."""
    pairs = shape["batch"] * shape["heads"] * shape["q_len"] * shape["kv_len"]
    moved = (
        4.0
        * shape["batch"]
        * shape["heads"]
        * shape["head_dim"]
        * (shape["q_len"] + shape["kv_len"])
    )
    return pairs * shape["head_dim"] <= 1.5e9 and moved <= 100e6


def attention_finish(shape: Shape) -> Shape:
    """As many keys as queries; every other shape is causal."""
    causal = 1 if shape.pop("masked") > 1 else 0
    return shape | {"kv_len": shape["q_len"], "causal": causal}


def elements_allowed(limit: float) -> Callable[[Shape], bool]:
    """At most as many elements."""

    def allowed(shape: Shape) -> bool:
        return math.prod(shape.values()) <= limit

    return allowed


def recurrent_allowed(shape: Shape) -> bool:
    """At most 2 GFLOP."""
    width = 4 * shape["hidden"] * (shape["hidden"] + shape["input"])
    return 2.0 * shape["batch"] * shape["steps"] * width <= 2e9


def gather_allowed(shape: Shape) -> bool:
    """Tables of at most 200 MB, results of at most 16 M elements."""
    return (
        4.0 * shape["table"] * shape["width"] <= 200e6 and shape["lookups"] * shape["width"] <= 16e6
    )
