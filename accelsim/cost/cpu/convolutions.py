"""Which code runs each convolution, the framework's own or the library's, and its work.

Neither is told by thresholds of one version of the library: what it runs by other code than most of
a kind takes that kind's coefficients.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from accelsim.cost.cpu.kind_rows import KindRows, rows_of_kind
from accelsim.workloads.graph import BoolArray, FloatArray, OperatorGraph, TextArray
from accelsim.workloads.operator import OperatorKind

_K = OperatorKind
#: Channels of a block, and those of an image, which are read as they are.
_BLOCK = 16
_IMAGE_CHANNELS = 4


@lru_cache(maxsize=16)
def _is_large(rows: KindRows) -> BoolArray:
    """Which fp32 convolutions the framework leaves to the library (ATen Convolution.cpp), by their
    dimensions.

    It multiplies the sizes of the first four axes, of a volume all but its width.
    """
    volume = _is_volume(rows)
    images = (
        rows["batch"]
        * rows["channels_in"]
        * rows["in_d"]
        * rows["in_h"]
        * np.where(volume, 1.0, rows["in_w"])
    )
    wide = (rows["kernel_h"] > 3) & (rows["kernel_w"] > 3)
    return (rows["groups"] > 1) | wide | (rows["batch"] > 1) | (images > 20480)


def _in_library(rows: KindRows) -> BoolArray:
    """Which convolutions and gradients the library runs."""
    return _is_large(rows) | ~rows.is_fp32


def _is_special(rows: KindRows, threads: int) -> BoolArray:
    """Which fp32 convolutions the framework may leave to the library: all but small batches of
    single taps on one thread.
    """
    taps = rows["kernel_d"] * rows["kernel_h"] * rows["kernel_w"]
    special: BoolArray = (
        (rows["stride"] > 1) | (rows["dilation"] > 1) | (rows["batch"] >= 16) | (taps > 1)
    )
    return special | (threads > 1)


def runs_by_group(rows: KindRows, threads: int) -> BoolArray:
    """Which grouped convolutions the framework multiplies itself, group by group, shape (k,): the
    library has none of them.

    Args:
        rows: Convolutions.
        threads: Threads of the framework.
    """
    own = ~_is_special(rows, threads) & rows.is_fp32
    grouped: BoolArray = (rows["groups"] > 1) & own
    return grouped


def block_bytes(graph: OperatorGraph) -> FloatArray:
    """Bytes by which blocks of 16 channels exceed the results of convolutions that they are copied
    to, shape (n,).

    Results are laid out in vectors of channels (Georganas et al., SC 2018, section II). The
    framework's own kernels write results as they are.

    Args:
        graph: Operators, n rows.
    """
    found = np.zeros(len(graph))
    rows = rows_of_kind(graph, _K.CONV)

    outside = np.maximum(rows["channels_out"], 1.0)
    library = _is_large(rows) & _is_special(rows, 1) | ~rows.is_fp32
    found[rows.index] = (
        np.where(library, np.ceil(outside / _BLOCK) * _BLOCK / outside - 1.0, 0.0)
        * graph.write_bytes[rows.index]
    )
    return found


@lru_cache(maxsize=16)
def visible_taps(rows: KindRows) -> FloatArray:
    """Share of a convolution's taps that the library multiplies, shape (k,): not padding along
    depths and under gaps.

    Args:
        rows: Convolutions.
    """
    plane = _visible_plane(rows) if rows.kind == _K.CONV else 1.0
    return _visible_depth(rows) * plane * _visible_window(rows)


def _visible_window(rows: KindRows) -> FloatArray:
    """Share of the taps inside the image along axes where the window is larger than it, shape (k,).

    8 images of 32 channels and 4 x 48 pixels take 0.70 ms with windows of 11 x 11, where all taps
    would take 1.66 (oneDNN 3.12 on an EPYC 9005, fp32). Where the image is larger, the coefficients
    know.
    """
    share = np.ones(len(rows))
    for axis in ("h", "w"):
        inside, window = rows[f"in_{axis}"], np.maximum(rows[f"kernel_{axis}"], 1.0)
        if (window > inside).any():
            outside = np.maximum(rows[f"out_{axis}"], 1.0)
            taps = _inside(inside, outside, window, _step(rows, axis), np.ones(len(rows)))
            share *= np.where(window > inside, taps, 1.0)
    plain = _in_library(rows) & (rows["dilation"] <= 1)
    return np.where(plain & (share > 0), share, 1.0)


def _visible_depth(rows: KindRows) -> FloatArray:
    """Share of the taps along the depth of convolved volumes that lie inside, shape (k,): the
    library skips the others.

    The framework's own kernels unfold and multiply all of them.
    """
    inside, outside, window = (
        rows["in_d"],
        np.maximum(rows["out_d"], 1.0),
        np.maximum(rows["kernel_d"], 1.0),
    )
    step = np.where(outside >= inside, 1.0, np.maximum(rows["stride"], 1.0))
    taps = _inside(inside, outside, window, step, np.ones(len(rows)))
    own = ~_in_library(rows)
    return np.where((window > 1) & ~own, taps, 1.0)


def _inside(
    inside: FloatArray, outside: FloatArray, window: FloatArray, step: FloatArray, gap: FloatArray
) -> FloatArray:
    """Share of the taps along one axis that lie inside the image, padded alike on both sides, shape
    (k,).
    """
    padding = np.ceil(np.maximum((outside - 1) * step + (window - 1) * gap + 1 - inside, 0.0) / 2.0)
    taps = np.zeros(len(inside))
    for tap in range(int(window.max(initial=1.0))):
        first = np.maximum(np.ceil((padding - tap * gap) / step), 0.0)
        last = np.minimum(np.floor((inside - 1 + padding - tap * gap) / step), outside - 1)
        taps += np.where(tap < window, np.maximum(last - first + 1, 0.0), 0.0)
    return taps / (outside * window)


def _visible_plane(rows: KindRows) -> FloatArray:
    """Taps of forward convolutions' windows with gaps that lie inside, over those of windows
    without, shape (k,).

    The library's generated code skips taps in the padding along both axes: 3 x 3 windows on images
    of 14, 20 and 32 pixels a side with gaps of 2 to 15 take 0.95 to 0.26 of the time without gaps
    where 0.96 to 0.20 of the taps are left (oneDNN 3.12 on an EPYC 9005, fp32). Where the same taps
    lie in the padding without gaps, the coefficients know.
    """
    share = np.ones(len(rows))
    gap = np.maximum(rows["dilation"], 1.0)
    generated = _in_library(rows) & (rows["groups"] == 1) & (gap > 1)
    if not generated.any():
        return share
    for axis in ("h", "w"):
        step = _step(rows, axis)
        sizes = (
            rows[f"in_{axis}"],
            np.maximum(rows[f"out_{axis}"], 1.0),
            np.maximum(rows[f"kernel_{axis}"], 1.0),
        )
        share *= _inside(*sizes, step, gap) / np.maximum(
            _inside(*sizes, step, np.ones(len(rows))), 1e-9
        )
    return np.where(generated, np.clip(share, 0.0, 1.0), 1.0)


def _is_depthwise(rows: KindRows) -> BoolArray:
    """Which convolutions have one filter for each channel; several for one are groups."""
    groups = rows["groups"]
    return (groups > 1) & (groups >= rows["channels_in"]) & (rows["channels_out"] <= groups)


def _is_volume(rows: KindRows) -> BoolArray:
    """Which convolutions go along a depth too."""
    return (rows["in_d"] > 1) | (rows["kernel_d"] > 1)


def _is_whole(rows: KindRows) -> BoolArray:
    """Whether generated code takes groups: of whole vectors of four channels."""
    return _divides(
        4.0,
        [rows[name] / np.maximum(rows["groups"], 1.0) for name in ("channels_in", "channels_out")],
    )


def _window(rows: KindRows, axis: str) -> FloatArray:
    """Pixels from the first to the last tap of a window along one axis.

    Dumoulin and Visin, arXiv:1603.07285, 2016.
    """
    return (rows[f"kernel_{axis}"] - 1) * np.maximum(rows["dilation"], 1.0) + 1


def _step(rows: KindRows, axis: str) -> FloatArray:
    """Pixels from one window to the next along one axis.

    Graphs keep the larger step of the axes: one that would lay whole windows into the padding is
    the other axis's.
    """
    step, window = np.maximum(rows["stride"], 1.0), _window(rows, axis)
    padded = (rows[f"out_{axis}"] - 1) * step + window - rows[f"in_{axis}"]
    return np.where(padded > 2 * (window - 1), 1.0, step)


def _is_plain_gradient(rows: KindRows) -> BoolArray:
    """Which gradients of depthwise images have no generated code, but small products: those of
    steps in 16 bits.
    """
    plain: BoolArray = ~rows.is_fp32 & (rows["stride"] > 1)
    return plain


def _divides(lane: float, counts: Sequence[FloatArray]) -> BoolArray:
    divided: BoolArray = np.logical_and.reduce([count % lane == 0 for count in counts])
    return divided


def conv_counts(rows: KindRows) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Work with channels filled to 16, output lines times taps, and images times groups; of one
    group, work as a product.

    Channels are the lanes of its vectors (Georganas et al., SC 2018, section II).

    The library reads the few channels of an image as they are, forward up to 15, for weights four,
    for an image's gradient none, and takes groups of 8 or 4 channels, or multiples, in vectors of
    as many lanes, each of which takes as long as one of 16 (oneDNN
    jit_avx512_common_conv_kernel.cpp, init_conf). Gradients of fp32 weights fill from four channels
    on: of 8x8 taps 0.44 ms with 3, 2.2 with 4, 8 or 16 (EPYC 9005); of 4 to 15 channels in vectors
    of 8. The framework multiplies small fp32 convolutions image by image; the product's kernel
    takes 24 pixels times 4 channels. It copies a line for each tap of each channel first (ATen
    im2col.h), of gradients of weights where they are volumes. Transposed, the taps are those of
    each pixel read; the library lays out filters of whole blocks anew in each call, the framework's
    product those of more than one pixel, and it adds up columns.

    Args:
        rows: Convolutions.
    """
    volume = rows["kernel_d"] * rows["kernel_h"] * rows["kernel_w"]
    if rows.kind != _K.CONV_TRANSPOSE:
        volume = volume * visible_taps(rows)
    transposed, images = rows.kind == _K.CONV_TRANSPOSE, rows["batch"]
    end = "in" if transposed else "out"
    pixels = rows[f"{end}_d"] * rows[f"{end}_h"] * rows[f"{end}_w"]
    groups = np.maximum(rows["groups"], 1.0)
    filled = groups * images * pixels * volume * _filled_channels(rows, groups)
    lines = images * rows["out_d"] * rows["out_h"] * np.ceil(rows["channels_out"] / 16) * volume
    if transposed:
        native = ~_in_library(rows)
        whole = (rows["channels_in"] % 16 == 0) & (rows["channels_out"] % 16 == 0)
        columns = images * pixels * volume * rows["channels_out"]
        pairs = rows["channels_in"] * rows["channels_out"]
        laid = pairs / groups * volume * np.where(native, pixels > 1, whole)
        return filled, np.where(native, columns, lines), laid
    copied = ~_in_library(rows) & (groups == 1) & (volume > 1)
    if rows.kind == _K.CONV_BACKWARD_WEIGHT:
        copied &= _is_volume(rows)
    copies = images * rows["out_d"] * rows["out_h"] * rows["channels_in"] * volume
    product = images * 96.0 * np.ceil(pixels / 24) * np.ceil(rows["channels_out"] / 4)
    product = product * volume * rows["channels_in"]
    lines = np.where(copied, copies, lines)
    return filled, lines, np.where(groups > 1, groups * images, product)


def _filled_channels(rows: KindRows, groups: FloatArray) -> FloatArray:
    """Products of one group's channels at one pixel and tap, filled to its vectors' lanes, as
    vectors of 16 (oneDNN jit_avx512_common_conv_kernel.cpp, init_conf).

    Channels are the lanes (Georganas et al., SC 2018, section II).
    """
    per_group = [rows[name] / groups for name in ("channels_in", "channels_out")]
    lanes = np.select(
        [_divides(lane, per_group) | (groups == 1) for lane in (16.0, 8.0, 4.0)],
        [16.0, 8.0, 4.0],
        16.0,
    )
    weights_fp32 = (rows.kind == _K.CONV_BACKWARD_WEIGHT) & rows.is_fp32
    lanes = np.where(
        weights_fp32 & (groups == 1) & (rows["channels_in"] < 16) & (rows["channels_in"] > 3),
        8.0,
        lanes,
    )
    inside, outside = (np.ceil(channels / lanes) * lanes for channels in per_group)
    few = np.where(
        weights_fp32,
        3.0,
        {_K.CONV: _BLOCK - 1, _K.CONV_BACKWARD_DATA: 0}.get(rows.kind, _IMAGE_CHANNELS),
    )
    as_is = (rows["channels_in"] <= few) & (groups == 1)
    inside = np.where(as_is, rows["channels_in"], inside)
    if (
        rows.kind == _K.CONV_TRANSPOSE
    ):  # in fp32 each channel's own filter multiplies single channels
        alone = (groups > 1) & (groups >= rows["channels_in"]) & rows.is_fp32
        inside = np.where(alone, 1.0, inside)
    filled: FloatArray = inside * outside * (16.0 / lanes)
    return filled


def conv_names(rows: KindRows, threads: int) -> TextArray:
    """Convolutions by shape and by library: in fp32 the framework multiplies small ones itself
    (ATen Convolution.cpp).
    """
    height, width = rows["kernel_h"], rows["kernel_w"]
    pointwise = rows["kernel_d"] * height * width == 1
    depthwise = _is_depthwise(rows)
    library = _is_special(rows, threads) & _is_large(rows) | ~rows.is_fp32
    if rows.kind == _K.CONV_TRANSPOSE:
        return np.where(library, "conv_transpose", "conv_transpose_native")
    if rows.kind != _K.CONV:
        data = rows.kind == _K.CONV_BACKWARD_DATA
        gradient = "conv_grad_input" if data else "conv_grad_weight"
        # the library generates code for narrow windows, and in 16 bits for steps of one; others go
        # through its plain kernel
        plain = _is_plain_gradient(rows) if data else width > 3
        own = np.where(plain, f"{gradient}_depthwise_plain", f"{gradient}_depthwise")
        native = np.where(_is_volume(rows), f"{gradient}_volume_native", f"{gradient}_native")
        return np.where(depthwise, own, np.where(library, gradient, native))
    flat = (rows["in_h"] == 1) & (rows["in_w"] > 1) & (height == 1)
    base = np.where(pointwise, "conv_1x1", np.where(flat, "conv_1d", "conv"))
    own = np.where(
        pointwise,
        "conv_1x1_native",
        np.where(_is_volume(rows), "conv_volume_native", "conv_native"),
    )
    more = np.where(library, base, own)
    grouped = np.where(_is_whole(rows), "conv_grouped", "conv_grouped_plain")
    narrow = np.where(flat, "conv_depthwise_1d", "conv_depthwise")
    narrow = np.where(_is_volume(rows), "conv_depthwise_volume", narrow)
    together = (rows["groups"] > 1) & library  # the framework takes groups one by one
    return np.where(depthwise & together, narrow, np.where(together, grouped, more))
