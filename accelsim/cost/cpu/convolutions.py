"""Which code runs each convolution, the framework's own, the library's, or a product of unfolded
images, and its work.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from accelsim.cost.cpu.kind_rows import KindRows, rows_of_kind
from accelsim.workloads.graph import BoolArray, FloatArray, OperatorGraph, TextArray
from accelsim.workloads.operator import OperatorKind

_K = OperatorKind
#: Padding on each side up to which the library generates code of depthwise convolutions: the pixels
#: it unrolls.
_WIDEST_PADDING = 6
#: Pixels whose sums the library's generated code keeps in registers: of one block of 16 channels,
#: over those of more blocks; of wide windows; in 16 bits. An image padded by more on a side has
#: none.
_REGISTERS = 31
_WIDE_PIXELS = 28
_HALF_PIXELS = 15
#: Blocks of channels up to which a single image's pixels have the registers to themselves.
_FEW_BLOCKS = 6
#: Windows of which gradients have generated code: of weights, of an image's weights in 16 bits, of
#: images in fp32.
_WIDEST_WINDOW = 14
_WIDEST_IMAGE_WINDOW = 24
_WIDEST_DATA_WINDOW = 18
#: Pixels of a line from which the code of narrow windows' gradients takes few of them at a time,
#: and how many.
_LONG_LINE = 128
_LONG_LINE_PIXELS = 6
#: Channels of a block, of half of one, and those of an image, which are read as they are.
_BLOCK = 16
_HALF_BLOCK = 8
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
    framework's own kernels, and products of unfolded images, write results as they are.

    Args:
        graph: Operators, n rows.
    """
    found = np.zeros(len(graph))
    rows = rows_of_kind(graph, _K.CONV)

    outside = np.maximum(rows["channels_out"], 1.0)
    library = _is_large(rows) & _is_special(rows, 1) | ~rows.is_fp32
    blocks = library & ~is_unfolded(rows)
    found[rows.index] = (
        np.where(blocks, np.ceil(outside / _BLOCK) * _BLOCK / outside - 1.0, 0.0)
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
    library = _in_library(rows)
    plain = library & (rows["dilation"] <= 1) & ~is_unfolded(rows)
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
    where 0.96 to 0.20 of the taps are left (oneDNN 3.12 on an EPYC 9005, fp32). What it unfolds is
    multiplied whole. Where the same taps lie in the padding without gaps, the coefficients know.
    """
    share = np.ones(len(rows))
    gap = np.maximum(rows["dilation"], 1.0)
    generated = _in_library(rows) & (rows["groups"] == 1) & (gap > 1) & ~is_unfolded(rows)
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


@lru_cache(maxsize=16)
def is_unfolded(rows: KindRows) -> BoolArray:
    """Which convolutions and gradients the library unfolds and multiplies, group by group, shape
    (k,).

    Those it has no generated code for: forward mostly windows with gaps, of weights' gradients
    windows of more than 14 columns. Dispatch of 2,200 shapes observed with torch 2.13 (oneDNN 3.12)
    on an EPYC 9005. Unfolding: Chellapilla et al., IWFHR 2006.

    Args:
        rows: Convolutions.
    """
    rule = {
        _K.CONV: _unfolds_image,
        _K.CONV_BACKWARD_DATA: _unfolds_gradient,
        _K.CONV_BACKWARD_WEIGHT: _unfolds_for_weights,
    }.get(rows.kind)
    if rule is None:
        return np.zeros(len(rows), dtype=bool)
    groups = rows["groups"]
    depthwise = _is_depthwise(rows)
    gapped = (rows["dilation"] > 1) & (np.maximum(rows["kernel_h"], rows["kernel_w"]) > 1)
    parted = (groups > 1) & np.where(depthwise, _is_volume(rows) | gapped, _parts(rows))
    parted &= ~depthwise | (rows.kind != _K.CONV)
    unfolded: BoolArray = rule(rows) & (groups == 1) | parted
    return unfolded & _in_library(rows)


def _is_depthwise(rows: KindRows) -> BoolArray:
    """Which convolutions have one filter for each channel; several for one are groups, which the
    library unfolds.
    """
    groups = rows["groups"]
    return (groups > 1) & (groups >= rows["channels_in"]) & (rows["channels_out"] <= groups)


def _is_volume(rows: KindRows) -> BoolArray:
    """Which convolutions go along a depth too; gradients of depthwise ones have no generated code,
    nor those with gaps.
    """
    return (rows["in_d"] > 1) | (rows["kernel_d"] > 1)


def _parts(rows: KindRows) -> BoolArray:
    """Which groups have no generated code: those that fill no vectors of four, of weights'
    gradients no blocks.

    These are of 16 channels, in fp32 of 8 too: 32 groups of 8 take 0.5 ms, of 4 on four times the
    pixels 4 ms (EPYC 9005).

    Gradients of images whose windows step go through small products whatever their groups, in fp32
    those of two channels or more.
    """
    if rows.kind == _K.CONV_BACKWARD_WEIGHT:
        return ~np.where(rows.is_fp32, _is_whole(rows, _HALF_BLOCK), _is_whole(rows, _BLOCK))
    if rows.kind == _K.CONV:
        return ~_is_whole(rows)
    least = np.minimum(rows["channels_in"], rows["channels_out"]) / np.maximum(rows["groups"], 1.0)
    stepped = (rows["stride"] > 1) & (~rows.is_fp32 | (least > 2))
    return ~_is_whole(rows) & ~stepped


def _is_whole(rows: KindRows, lanes: int = 4) -> BoolArray:
    """Whether generated code takes groups: of whole vectors of so many channels."""
    return _divides(
        lanes,
        [rows[name] / np.maximum(rows["groups"], 1.0) for name in ("channels_in", "channels_out")],
    )


def _window(rows: KindRows, axis: str) -> FloatArray:
    """Pixels from the first to the last tap of a window along one axis."""
    return (rows[f"kernel_{axis}"] - 1) * np.maximum(rows["dilation"], 1.0) + 1


def _step(rows: KindRows, axis: str) -> FloatArray:
    """Pixels from one window to the next along one axis.

    Graphs keep the larger step of the axes: one that would lay whole windows into the padding is
    the other axis's.
    """
    step, window = np.maximum(rows["stride"], 1.0), _window(rows, axis)
    padded = (rows[f"out_{axis}"] - 1) * step + window - rows[f"in_{axis}"]
    return np.where(padded > 2 * (window - 1), 1.0, step)


def _padding(rows: KindRows, axis: str) -> FloatArray:
    """Pixels added before the first along one axis, where as many are added behind the last."""
    last = (rows[f"out_{axis}"] - 1) * _step(rows, axis) + _window(rows, axis)
    return np.ceil(np.maximum(last - rows[f"in_{axis}"], 0.0) / 2.0)


def _unfolds_image(rows: KindRows) -> BoolArray:
    """Generated code takes the pixels of a line that are in registers together, of up to five
    blocks of 16 channels.

    No padding may be wider, nor as wide as the window (oneDNN jit_avx512_common_conv_kernel.cpp,
    init_conf). Of a single image up to six blocks leave all registers to the pixels.
    """
    width, out, window, padding = (
        rows["kernel_w"],
        rows["out_w"],
        _window(rows, "w"),
        _padding(rows, "w"),
    )
    blocks = np.ceil(rows["channels_out"] / 16)
    together = np.select(
        [blocks % count == 0 for count in (5.0, 4.0, 3.0, 2.0)], [5.0, 4.0, 3.0, 2.0], 1.0
    )
    alone = (rows["batch"] <= 1) & (blocks <= _FEW_BLOCKS)
    narrow = np.where((out <= _WIDE_PIXELS) | alone, _WIDE_PIXELS, _REGISTERS // (together + 1))
    registers = np.where(rows.is_fp32, np.where(width > 3, _WIDE_PIXELS, narrow), _HALF_PIXELS)
    most = np.minimum(registers, out)  # no more of a line are in registers than it has
    return (width > 1) & (padding > 0) & ((padding > most) | (padding >= window))


def _unfolds_gradient(rows: KindRows) -> BoolArray:
    """Gradients of images whose windows reach over the edge by more pixels than registers; steps
    have code of their own.
    """
    width = rows["in_w"]
    over = _window(rows, "w") - 1 - _padding(rows, "w")
    narrow = (rows["kernel_w"] <= 3) & (width > _LONG_LINE)
    most = np.where(
        rows.is_fp32,
        np.where(narrow, _LONG_LINE_PIXELS, np.minimum(_WIDE_PIXELS, width)),
        _HALF_PIXELS,
    )
    wide = (over > most) | (rows.is_fp32 & (rows["kernel_w"] > _WIDEST_DATA_WINDOW))
    return wide & (rows["stride"] <= 1) & (rows["kernel_w"] > 1)


def _unfolds_for_weights(rows: KindRows) -> BoolArray:
    """Gradients of wide windows, of windows larger than the image, and in 16 bits of few to any
    that fill no block.
    """
    width, inside = rows["kernel_w"], rows["channels_in"]
    few = inside < _BLOCK
    wide = np.where(
        rows.is_fp32 | (inside >= _BLOCK), width > _WIDEST_WINDOW, width > _WIDEST_IMAGE_WINDOW
    )
    larger = (rows["kernel_h"] > 1) & (_window(rows, "h") > rows["in_h"])
    padded = rows.is_fp32 & (_padding(rows, "w") > _WIDE_PIXELS)
    uneven = ~rows.is_fp32 & few & (rows["channels_out"] % _BLOCK > 0)
    return wide | larger | padded | uneven


def _is_plain_gradient(rows: KindRows) -> BoolArray:
    """Which gradients of depthwise images have no generated code, but small products: those of
    steps in 16 bits.
    """
    plain: BoolArray = ~rows.is_fp32 & (rows["stride"] > 1)
    return plain


def _calls_of_line(rows: KindRows) -> FloatArray:
    """Products that a line of an image's gradient takes where windows step: 70 ns each (EPYC 9005),
    however few pixels.

    Pixels at the same place between two steps are taken together. Taps that all of them see are one
    product; each other tap is one of its own, and the pixels it leaves out take another (oneDNN
    jit_brgemm_conv_bwd_strided.cpp, ker_base): of windows of three a line of 16 pixels takes 270
    ns, one of 13 takes 150.
    """
    width, out, window = rows["in_w"], rows["out_w"], rows["kernel_w"]
    step, gap, padding = _step(rows, "w"), np.maximum(rows["dilation"], 1.0), _padding(rows, "w")
    calls = np.zeros(len(width))
    for place in range(int(step.max(initial=1.0))):
        last = place + np.floor((width - 1 - place) / step) * step
        together = np.zeros(len(width), dtype=bool)
        for tap in range(int(window.max(initial=1.0))):
            offset = padding - tap * gap
            meets = (
                (tap < window) & (place < step) & ((place + offset) % step == 0) & (last >= place)
            )
            whole = (place + offset >= 0) & ((last + offset) / step <= out - 1)
            calls += 2.0 * (meets & ~whole)
            together |= meets & whole
        calls += together
    return calls


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
    of 8. Images that are unfolded fill their results alone. The framework multiplies small fp32
    convolutions image by image; the product's kernel takes 24 pixels times 4 channels. It copies a
    line for each tap of each channel first (ATen im2col.h), of gradients of weights where they are
    volumes. Transposed, the taps are those of each pixel read; the library lays out filters of
    whole blocks anew in each call, the framework's product those of more than one pixel, and it
    adds up columns.

    Args:
        rows: Convolutions.
    """
    volume = rows["kernel_d"] * rows["kernel_h"] * rows["kernel_w"]
    if rows.kind != _K.CONV_TRANSPOSE:
        volume = volume * visible_taps(rows)
    transposed, images, pairs = (
        rows.kind == _K.CONV_TRANSPOSE,
        rows["batch"],
        rows["channels_in"] * rows["channels_out"],
    )
    end = "in" if transposed else "out"
    pixels = rows[f"{end}_d"] * rows[f"{end}_h"] * rows[f"{end}_w"]
    groups = np.maximum(rows["groups"], 1.0)
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
    unfolded = is_unfolded(rows)
    few = np.where(
        weights_fp32,
        3.0,
        {_K.CONV: _BLOCK - 1, _K.CONV_BACKWARD_DATA: 0}.get(rows.kind, _IMAGE_CHANNELS),
    )
    as_is = (rows["channels_in"] <= few) | unfolded
    inside = np.where(as_is & ((groups == 1) | unfolded), rows["channels_in"] / groups, inside)
    if transposed:  # in fp32 each channel's own filter multiplies single channels
        alone = (groups > 1) & (groups >= rows["channels_in"]) & rows.is_fp32
        inside = np.where(alone, 1.0, inside)
    filled = groups * images * pixels * volume * inside * outside * (16.0 / lanes)
    lines = images * rows["out_d"] * rows["out_h"] * np.ceil(rows["channels_out"] / 16) * volume
    if rows.kind == _K.CONV_BACKWARD_DATA:
        parted = (groups > 1) & (groups >= rows["channels_in"]) & _is_plain_gradient(rows)
        lines = np.where(
            parted, images * groups * rows["in_d"] * rows["in_h"] * _calls_of_line(rows), lines
        )
    product = (
        images
        * 96.0
        * np.ceil(pixels / 24)
        * np.ceil(rows["channels_out"] / 4)
        * volume
        * rows["channels_in"]
    )
    if transposed:
        native = ~_in_library(rows)
        whole = (rows["channels_in"] % 16 == 0) & (rows["channels_out"] % 16 == 0)
        columns = images * pixels * volume * rows["channels_out"]
        laid = pairs / groups * volume * np.where(native, pixels > 1, whole)
        return filled, np.where(native, columns, lines), laid
    copied = ~_in_library(rows) & (groups == 1) & ~unfolded & (volume > 1)
    if rows.kind == _K.CONV_BACKWARD_WEIGHT:
        copied &= _is_volume(rows)
    copies = images * rows["out_d"] * rows["out_h"] * rows["channels_in"] * volume
    lines = np.where(copied, copies, lines)
    return filled, lines, np.where((groups > 1) | unfolded, groups * images, product)


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
    unfolded = is_unfolded(rows)
    if rows.kind != _K.CONV:
        data = rows.kind == _K.CONV_BACKWARD_DATA
        gradient = "conv_grad_input" if data else "conv_grad_weight"
        # the library generates code for narrow windows, and in 16 bits for steps of one; others go
        # through its plain kernel
        plain = _is_plain_gradient(rows) if data else width > 3
        own = np.where(plain, f"{gradient}_depthwise_plain", f"{gradient}_depthwise")
        whole = np.where(unfolded, f"{gradient}_unfolded", gradient)
        native = np.where(_is_volume(rows), f"{gradient}_volume_native", f"{gradient}_native")
        return np.where(depthwise & ~unfolded, own, np.where(library, whole, native))
    flat = (rows["in_h"] == 1) & (rows["in_w"] > 1) & (height == 1)
    base = np.where(pointwise, "conv_1x1", np.where(flat, "conv_1d", "conv"))
    generated = np.where(unfolded, "conv_unfolded", base)
    own = np.where(
        pointwise,
        "conv_1x1_native",
        np.where(_is_volume(rows), "conv_volume_native", "conv_native"),
    )
    more = np.where(library, generated, own)
    grouped = np.where(_is_whole(rows), "conv_grouped", "conv_grouped_plain")
    padding = (
        (rows["out_w"] - 1) * _step(rows, "w") + (width - 1) * rows["dilation"] + 1 - rows["in_w"]
    )
    narrow = np.where(flat, "conv_depthwise_1d", "conv_depthwise")
    narrow = np.where(_is_volume(rows), "conv_depthwise_volume", narrow)
    alone = np.where(padding > 2 * _WIDEST_PADDING, "conv_depthwise_plain", narrow)
    together = (rows["groups"] > 1) & library  # the framework takes groups one by one
    return np.where(depthwise & together, alone, np.where(together, grouped, more))
