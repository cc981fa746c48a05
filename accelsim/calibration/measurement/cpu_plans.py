"""Shapes at which a CPU's libraries take a path of their own, further to those of a family's other
plans.

Windows with gaps that the library unfolds, recurrent layers whose weights go through the last-level
cache each step, layers of experts, gradients of long tables, short stretches, places of maxima, and
rows that indices scatter.
"""

from __future__ import annotations

from collections.abc import Sequence

from accelsim.calibration.measurement.convolution_plans import CONVOLUTION_PLANS
from accelsim.calibration.measurement.plan import Plan, Shape
from accelsim.calibration.measurement.scan_plans import SCAN_PLANS
from accelsim.calibration.measurement.shape_rules import (
    conv_allowed,
    elements_allowed,
    gather_allowed,
    gemm_bytes,
    gemm_flop,
    recurrent_allowed,
)

__all__ = ["CPU_PLANS"]


def _power_of_two(shape: Shape) -> Shape:
    """Images of 32 or 64 pixels a side once they are resampled."""
    fine = {2: 32, 3: 64}[shape.pop("size")]
    factor = 2 ** shape.pop("times")
    return shape | {"side": fine // factor, "factor": factor}


#: Further plans of the suite.
CPU_PLANS: Sequence[Plan] = (
    # the same of deep layers, a single small image at a time
    Plan(
        "convolution_other",
        ("convolution",),
        {
            "channels_in": (256, 1280, 64),
            "channels_out": (64, 320, 32),
            "side": (20, 33, 1),
            "dilation": (22, 36, 1),
        },
        4,
        fixed={"kernel": 3, "batch": 1, "groups": 1, "stride": 1},
        allowed=conv_allowed,
        devices=("cpu",),
    ),
    # windows with gaps, padded so far that the library has no generated code
    Plan(
        "convolution_other",
        ("convolution",),
        {
            "channels_in": (32, 512, 16),
            "channels_out": (32, 512, 16),
            "side": (36, 80, 1),
            "dilation": (16, 32, 1),
            "batch": (1, 3, 1),
        },
        6,
        fixed={"kernel": 3, "groups": 1, "stride": 1},
        allowed=conv_allowed,
        devices=("cpu",),
    ),
    Plan(
        "convolution_other",
        ("convolution_1d",),
        {
            "channels_in": (16, 128, 1),
            "channels_out": (16, 128, 1),
            "side": (14, 40, 1),
            "batch": (2, 16, 1),
            "half": (1, 3, 1),
            "dilation": (30, 128, 1),
        },
        8,
        fixed={"groups": 1, "stride": 1},
        finish=lambda s: s | {"kernel": 2 * s.pop("half") + 1},
        allowed=lambda s: (
            s["batch"] * (s["channels_in"] + s["channels_out"]) * s["side"] ** 2 <= 8e6
        ),
        devices=("cpu",),
    ),
    # layers whose weights exceed the last-level cache, through which they go each step
    Plan(
        "recurrent",
        ("lstm", "lstm_train", "lstm_backward"),
        {
            "hidden": (448, 1792, 2),
            "steps": (12, 48, 2),
            "batch": (1, 6, 1),
            "input": (96, 1280, 16),
        },
        10,
        allowed=recurrent_allowed,
        devices=("cpu",),
    ),
    Plan(
        "recurrent",
        ("gru", "gru_train", "gru_backward"),
        {
            "hidden": (384, 1408, 16),
            "steps": (10, 36, 2),
            "batch": (1, 6, 1),
            "input": (96, 1024, 16),
        },
        8,
        allowed=recurrent_allowed,
        devices=("cpu",),
    ),
    # what a recurrent module does before its first layer
    Plan(
        "framework",
        ("recurrent_module", "recurrent_layer"),
        {},
        1,
        fixed={"count": 1},
        devices=("cpu",),
        dtypes=("fp32",),
    ),
    # a step or two of many rows, as a decoder takes them
    Plan(
        "recurrent",
        ("lstm", "gru"),
        {"hidden": (24, 384, 8), "steps": (1, 2, 1), "batch": (16, 1024, 4), "input": (16, 384, 8)},
        6,
        allowed=recurrent_allowed,
        devices=("cpu",),
    ),
    # a single row, whose inputs one product takes for all steps
    Plan(
        "recurrent",
        ("lstm",),
        {"hidden": (32, 512, 16), "steps": (8, 400, 2), "input": (48, 1024, 16)},
        6,
        fixed={"batch": 1},
        allowed=recurrent_allowed,
        devices=("cpu",),
    ),
    # the experts of a layer, multiplied in one call
    Plan(
        "batched_gemm",
        ("bmm",),
        {"m": (8, 512, 8), "n": (128, 4096, 64), "k": (128, 4096, 64), "batch": (2, 16, 2)},
        12,
        allowed=lambda s: gemm_flop(s) <= 2e9 and 2e6 <= gemm_bytes(s) <= 120e6,
        devices=("cpu",),
    ),
    # attention of the framework's fast path with padding
    Plan(
        "softmax",
        ("_masked_softmax",),
        {"rows": (32, 8192, 1), "columns": (16, 512, 1)},
        6,
        allowed=elements_allowed(1e6),
        devices=("cpu",),
    ),
    # many long rows, which leave the last-level cache before they come again
    Plan(
        "embedding",
        ("embedding",),
        {"table": (8_192, 100_000, 8), "width": (384, 1024, 1), "lookups": (6_000, 40_000, 1)},
        4,
        allowed=gather_allowed,
        devices=("cpu",),
    ),
    # lookups all over tables whose pages a core does not know the places of
    Plan(
        "embedding",
        ("embedding",),
        {"table": (100_000, 1_000_000, 8), "width": (8, 64, 8), "lookups": (1_000, 30_000, 1)},
        5,
        allowed=gather_allowed,
        devices=("cpu",),
    ),
    Plan(
        "embedding_bag",
        ("_embedding_bag",),
        {
            "table": (100_000, 1_000_000, 8),
            "width": (8, 64, 8),
            "bags": (16, 512, 1),
            "per_bag": (8, 96, 1),
        },
        6,
        finish=lambda s: s | {"lookups": s["bags"] * s.pop("per_bag")},
        allowed=gather_allowed,
        devices=("cpu",),
    ),
    # gradients of tables that exceed the last-level cache
    Plan(
        "embedding",
        ("embedding_dense_backward",),
        {"table": (40_000, 400_000, 8), "width": (16, 256, 8), "lookups": (64, 16384, 1)},
        8,
        allowed=gather_allowed,
        devices=("cpu",),
    ),
    # a network's first layer, of a colour image, and its last, of few channels
    Plan(
        "convolution",
        ("convolution",),
        {"channels_out": (16, 96, 8), "side": (96, 320, 32), "batch": (1, 8, 1), "half": (1, 3, 1)},
        8,
        fixed={"channels_in": 3, "groups": 1, "stride": 2},
        finish=lambda s: s | {"kernel": 2 * s.pop("half") + 1},
        allowed=conv_allowed,
        devices=("cpu",),
    ),
    Plan(
        "convolution",
        ("convolution", "convolution_backward.grad_input", "convolution_backward.grad_weight"),
        {
            "channels_in": (16, 128, 16),
            "channels_out": (1, 4, 1),
            "side": (32, 192, 8),
            "batch": (1, 8, 1),
            "half": (1, 3, 1),
        },
        5,
        fixed={"groups": 1, "stride": 1},
        finish=lambda s: s | {"kernel": 2 * s.pop("half") + 1},
        allowed=conv_allowed,
        devices=("cpu",),
    ),
    # single small images, which the framework multiplies itself
    Plan(
        "convolution_other",
        ("convolution_transpose",),
        {
            "channels_in": (16, 512, 16),
            "channels_out": (16, 256, 16),
            "side": (1, 16, 1),
            "taps": (2, 4, 1),
        },
        12,
        fixed={"groups": 1, "stride": 1, "kernel": 1, "batch": 1},
        allowed=lambda s: conv_allowed(s) and s["channels_in"] * s["side"] ** 2 <= 20480,
        dtypes=("fp32",),
        devices=("cpu",),
    ),
    # layers that unfold an encoding: few pixels and wide weights, which each call copies into the
    # library's layout
    Plan(
        "convolution_other",
        ("convolution_transpose",),
        {
            "channels_in": (320, 1152, 64),
            "channels_out": (160, 640, 32),
            "side": (1, 32, 1),
            "batch": (1, 4, 1),
        },
        8,
        fixed={"groups": 1, "stride": 1, "kernel": 1, "taps": 4},
        allowed=conv_allowed,
        devices=("cpu",),
    ),
    # sequences and their gradients: first layers with wide windows, and layers with gaps
    *(
        Plan(
            family,
            (operator,),
            {
                "channels_in": (1, 3, 1),
                "channels_out": (16, 256, 16),
                "side": (50, 180, 1),
                "half": (4, 40, 1),
                "stride": (1, 5, 1),
                "batch": (2, 8, 1),
            },
            5,
            fixed={"groups": 1},
            finish=lambda s: s | {"kernel": 2 * s.pop("half") + 1},
            allowed=lambda s: s["batch"] * s["channels_out"] * s["side"] ** 2 <= 8e6 * s["stride"],
            devices=("cpu",),
        )
        for family, operator in (
            ("convolution_other", "convolution_1d"),
            ("convolution_backward", "convolution_1d_backward.grad_weight"),
        )
    ),
    Plan(
        "convolution_backward",
        ("convolution_1d_backward.grad_input", "convolution_1d_backward.grad_weight"),
        {
            "channels_in": (16, 256, 16),
            "channels_out": (16, 256, 16),
            "side": (10, 48, 1),
            "half": (1, 20, 1),
            "dilation": (1, 8, 1),
            "batch": (2, 16, 1),
        },
        6,
        fixed={"groups": 1, "stride": 1},
        finish=lambda s: s | {"kernel": 2 * s.pop("half") + 1},
        allowed=lambda s: (
            s["batch"] * (s["channels_in"] + s["channels_out"]) * s["side"] ** 2 <= 8e6
        ),
        devices=("cpu",),
    ),
    # gradients of the steps between a network's stages
    Plan(
        "convolution_backward",
        ("convolution_backward.grad_input",),
        {
            "half": (1, 2, 1),
            "channels_in": (16, 512, 16),
            "channels_out": (32, 512, 16),
            "side": (8, 112, 2),
            "batch": (1, 8, 1),
        },
        8,
        fixed={"groups": 1, "stride": 2},
        finish=lambda s: s | {"kernel": 2 * s.pop("half") + 1},
        allowed=conv_allowed,
        devices=("cpu",),
    ),
    # images of fewer channels than a vector has lanes
    Plan(
        "convolution_other",
        ("convolution", "convolution_backward.grad_input", "convolution_backward.grad_weight"),
        {
            "half": (1, 3, 1),
            "channels_in": (4, 16, 1),
            "channels_out": (6, 40, 1),
            "side": (14, 112, 1),
            "batch": (1, 16, 1),
        },
        5,
        fixed={"groups": 1, "stride": 1},
        finish=lambda s: s | {"kernel": 2 * s.pop("half") - 1},
        allowed=conv_allowed,
        devices=("cpu",),
    ),
    # places between pixels
    Plan(
        "embedding",
        ("grid_sampler_2d",),
        {"channels": (1, 128, 1), "side": (4, 96, 1), "places": (5, 96, 1), "batch": (1, 256, 1)},
        6,
        allowed=lambda s: s["batch"] * s["channels"] * max(s["side"], s["places"]) ** 2 <= 2e6,
        devices=("cpu",),
    ),
    # windows side by side that overlap
    Plan(
        "pooling",
        ("max_pool2d_with_indices",),
        {"channels": (32, 512, 32), "side": (7, 56, 1), "batch": (1, 4, 1), "half": (1, 4, 1)},
        8,
        fixed={"stride": 1},
        finish=lambda s: s | {"kernel": 2 * s.pop("half") + 1},
        allowed=lambda s: s["batch"] * s["channels"] * s["side"] ** 2 <= 2e6,
        devices=("cpu",),
    ),
    # images whose channels lie together, as attention leaves them: taken in whole vectors
    Plan(
        "pooling",
        ("max_pool2d_last", "avg_pool2d_last"),
        {"channels": (32, 512, 16), "side": (8, 96, 2), "batch": (1, 8, 1), "kernel": (2, 3, 1)},
        6,
        allowed=lambda s: s["batch"] * s["channels"] * s["side"] ** 2 <= 4e6,
        devices=("cpu",),
    ),
    # windows as columns, and columns added up to an image
    Plan(
        "copy",
        ("im2col", "col2im"),
        {
            "channels": (3, 256, 1),
            "side": (7, 96, 1),
            "batch": (1, 4, 1),
            "kernel": (2, 7, 1),
            "stride": (1, 4, 1),
        },
        7,
        allowed=lambda s: (
            s["batch"] * s["channels"] * (s["side"] * s["kernel"] // s["stride"]) ** 2 <= 4e6
        ),
        devices=("cpu",),
    ),
    # images whose channels lie at powers of two from each other, in the same sets of the caches
    Plan(
        "resampling",
        ("upsample_nearest2d", "upsample_bilinear2d"),
        {"channels": (32, 512, 32), "size": (2, 3, 1), "times": (1, 3, 1), "batch": (1, 3, 1)},
        6,
        finish=_power_of_two,
        allowed=lambda s: s["batch"] * s["channels"] * (s["side"] * s["factor"]) ** 2 <= 4e6,
        devices=("cpu",),
    ),
    # short stretches that a loop takes one by one, and rows that a graph's edges add up
    Plan(
        "elementwise",
        ("mul_rows",),
        {"rows": (64, 65536, 1), "columns": (2, 256, 1)},
        10,
        allowed=elements_allowed(4e6),
        devices=("cpu",),
    ),
    Plan(
        "copy",
        ("stack",),
        {"rows": (32, 8192, 1), "parts": (3, 40, 1), "columns": (1, 64, 1)},
        6,
        allowed=elements_allowed(2e6),
        devices=("cpu",),
    ),
    Plan(
        "copy",
        ("clone_strided",),
        {"batch": (1, 4, 1), "rows": (2048, 32768, 16), "columns": (4, 128, 2)},
        4,
        allowed=elements_allowed(4e6),
        devices=("cpu",),
    ),
    # means over heads or a sequence, and biases of few columns
    Plan(
        "reduction",
        ("sum_outer", "mean_outer", "amax_outer"),
        {"outer": (1, 512, 1), "columns": (1, 256, 1), "inner": (8, 4096, 4)},
        8,
        allowed=lambda s: 2e3 <= s["outer"] * s["columns"] * s["inner"] <= 8e6,
        devices=("cpu",),
    ),
    Plan(
        "elementwise",
        ("add_bias",),
        {"elements": (2_000, 1_000_000, 64), "columns": (2, 64, 1)},
        7,
        devices=("cpu",),
    ),
    Plan(
        "reduction",
        ("max_place",),
        {"rows": (16, 65536, 1), "columns": (4, 2048, 4)},
        6,
        allowed=elements_allowed(4e6),
        devices=("cpu",),
    ),
    # the nearest entry of a codebook, the likeliest of a vocabulary
    Plan(
        "reduction",
        ("arg_place",),
        {"rows": (16, 8192, 1), "columns": (16, 8192, 8)},
        7,
        allowed=elements_allowed(2e6),
        devices=("cpu",),
    ),
    Plan(
        "routing",
        ("topk",),
        {"rows": (16, 4096, 1), "columns": (32, 4096, 8), "k": (1, 64, 1)},
        6,
        allowed=lambda s: s["k"] <= s["columns"] and s["rows"] * s["columns"] <= 2e6,
        devices=("cpu",),
    ),
    Plan(
        "embedding",
        ("index_add", "index_put"),
        {"table": (64, 32768, 1), "width": (16, 512, 4), "lookups": (64, 32768, 1)},
        6,
        allowed=lambda s: max(s["table"], s["lookups"]) * s["width"] <= 4e6,
        devices=("cpu",),
    ),
    # messages of a large graph, more than the last-level cache holds
    Plan(
        "embedding",
        ("index_add",),
        {"table": (2_000, 40_000, 1), "width": (24, 256, 8), "lookups": (30_000, 400_000, 1)},
        6,
        allowed=lambda s: (
            s["table"] * s["width"] <= 5e6 and 3e6 <= s["lookups"] * s["width"] <= 3e7
        ),
        devices=("cpu",),
    ),
    Plan(
        "embedding",
        ("scatter",),
        {"table": (64, 32768, 1), "width": (1, 64, 1), "lookups": (64, 32768, 1)},
        4,
        allowed=lambda s: max(s["table"], s["lookups"]) * s["width"] <= 1e6,
        devices=("cpu",),
    ),
    # windows so wide that the library unfolds the padded sequence, channel by channel
    Plan(
        "convolution_depthwise",
        ("convolution_1d_depthwise",),
        {"channels": (64, 512, 16), "length": (48, 768, 1), "batch": (1, 4, 1), "half": (7, 16, 1)},
        5,
        finish=lambda s: s | {"kernel": 2 * s.pop("half") + 1},
        allowed=lambda s: s["batch"] * s["channels"] * s["length"] <= 4e5,
        devices=("cpu",),
    ),
    # products of few columns, of a short contraction, and their gradients: a network's last layer,
    # its first of coordinates
    Plan(
        "gemm",
        ("addmm",),
        {"m": (256, 32768, 16), "n": (1, 12, 1), "k": (16, 1024, 16)},
        5,
        allowed=lambda s: gemm_bytes(s) <= 60e6,
        devices=("cpu",),
    ),
    Plan(
        "gemm",
        ("addmm", "mm_nn"),
        {"m": (256, 32768, 16), "n": (32, 512, 16), "k": (1, 12, 1)},
        4,
        allowed=lambda s: gemm_bytes(s) <= 60e6,
        devices=("cpu",),
    ),
    Plan(
        "gemm",
        ("mm_tn",),
        {"m": (1, 12, 1), "n": (16, 1024, 16), "k": (256, 32768, 16)},
        3,
        allowed=lambda s: gemm_bytes(s) <= 60e6,
        devices=("cpu",),
    ),
    Plan(
        "gemm",
        ("mm_tn",),
        {"m": (32, 512, 16), "n": (1, 12, 1), "k": (256, 32768, 16)},
        2,
        allowed=lambda s: gemm_bytes(s) <= 60e6,
        devices=("cpu",),
    ),
    # operators that go element by element
    Plan(
        "elementwise",
        ("_prelu_kernel_backward",),
        {"elements": (4096, 4_000_000, 64)},
        4,
        devices=("cpu",),
    ),
    Plan(
        "copy",
        ("reflection_pad1d",),
        {"channels": (4, 512, 4), "length": (64, 16384, 8)},
        4,
        devices=("cpu",),
    ),
    # wide windows side by side, and maxima of whole sequences
    Plan(
        "pooling",
        ("max_pool2d_with_indices",),
        {"channels": (32, 256, 32), "side": (32, 128, 8), "kernel": (4, 8, 1)},
        4,
        fixed={"batch": 1},
        finish=lambda s: s | {"stride": s["kernel"]},
        devices=("cpu",),
    ),
    Plan(
        "pooling",
        ("max_pool1d",),
        {"channels": (32, 256, 4), "length": (24, 256, 1), "batch": (2, 64, 1)},
        3,
        finish=lambda s: s | {"kernel": s["length"]},
        devices=("cpu",),
    ),
    *CONVOLUTION_PLANS,
    *SCAN_PLANS,
)
