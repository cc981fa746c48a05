"""Which code runs each convolution, the framework's own, the library's, or a product of unfolded
images, and its work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from accelsim.workloads.dtype import Dtype
from accelsim.workloads.graph import FloatArray, OperatorGraph
from accelsim.workloads.operator import OperatorKind

__all__ = [
    "block_bytes",
    "conv_counts",
    "conv_names",
    "is_unfolded",
    "runs_by_group",
    "visible_taps",
]

_K = OperatorKind
#: Padding on each side up to which the library generates code of depthwise convolutions: the pixels
#: it unrolls.
_WIDEST_PADDING = 6
#: Pixels whose sums the library's generated code keeps in registers: of one block of 16 channels,
#: over those of more blocks; of wide windows; in 16 bits. An image padded by more on a side has
#: none.
_REGISTERS: Final = 31
_WIDE_PIXELS: Final = 28
_HALF_PIXELS: Final = 15
#: Blocks of channels up to which a single image's pixels have the registers to themselves.
_FEW_BLOCKS: Final = 6
#: Windows of which gradients have generated code: of weights, of an image's weights in 16 bits, of
#: images in fp32.
_WIDEST_WINDOW: Final = 14
_WIDEST_IMAGE_WINDOW: Final = 24
_WIDEST_DATA_WINDOW: Final = 18
#: Pixels of a line from which the code of narrow windows' gradients takes few of them at a time,
#: and how many.
_LONG_LINE: Final = 128
_LONG_LINE_PIXELS: Final = 6
#: Channels of a block, of half of one, and those of an image, which are read as they are.
_BLOCK: Final = 16
_HALF_BLOCK: Final = 8
_IMAGE_CHANNELS: Final = 4


_Sizes = Callable[[str], FloatArray]


def _is_large(size: _Sizes) -> NDArray[np.bool_]:
    """Which fp32 convolutions the framework leaves to the library (ATen Convolution.cpp), by their
    dimensions.

    It multiplies the sizes of the first four axes, of a volume all but its width.
    """
    volume = _is_volume(size)
    images = (
        size("batch")
        * size("channels_in")
        * size("in_d")
        * size("in_h")
        * np.where(volume, 1.0, size("in_w"))
    )
    wide = (size("kernel_h") > 3) & (size("kernel_w") > 3)
    large: NDArray[np.bool_] = (size("groups") > 1) | wide | (size("batch") > 1) | (images > 20480)
    return large


def _is_special(size: _Sizes, threads: int) -> NDArray[np.bool_]:
    """Which fp32 convolutions the framework may leave to the library: all but small batches of
    single taps on one thread.
    """
    taps = size("kernel_d") * size("kernel_h") * size("kernel_w")
    special: NDArray[np.bool_] = (
        (size("stride") > 1) | (size("dilation") > 1) | (size("batch") >= 16) | (taps > 1)
    )
    return special | (threads > 1)


def runs_by_group(
    graph: OperatorGraph, kind: OperatorKind, rows: NDArray[np.int64], threads: int
) -> NDArray[np.bool_]:
    """Which grouped convolutions the framework multiplies itself, group by group, shape (k,): the
    library has none of them.

    Args:
        graph: Operators.
        kind: Kind of the rows.
        rows: Indices of convolutions, shape (k,).
        threads: Threads of the framework.
    """

    def size(name: str) -> FloatArray:
        return graph.dimension(name, rows, kind)

    own = ~_is_special(size, threads) & (graph.dtype[rows] == int(Dtype.FP32))
    grouped: NDArray[np.bool_] = (size("groups") > 1) & own
    return grouped


def block_bytes(graph: OperatorGraph) -> FloatArray:
    """Bytes by which blocks of 16 channels exceed the results of convolutions that they are copied
    to, shape (n,).

    The framework's own kernels, and products of unfolded images, write results as they are.

    Args:
        graph: Operators, n rows.
    """
    found = np.zeros(len(graph))
    rows = np.flatnonzero(graph.kind == int(_K.CONV))

    def size(name: str) -> FloatArray:
        return graph.dimension(name, rows, _K.CONV)

    outside = np.maximum(size("channels_out"), 1.0)
    library = _is_large(size) & _is_special(size, 1) | (graph.dtype[rows] != int(Dtype.FP32))
    blocks = library & ~is_unfolded(graph, _K.CONV, rows)
    found[rows] = (
        np.where(blocks, np.ceil(outside / _BLOCK) * _BLOCK / outside - 1.0, 0.0)
        * graph.write_bytes[rows]
    )
    return found


@lru_cache(maxsize=16)
def _all_visible_taps(graph: OperatorGraph, kind: OperatorKind) -> FloatArray:
    """`visible_taps` of all rows of a kind, shape (n,)."""
    found = np.ones(len(graph))
    rows = np.flatnonzero(graph.kind == int(kind))
    plane = _visible_plane(graph, rows) if kind == _K.CONV else 1.0
    window = _visible_window(graph, kind, rows)
    found[rows] = _visible_depth(graph, kind, rows) * plane * window
    return found


def visible_taps(graph: OperatorGraph, kind: OperatorKind, rows: NDArray[np.int64]) -> FloatArray:
    """Share of a convolution's taps that the library multiplies, shape (k,): not padding along
    depths and under gaps.

    Args:
        graph: Operators.
        kind: Kind of the rows.
        rows: Indices of convolutions, shape (k,).
    """
    share: FloatArray = _all_visible_taps(graph, kind)[rows]
    return share


def _visible_window(
    graph: OperatorGraph, kind: OperatorKind, rows: NDArray[np.int64]
) -> FloatArray:
    """Share of the taps inside the image along axes where the window is larger than it, shape (k,).

    8 images of 32 channels and 4 x 48 pixels take 0.70 ms with windows of 11 x 11, where all taps
    would take 1.66 (oneDNN 3.12 on an EPYC 9005, fp32). Where the image is larger, the coefficients
    know.
    """

    def size(name: str) -> FloatArray:
        return graph.dimension(name, rows, kind)

    share = np.ones(len(rows))
    for axis in ("h", "w"):
        inside, window = size(f"in_{axis}"), np.maximum(size(f"kernel_{axis}"), 1.0)
        taps = _inside(
            inside,
            np.maximum(size(f"out_{axis}"), 1.0),
            window,
            _step(size, axis),
            np.ones(len(rows)),
        )
        share *= np.where(window > inside, taps, 1.0)
    library = _is_large(size) | (graph.dtype[rows] != int(Dtype.FP32))
    plain = library & (size("dilation") <= 1) & ~is_unfolded(graph, kind, rows)
    visible: FloatArray = np.where(plain & (share > 0), share, 1.0)
    return visible


def _visible_depth(graph: OperatorGraph, kind: OperatorKind, rows: NDArray[np.int64]) -> FloatArray:
    """Share of the taps along the depth of convolved volumes that lie inside, shape (k,): the
    library skips the others.

    The framework's own kernels unfold and multiply all of them.
    """

    def size(name: str) -> FloatArray:
        return graph.dimension(name, rows, kind)

    inside, outside, window = (
        size("in_d"),
        np.maximum(size("out_d"), 1.0),
        np.maximum(size("kernel_d"), 1.0),
    )
    step = np.where(outside >= inside, 1.0, np.maximum(size("stride"), 1.0))
    taps = _inside(inside, outside, window, step, np.ones(len(rows)))
    own = ~_is_large(size) & (graph.dtype[rows] == int(Dtype.FP32))
    share: FloatArray = np.where((window > 1) & ~own, taps, 1.0)
    return share


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
    share: FloatArray = taps / (outside * window)
    return share


def _visible_plane(graph: OperatorGraph, rows: NDArray[np.int64]) -> FloatArray:
    """Taps of forward convolutions' windows with gaps that lie inside, over those of windows
    without, shape (k,).

    The library's generated code skips taps in the padding along both axes: 3 x 3 windows on images
    of 14, 20 and 32 pixels a side with gaps of 2 to 15 take 0.95 to 0.26 of the time without gaps
    where 0.96 to 0.20 of the taps are left (oneDNN 3.12 on an EPYC 9005, fp32). What it unfolds is
    multiplied whole. Where the same taps lie in the padding without gaps, the coefficients know.
    """

    def size(name: str) -> FloatArray:
        return graph.dimension(name, rows, _K.CONV)

    share = np.ones(len(rows))
    gap = np.maximum(size("dilation"), 1.0)
    for axis in ("h", "w"):
        step = _step(size, axis)
        sizes = (
            size(f"in_{axis}"),
            np.maximum(size(f"out_{axis}"), 1.0),
            np.maximum(size(f"kernel_{axis}"), 1.0),
        )
        share *= _inside(*sizes, step, gap) / np.maximum(
            _inside(*sizes, step, np.ones(len(rows))), 1e-9
        )
    library = _is_large(size) | (graph.dtype[rows] != int(Dtype.FP32))
    generated = library & (size("groups") == 1) & (gap > 1) & ~is_unfolded(graph, _K.CONV, rows)
    skipped: FloatArray = np.where(generated, np.clip(share, 0.0, 1.0), 1.0)
    return skipped


def is_unfolded(
    graph: OperatorGraph, kind: OperatorKind, rows: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Which convolutions and gradients the library unfolds and multiplies, group by group, shape
    (k,).

    Those it has no generated code for: forward mostly windows with gaps, of weights' gradients
    windows of more than 14 columns. Dispatch of 2,200 shapes observed with torch 2.13 (oneDNN 3.12)
    on an EPYC 9005.

    Args:
        graph: Operators.
        kind: Kind of the rows.
        rows: Indices of convolutions, shape (k,).
    """
    unfolded: NDArray[np.bool_] = _all_unfolded(graph, kind)[rows]
    return unfolded


@lru_cache(maxsize=16)
def _all_unfolded(graph: OperatorGraph, kind: OperatorKind) -> NDArray[np.bool_]:
    """`is_unfolded` of all rows of a kind, shape (n,)."""
    found = np.zeros(len(graph), dtype=bool)
    rows = np.flatnonzero(graph.kind == int(kind))

    def size(name: str) -> FloatArray:
        return graph.dimension(name, rows, kind)

    rule = {
        _K.CONV: _unfolds_image,
        _K.CONV_BACKWARD_DATA: _unfolds_gradient,
        _K.CONV_BACKWARD_WEIGHT: _unfolds_for_weights,
    }.get(kind)
    if rule is None:
        return found
    single = graph.dtype[rows] == int(Dtype.FP32)
    groups = size("groups")
    depthwise = _is_depthwise(size)
    gapped = (size("dilation") > 1) & (np.maximum(size("kernel_h"), size("kernel_w")) > 1)
    parted = (groups > 1) & np.where(
        depthwise, _is_volume(size) | gapped, _parts(size, kind, single)
    )
    parted &= ~depthwise | (kind != _K.CONV)
    unfolded = rule(size, single) & (groups == 1) | parted
    found[rows] = unfolded & (_is_large(size) | ~single)
    return found


def _is_depthwise(size: _Sizes) -> NDArray[np.bool_]:
    """Which convolutions have one filter for each channel; several for one are groups, which the
    library unfolds.
    """
    groups = size("groups")
    alone: NDArray[np.bool_] = (
        (groups > 1) & (groups >= size("channels_in")) & (size("channels_out") <= groups)
    )
    return alone


def _is_volume(size: _Sizes) -> NDArray[np.bool_]:
    """Which convolutions go along a depth too; gradients of depthwise ones have no generated code,
    nor those with gaps.
    """
    volume: NDArray[np.bool_] = (size("in_d") > 1) | (size("kernel_d") > 1)
    return volume


def _parts(size: _Sizes, kind: OperatorKind, single: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which groups have no generated code: those that fill no vectors of four, of weights'
    gradients no blocks.

    These are of 16 channels, in fp32 of 8 too: 32 groups of 8 take 0.5 ms, of 4 on four times the
    pixels 4 ms (EPYC 9005).

    Gradients of images whose windows step go through small products whatever their groups, in fp32
    those of two channels or more.
    """
    if kind == _K.CONV_BACKWARD_WEIGHT:
        return ~np.where(single, _is_whole(size, _HALF_BLOCK), _is_whole(size, _BLOCK))
    if kind == _K.CONV:
        return ~_is_whole(size)
    least = np.minimum(size("channels_in"), size("channels_out")) / np.maximum(size("groups"), 1.0)
    stepped = (size("stride") > 1) & (~single | (least > 2))
    parted: NDArray[np.bool_] = ~_is_whole(size) & ~stepped
    return parted


def _is_whole(size: _Sizes, lanes: int = 4) -> NDArray[np.bool_]:
    """Whether generated code takes groups: of whole vectors of so many channels."""
    return _divides(
        lanes,
        [size(name) / np.maximum(size("groups"), 1.0) for name in ("channels_in", "channels_out")],
    )


def _window(size: _Sizes, axis: str) -> FloatArray:
    """Pixels from the first to the last tap of a window along one axis."""
    reach: FloatArray = (size(f"kernel_{axis}") - 1) * np.maximum(size("dilation"), 1.0) + 1
    return reach


def _step(size: _Sizes, axis: str) -> FloatArray:
    """Pixels from one window to the next along one axis.

    Graphs keep the larger step of the axes: one that would lay whole windows into the padding is
    the other axis's.
    """
    step, window = np.maximum(size("stride"), 1.0), _window(size, axis)
    padded = (size(f"out_{axis}") - 1) * step + window - size(f"in_{axis}")
    own: FloatArray = np.where(padded > 2 * (window - 1), 1.0, step)
    return own


def _padding(size: _Sizes, axis: str) -> FloatArray:
    """Pixels added before the first along one axis, where as many are added behind the last."""
    last = (size(f"out_{axis}") - 1) * _step(size, axis) + _window(size, axis)
    before: FloatArray = np.ceil(np.maximum(last - size(f"in_{axis}"), 0.0) / 2.0)
    return before


def _unfolds_image(size: _Sizes, single: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Generated code takes the pixels of a line that are in registers together, of up to five
    blocks of 16 channels.

    No padding may be wider, nor as wide as the window (oneDNN jit_avx512_common_conv_kernel.cpp,
    init_conf). Of a single image up to six blocks leave all registers to the pixels.
    """
    width, out, window, padding = (
        size("kernel_w"),
        size("out_w"),
        _window(size, "w"),
        _padding(size, "w"),
    )
    blocks = np.ceil(size("channels_out") / 16)
    together = np.select(
        [blocks % count == 0 for count in (5.0, 4.0, 3.0, 2.0)], [5.0, 4.0, 3.0, 2.0], 1.0
    )
    alone = (size("batch") <= 1) & (blocks <= _FEW_BLOCKS)
    narrow = np.where((out <= _WIDE_PIXELS) | alone, _WIDE_PIXELS, _REGISTERS // (together + 1))
    registers = np.where(single, np.where(width > 3, _WIDE_PIXELS, narrow), _HALF_PIXELS)
    most = np.minimum(registers, out)  # no more of a line are in registers than it has
    unfolded: NDArray[np.bool_] = (
        (width > 1) & (padding > 0) & ((padding > most) | (padding >= window))
    )
    return unfolded


def _unfolds_gradient(size: _Sizes, single: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Gradients of images whose windows reach over the edge by more pixels than registers; steps
    have code of their own.
    """
    width = size("in_w")
    over = _window(size, "w") - 1 - _padding(size, "w")
    narrow = (size("kernel_w") <= 3) & (width > _LONG_LINE)
    most = np.where(
        single, np.where(narrow, _LONG_LINE_PIXELS, np.minimum(_WIDE_PIXELS, width)), _HALF_PIXELS
    )
    wide = (over > most) | (single & (size("kernel_w") > _WIDEST_DATA_WINDOW))
    unfolded: NDArray[np.bool_] = wide & (size("stride") <= 1) & (size("kernel_w") > 1)
    return unfolded


def _unfolds_for_weights(size: _Sizes, single: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Gradients of wide windows, of windows larger than the image, and in 16 bits of few to any
    that fill no block.
    """
    width, inside = size("kernel_w"), size("channels_in")
    few = inside < _BLOCK
    wide = np.where(
        single | (inside >= _BLOCK), width > _WIDEST_WINDOW, width > _WIDEST_IMAGE_WINDOW
    )
    larger = (size("kernel_h") > 1) & (_window(size, "h") > size("in_h"))
    padded = single & (_padding(size, "w") > _WIDE_PIXELS)
    uneven = ~single & few & (size("channels_out") % _BLOCK > 0)
    unfolded: NDArray[np.bool_] = wide | larger | padded | uneven
    return unfolded


def _is_plain_gradient(
    graph: OperatorGraph, kind: OperatorKind, rows: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Which gradients of depthwise images have no generated code, but small products: those of
    steps in 16 bits.
    """
    plain: NDArray[np.bool_] = (graph.dtype[rows] != int(Dtype.FP32)) & (
        graph.dimension("stride", rows, kind) > 1
    )
    return plain


def _calls_of_line(size: _Sizes) -> FloatArray:
    """Products that a line of an image's gradient takes where windows step: 70 ns each (EPYC 9005),
    however few pixels.

    Pixels at the same place between two steps are taken together. Taps that all of them see are one
    product; each other tap is one of its own, and the pixels it leaves out take another (oneDNN
    jit_brgemm_conv_bwd_strided.cpp, ker_base): of windows of three a line of 16 pixels takes 270
    ns, one of 13 takes 150.
    """
    width, out, window = size("in_w"), size("out_w"), size("kernel_w")
    step, gap, padding = _step(size, "w"), np.maximum(size("dilation"), 1.0), _padding(size, "w")
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


def _divides(lane: float, counts: Sequence[FloatArray]) -> NDArray[np.bool_]:
    divided: NDArray[np.bool_] = np.logical_and.reduce([count % lane == 0 for count in counts])
    return divided


def conv_counts(
    graph: OperatorGraph, kind: OperatorKind, rows: NDArray[np.int64]
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Work with channels filled to 16, output lines times taps, and images times groups; of one
    group, work as a product.

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
        graph: Operators.
        kind: Kind of the rows.
        rows: Indices of convolutions, shape (k,).
    """

    def size(name: str) -> FloatArray:
        return graph.dimension(name, rows, kind)

    volume = size("kernel_d") * size("kernel_h") * size("kernel_w")
    if kind != _K.CONV_TRANSPOSE:
        volume = volume * visible_taps(graph, kind, rows)
    transposed, images, pairs = (
        kind == _K.CONV_TRANSPOSE,
        size("batch"),
        size("channels_in") * size("channels_out"),
    )
    end = "in" if transposed else "out"
    pixels = size(f"{end}_d") * size(f"{end}_h") * size(f"{end}_w")
    groups = np.maximum(size("groups"), 1.0)
    per_group = [size(name) / groups for name in ("channels_in", "channels_out")]
    lanes = np.select(
        [_divides(lane, per_group) | (groups == 1) for lane in (16.0, 8.0, 4.0)],
        [16.0, 8.0, 4.0],
        16.0,
    )
    weights_fp32 = (kind == _K.CONV_BACKWARD_WEIGHT) & (graph.dtype[rows] == int(Dtype.FP32))
    lanes = np.where(
        weights_fp32 & (groups == 1) & (size("channels_in") < 16) & (size("channels_in") > 3),
        8.0,
        lanes,
    )
    inside, outside = (np.ceil(channels / lanes) * lanes for channels in per_group)
    unfolded = is_unfolded(graph, kind, rows)
    few = np.where(
        weights_fp32,
        3.0,
        {_K.CONV: _BLOCK - 1, _K.CONV_BACKWARD_DATA: 0}.get(kind, _IMAGE_CHANNELS),
    )
    as_is = (size("channels_in") <= few) | unfolded
    inside = np.where(as_is & ((groups == 1) | unfolded), size("channels_in") / groups, inside)
    if transposed:  # in fp32 each channel's own filter multiplies single channels
        alone = (
            (groups > 1) & (groups >= size("channels_in")) & (graph.dtype[rows] == int(Dtype.FP32))
        )
        inside = np.where(alone, 1.0, inside)
    filled = groups * images * pixels * volume * inside * outside * (16.0 / lanes)
    lines = images * size("out_d") * size("out_h") * np.ceil(size("channels_out") / 16) * volume
    if kind == _K.CONV_BACKWARD_DATA:
        parted = (
            (groups > 1) & (groups >= size("channels_in")) & _is_plain_gradient(graph, kind, rows)
        )
        lines = np.where(
            parted, images * groups * size("in_d") * size("in_h") * _calls_of_line(size), lines
        )
    product = (
        images
        * 96.0
        * np.ceil(pixels / 24)
        * np.ceil(size("channels_out") / 4)
        * volume
        * size("channels_in")
    )
    if transposed:
        native = ~_is_large(size) & (graph.dtype[rows] == int(Dtype.FP32))
        whole = (size("channels_in") % 16 == 0) & (size("channels_out") % 16 == 0)
        columns = images * pixels * volume * size("channels_out")
        laid = pairs / groups * volume * np.where(native, pixels > 1, whole)
        return filled, np.where(native, columns, lines), laid
    copied = (
        ~_is_large(size)
        & (graph.dtype[rows] == int(Dtype.FP32))
        & (groups == 1)
        & ~unfolded
        & (volume > 1)
    )
    if kind == _K.CONV_BACKWARD_WEIGHT:
        copied &= _is_volume(size)
    copies = images * size("out_d") * size("out_h") * size("channels_in") * volume
    lines = np.where(copied, copies, lines)
    return filled, lines, np.where((groups > 1) | unfolded, groups * images, product)


def conv_names(
    graph: OperatorGraph, kind: OperatorKind, rows: NDArray[np.int64], threads: int
) -> NDArray[np.str_]:
    """Convolutions by shape and by library: in fp32 the framework multiplies small ones itself
    (ATen Convolution.cpp).
    """

    def size(name: str) -> FloatArray:
        return graph.dimension(name, rows, kind)

    height, width = size("kernel_h"), size("kernel_w")
    pointwise = size("kernel_d") * height * width == 1
    depthwise = _is_depthwise(size)
    library = _is_special(size, threads) & _is_large(size) | (graph.dtype[rows] != int(Dtype.FP32))
    if kind == _K.CONV_TRANSPOSE:
        return np.where(library, "conv_transpose", "conv_transpose_native")
    unfolded = is_unfolded(graph, kind, rows)
    if kind != _K.CONV:
        data = kind == _K.CONV_BACKWARD_DATA
        gradient = "conv_grad_input" if data else "conv_grad_weight"
        # the library generates code for narrow windows, and in 16 bits for steps of one; others go
        # through its plain kernel
        plain = _is_plain_gradient(graph, kind, rows) if data else width > 3
        own = np.where(plain, f"{gradient}_depthwise_plain", f"{gradient}_depthwise")
        whole = np.where(unfolded, f"{gradient}_unfolded", gradient)
        native = np.where(_is_volume(size), f"{gradient}_volume_native", f"{gradient}_native")
        return np.where(depthwise & ~unfolded, own, np.where(library, whole, native))
    flat = (size("in_h") == 1) & (size("in_w") > 1) & (height == 1)
    base = np.where(pointwise, "conv_1x1", np.where(flat, "conv_1d", "conv"))
    generated = np.where(unfolded, "conv_unfolded", base)
    own = np.where(
        pointwise,
        "conv_1x1_native",
        np.where(_is_volume(size), "conv_volume_native", "conv_native"),
    )
    more = np.where(library, generated, own)
    grouped = np.where(_is_whole(size), "conv_grouped", "conv_grouped_plain")
    padding = (
        (size("out_w") - 1) * _step(size, "w") + (width - 1) * size("dilation") + 1 - size("in_w")
    )
    narrow = np.where(flat, "conv_depthwise_1d", "conv_depthwise")
    narrow = np.where(_is_volume(size), "conv_depthwise_volume", narrow)
    alone = np.where(padding > 2 * _WIDEST_PADDING, "conv_depthwise_plain", narrow)
    together = (size("groups") > 1) & library  # the framework takes groups one by one
    return np.where(depthwise & together, alone, np.where(together, grouped, more))
