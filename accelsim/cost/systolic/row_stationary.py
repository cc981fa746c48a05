"""Row-stationary convolution on an array like Eyeriss': spatial mapping, passes, latency, traffic
and power.

A set of kernel-height x output-rows elements convolves one channel; sets wider than the array fold
into its strips. Sets left over take further channels (r, one above the other, for partial sums pass
on within a column) or filters (t). A pass runs p x t filters on q x r channels of `strip` output
rows. The mapping is searched: least time, then least main-memory traffic, then the tallest strip,
then least buffer traffic. On AlexNet this finds the mapping of Chen et al. (Eyeriss, JSSC 52(1),
2017): its buffer traffic and active elements are those of table V. A pass takes as long as its
multiply-adds with one cycle more per partial sum passed on, or as the busiest bus of the on-chip
network. Input maps and results do not overlap processing, for the buffer holds one of each; filters
do. No time parameter is fitted.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from accelsim.cost.class_parameters import class_parameters
from accelsim.errors import DoesNotFitError, InvalidValueError
from accelsim.frozen import frozen
from accelsim.workloads.graph import FloatArray


@frozen
class RowStationaryChip:
    """Parameters of one chip; values and sources in ``calibration/class/eyeriss.yaml``.

    Attributes:
        input_spad_words: Input scratchpad of one element.
        weight_spad_words: Filter scratchpad.
        psum_spad_words: Partial-sum scratchpad.
        map_buffer_bytes: Global buffer for input maps and partial sums.
        word_bytes: Width of a word.
        input_words_per_cycle: Input bus of the on-chip network.
        weight_words_per_cycle: Filter bus.
        psum_words_per_cycle: Partial-sum bus, each way.
        link_words_per_cycle: Link to main memory that mappings are chosen for.
        run_length_ratio: Bits of one non-zero value after run-length coding over those before.
        activation_zero_fraction: Zeros of maps whose own share is unknown.
        static_w: Power that does not depend on the work.
        nonzero_mac_j: One multiply-add on a non-zero input with its scratchpads.
        buffer_word_j: One word of the global buffer.
    """

    input_spad_words: float
    weight_spad_words: float
    psum_spad_words: float
    map_buffer_bytes: float
    word_bytes: float
    input_words_per_cycle: float
    weight_words_per_cycle: float
    psum_words_per_cycle: float
    link_words_per_cycle: float
    run_length_ratio: float
    activation_zero_fraction: float
    static_w: float
    nonzero_mac_j: float
    buffer_word_j: float


def row_stationary_chip() -> RowStationaryChip:
    """The shipped parameters.

    Raises:
        ProfileError: If their file is missing or malformed.
    """
    chip: RowStationaryChip = class_parameters("eyeriss", RowStationaryChip)
    return chip


@frozen
class ConvLayer:
    """One convolution; a fully connected layer has a window of its whole input.

    Attributes:
        batch: Images processed together.
        channels_in: Input channels of all groups.
        channels_out: Filters of all groups.
        groups: Groups.
        in_height: Input rows without padding.
        in_width: Input columns without padding.
        kernel_height: Window rows.
        kernel_width: Window columns.
        out_height: Output rows.
        out_width: Output columns.
        stride: Of both directions.
        input_zero_fraction: Zeros of the input map; None where unknown.
        output_zero_fraction: Of the output map.
        name: For messages.
    """

    batch: int
    channels_in: int
    channels_out: int
    groups: int
    in_height: int
    in_width: int
    kernel_height: int
    kernel_width: int
    out_height: int
    out_width: int
    stride: int = 1
    input_zero_fraction: float | None = None
    output_zero_fraction: float | None = None
    name: str = "layer"

    @property
    def mac_count(self) -> float:
        """Multiply-adds of the batch."""
        window = self.kernel_height * self.kernel_width * self.channels_in / self.groups
        return float(self.batch * self.channels_out * self.out_height * self.out_width * window)


@frozen
class RowStationaryRun:
    """One layer on one chip.

    Attributes:
        channel_sets: r: sets above one another that hold further channels.
        active_elements: Elements with work.
        processing_s: Time the array works.
        latency_s: With input maps loaded and results stored.
        buffer_bytes: To and from the global buffer.
        dram_bytes: To and from main memory.
        static_j: Energy of clock and leakage.
        array_j: Of multiply-adds with scratchpads.
        buffer_j: Of the global buffer.
    """

    channel_sets: int
    active_elements: int
    processing_s: float
    latency_s: float
    buffer_bytes: float
    dram_bytes: float
    static_j: float
    array_j: float
    buffer_j: float

    @property
    def energy_j(self) -> float:
        """Chip energy, main memory not included.

        Chen et al., ISCA 2016 and JSSC 2017 (Eyeriss).
        """
        return self.static_j + self.array_j + self.buffer_j

    @property
    def power_w(self) -> float:
        """Mean chip power."""
        return self.energy_j / self.latency_s


class _Mappings(NamedTuple):
    """Candidate mappings, shape (c,) each; words and cycles of the whole layer.

    Attributes:
        strip: Output rows of a pass (e).
        sets: Sets of elements at work.
        r: Channel sets.
        cycles: Of all passes.
        input_words: Of maps from main memory.
        weight_words: From main memory.
        buffer_words: To and from the buffer.
    """

    strip: FloatArray
    sets: FloatArray
    r: FloatArray
    cycles: FloatArray
    input_words: FloatArray
    weight_words: FloatArray
    buffer_words: FloatArray


@lru_cache(maxsize=4096)
def row_stationary_run(
    layer: ConvLayer,
    chip: RowStationaryChip,
    rows: int,
    columns: int,
    clock_hz: float,
    memory_bytes_per_s: float,
) -> RowStationaryRun:
    """Map one convolution and cost it.

    Chen et al., ISCA 2016 and JSSC 2017 (Eyeriss).

    Args:
        layer: The convolution.
        chip: Scratchpads, buffer, buses and energies.
        rows: Array height.
        columns: Array width.
        clock_hz: Core clock.
        memory_bytes_per_s: Bandwidth of the link to main memory.

    Raises:
        InvalidValueError: If a size is below 1, or the array is empty.
        DoesNotFitError: If the buffer cannot hold one strip of the layer.
    """
    if min(rows, columns) < 1 or min(clock_hz, memory_bytes_per_s) <= 0:
        raise InvalidValueError(
            "rows, columns, clock, bandwidth", (rows, columns, clock_hz), "above 0"
        )
    sizes = (layer.batch, layer.channels_in, layer.channels_out, layer.groups)
    if min(*sizes, layer.out_height, layer.out_width) < 1:
        raise InvalidValueError(f"layer {layer.name!r}", layer, "sizes of at least 1")
    found = _mappings(layer, chip, rows, columns)
    # The mapping is compiled for the chip's own link, so that a faster one never changes it for the
    # worse.
    linked = np.maximum(found.cycles, found.weight_words / chip.link_words_per_cycle)
    traffic = found.input_words + found.weight_words
    best = int(np.lexsort((found.buffer_words, -found.strip, traffic, linked))[0])
    strip, sets, channel_sets, cycles, inputs, weights, buffer_words = (
        float(column[best]) for column in found
    )
    zeros_in, zeros_out = (
        chip.activation_zero_fraction if fraction is None else fraction
        for fraction in (layer.input_zero_fraction, layer.output_zero_fraction)
    )
    results = layer.batch * layer.channels_out * layer.out_height * layer.out_width
    maps = inputs * _coded(zeros_in, chip) + results * _coded(zeros_out, chip)
    word_s = chip.word_bytes / memory_bytes_per_s
    processing = max(cycles / clock_hz, weights * word_s)
    latency = processing + maps * word_s
    return RowStationaryRun(
        channel_sets=int(channel_sets),
        active_elements=int(min(layer.kernel_height, rows) * strip * sets),
        processing_s=processing,
        latency_s=latency,
        buffer_bytes=buffer_words * chip.word_bytes,
        dram_bytes=(maps + weights) * chip.word_bytes,
        static_j=chip.static_w * latency,
        array_j=chip.nonzero_mac_j * layer.mac_count * (1.0 - zeros_in),
        buffer_j=chip.buffer_word_j * buffer_words,
    )


def _coded(zero_fraction: float, chip: RowStationaryChip) -> float:
    """Bytes of a run-length coded map over those of the map; maps that would grow are not coded."""
    return min(1.0, (1.0 - zero_fraction) * chip.run_length_ratio)


def _mappings(layer: ConvLayer, chip: RowStationaryChip, rows: int, columns: int) -> _Mappings:
    """Words and cycles of all mappings that fit scratchpads and buffer.

    Mapping after Chen et al. (Eyeriss, JSSC 52(1), 2017).
    """
    height = min(layer.kernel_height, rows)
    channels = layer.channels_in // layer.groups or 1
    filters = layer.channels_out // layer.groups or 1
    spad = int(chip.input_spad_words) - 1
    width = min(layer.kernel_width, spad)
    q = float(max(min(spad // width, channels), 1))
    axes = _axes(layer, chip, rows // height, columns, width * q)
    grid = (axis.ravel() for axis in np.meshgrid(*axes, indexing="ij"))
    strip, p, r, n, t = _spread((*grid,), rows // height, columns, filters, channels / q)
    held = np.minimum(q * r, channels)
    in_rows = (strip - 1) * layer.stride + layer.kernel_height
    in_words = held * in_rows * ((layer.out_width - 1) * layer.stride + layer.kernel_width)
    psums = p * t * strip * layer.out_width
    room = chip.map_buffer_bytes / chip.word_bytes / n - in_words
    # Filters whose partial sums the buffer holds.
    m = np.minimum(np.floor(room / psums), np.ceil(filters / (p * t))) * p * t
    fits = m >= p * t
    if not fits.any():
        needed = float((n * (in_words + psums)).min()) * chip.word_bytes
        remedy = "Split the layer's width, or choose a chip with a larger buffer."
        label = f"row-stationary array, layer {layer.name!r},"
        raise DoesNotFitError(label, "buffer bytes", needed, chip.map_buffer_bytes, remedy)
    folds = np.ceil(layer.kernel_height / height) * np.ceil(layer.kernel_width / width)
    channel_passes = np.ceil(channels / (q * r)) * folds
    strips = np.ceil(layer.out_height / strip)
    passes = layer.groups * np.ceil(filters / (p * t)) * channel_passes * strips * layer.batch
    loads = np.ceil(layer.batch / n)
    pass_cycles = (
        layer.out_width * p * (width * q + 1.0),
        psums / chip.psum_words_per_cycle,
        in_words / chip.input_words_per_cycle,
        p * t * held * height * width * loads / layer.batch / chip.weight_words_per_cycle,
    )
    pixels = layer.batch * layer.channels_out * layer.out_height * layer.out_width
    maps = layer.batch * layer.channels_in * layer.in_height * layer.in_width
    window = layer.channels_out * channels * layer.kernel_height * layer.kernel_width
    with np.errstate(divide="ignore"):
        input_words = maps * np.ceil(filters / m)
    found = (
        strip,
        r * t,
        r,
        passes * np.maximum.reduce(pass_cycles),
        input_words,
        window * loads * strips,
        2.0 * pixels * channel_passes + passes * in_words,
    )
    return _Mappings(*(column[fits] for column in found))


def _axes(
    layer: ConvLayer, chip: RowStationaryChip, strips: int, columns: int, taps: float
) -> tuple[FloatArray, ...]:
    """Candidate strips (each number of strips once), filters per element, channel sets and images
    that share a load of filters (each number of loads once).

    Mapping after Chen et al. (Eyeriss, JSSC 52(1), 2017).
    """
    tallest = min(layer.out_height, strips * columns)
    fewest = int(np.ceil(layer.out_height / tallest))
    strip = np.unique(np.ceil(layer.out_height / np.arange(fewest, layer.out_height + 1.0)))
    most = max(min(chip.psum_spad_words, chip.weight_spad_words // taps), 1.0)
    images = np.unique(np.ceil(layer.batch / np.arange(1.0, layer.batch + 1)))
    return (
        strip,
        np.exp2(np.arange(int(np.log2(most)) + 1.0)),
        np.arange(1.0, strips + 1),  # partial sums pass on within a column only
        images,
    )


def _spread(
    grid: tuple[FloatArray, ...],
    strips: int,
    columns: int,
    filters: int,
    channel_sets: float,
) -> tuple[FloatArray, ...]:
    """Mappings whose channel sets find room on the array, and the filter sets beside them.

    Mapping after Chen et al. (Eyeriss, JSSC 52(1), 2017).
    """
    strip, p, r, n = grid
    narrow = strips * (columns // strip)
    sets = np.where(strip <= columns, narrow, strips // np.ceil(strip / columns))
    keep = (sets >= r) & (r - 1 < channel_sets)
    strip, p, r, n, sets = (axis[keep] for axis in (strip, p, r, n, sets))
    return strip, p, r, n, np.minimum(sets // r, np.maximum(np.ceil(filters / p), 1.0))
