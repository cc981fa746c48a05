"""Whole networks on a DPU: one core alone, and all cores with the host's threads, as published throughput tables have it.

A layer takes ceil(rows/PP) columns ceil(C_in/ICP) ceil(C_out/OCP) x window cycles (AMD PG338: PP pixels of one column at
once), its first layer fills the input lanes with the window's columns. Weights and maps pass through the board's memory
beside the arithmetic. The host scales the picture and finishes what the overlay cannot: choosing boxes, classifying pixels.
With n cores the memory carries n images at once; the host works in as many threads. What these mechanisms cost depends on
the compiler's release: `DpuRates` is fitted per release (`accelsim.calibration.dpu_fit`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from accelsim.workloads.graph import FloatArray, OperatorGraph
from accelsim.workloads.operator import DIMENSIONS, OperatorKind

__all__ = [
    "DpuBoards", "DpuNetworks", "DpuRates", "HostTask", "LayerColumns", "join_networks", "layer_columns",
    "narrowed", "network_flop", "thread_times_s",
]  # fmt: skip

_K = OperatorKind
_CONV, _DEPTHWISE, _POOL, _SUM, _MOVE, _GATE = range(6)
#: FLOP per element from which an activation is no output-stage function but a pass of its own: hard swish, SiLU.
_PASS_FLOP = 4
#: Input channels up to which the first layer's window columns fill the input lanes (PG338, channel augmentation).
_AUGMENTED_CHANNELS = 4


class HostTask(IntEnum):
    """What the host does with a network's outputs."""

    NONE = 0
    PIXELS = 1
    SOFTMAX_BOXES = 2
    SIGMOID_BOXES = 3
    IMAGE = 4
    YOLO = 5
    WIDE_POOL = 6


@dataclass(frozen=True, slots=True)
class DpuRates:
    """What a release of the compiler and its overlay reach; all above 0.

    Attributes:
        cycle_ratio: Cycles of a convolution over those of its tiles.
        weight_fraction: Share of the board's memory bandwidth at which weights are fetched by one core.
        map_fraction: Share at which feature maps pass.
        layer_s: Start of a layer, s.
        image_s: Host work per image, s.
        pixel_s: Host work per input pixel, s.
        depthwise_ratio: Cycles of a depthwise layer over those of its lanes.
        other_ratio: Cycles of pooling, sums and moves over those of their lanes.
        gate_ratio: Cycles of activations that take a pass of their own, and of gates.
        host_threads: Images the host works on at once.
        shared_weight_fraction: Share of the memory bandwidth at which all cores together fetch weights.
        shared_map_fraction: Share at which maps of all cores pass.
        wide_memory_ratio: Shared bandwidth of boards whose memory module has x8 chips over those with x16 chips.
        sharpness: Exponent that joins the cores' time with the memory's; large is a sharp maximum.
        pixels_s: Host work per pixel and class of a dense prediction, and per byte the host pools, s.
        softmax_box_s: Host work per output byte of a detector with softmax scores, s.
        sigmoid_box_s: The same with sigmoid scores.
        image_byte_s: Host work per output byte of a picture, s.
        yolo_s: Host work per output byte of a YOLO head, s.
    """

    cycle_ratio: float = 1.1
    weight_fraction: float = 0.35
    map_fraction: float = 0.35
    layer_s: float = 6e-6
    image_s: float = 3e-4
    pixel_s: float = 3e-9
    depthwise_ratio: float = 1.5
    other_ratio: float = 1.0
    gate_ratio: float = 4.0
    host_threads: float = 3.0
    shared_weight_fraction: float = 0.6
    shared_map_fraction: float = 0.6
    wide_memory_ratio: float = 1.1
    sharpness: float = 2.0
    pixels_s: float = 5e-9
    softmax_box_s: float = 8e-8
    sigmoid_box_s: float = 2.5e-8
    image_byte_s: float = 1e-10
    yolo_s: float = 1e-9

    def vector(self) -> FloatArray:
        """Natural logarithms in field order, shape (19,)."""
        values: FloatArray = np.log(np.array([getattr(self, f.name) for f in fields(self)]))
        return values

    @staticmethod
    def of_vector(values: FloatArray) -> DpuRates:
        """The rates of a vector of logarithms."""
        return DpuRates(*(float(v) for v in np.exp(values)))


@dataclass(frozen=True, slots=True, eq=False)
class LayerColumns:
    """Layers of one network for one image; columns of shape (n,), n >= 1.

    Attributes:
        kind: Convolution, depthwise, pool, sum, move or gate.
        rows: Output rows (elements for sums, moves and gates).
        columns: Output columns.
        channels_in: Input channels.
        channels_out: Output channels.
        groups: Channel groups.
        window: Window taps.
        window_columns: Its columns.
        map_bytes: Bytes read and written but for weights.
        output_bytes: Bytes of outputs nothing reads.
        input_pixels: Pixels of the image.
    """

    kind: NDArray[np.int8]
    rows: FloatArray
    columns: FloatArray
    channels_in: FloatArray
    channels_out: FloatArray
    groups: FloatArray
    window: FloatArray
    window_columns: FloatArray
    map_bytes: FloatArray
    output_bytes: FloatArray
    input_pixels: float


def layer_columns(graph: OperatorGraph) -> LayerColumns:
    """The layers of a graph of one image; rows that run inside a convolution are left out."""
    kinds = _kinds(graph)
    keep = np.flatnonzero(kinds >= 0)
    table = np.array([_sizes(graph, int(i), int(kinds[i])) for i in keep], dtype=np.float64).reshape(-1, 7)
    read = np.zeros(len(graph), dtype=np.bool_)
    read[graph.dependency] = True
    moved = graph.read_bytes + graph.write_bytes
    first = graph.dims[keep[0]] if len(keep) else np.zeros(15)
    high, wide, inputs, outputs, groups, window, window_columns = (column.copy() for column in table.T)
    return LayerColumns(
        kind=kinds[keep],
        rows=high,
        columns=wide,
        channels_in=inputs,
        channels_out=outputs,
        groups=groups,
        window=window,
        window_columns=window_columns,
        map_bytes=moved[keep],
        output_bytes=np.where(read, 0.0, graph.write_bytes)[keep],
        input_pixels=float(first[4] * first[5] * first[6]),
    )


def _kinds(graph: OperatorGraph) -> NDArray[np.int8]:
    kind, dims = graph.kind, graph.dims
    codes = np.full(len(graph), -1, dtype=np.int8)
    conv = np.isin(kind, [int(_K.CONV), int(_K.CONV_TRANSPOSE)])
    codes[conv | (kind == int(_K.GEMM))] = _CONV
    codes[conv & (dims[:, 3] > 1)] = _DEPTHWISE
    codes[kind == int(_K.POOLING)] = _POOL
    element = kind == int(_K.ELEMENTWISE)
    gates = np.array([name in {"mul", "scale"} for name in graph.name], dtype=np.bool_)
    codes[element & (dims[:, 1] > 1)] = _SUM
    codes[element & (((dims[:, 1] > 1) & gates) | (dims[:, 2] >= _PASS_FLOP))] = _GATE
    joined = np.array([name == "concat" for name in graph.name], dtype=np.bool_)  # written in place
    codes[(kind == int(_K.COPY)) & ~joined] = _MOVE
    return codes


def _sizes(graph: OperatorGraph, row: int, code: int) -> tuple[float, ...]:
    """Rows, columns, channels in and out, groups, window and its columns."""
    d = graph.dims[row].tolist()
    kind = OperatorKind(int(graph.kind[row]))
    if kind is _K.GEMM:
        return (1, d[1], d[3], d[2], 1, 1, 1)
    if code in {_CONV, _DEPTHWISE}:
        named = dict(zip(DIMENSIONS[kind], d, strict=False))
        side = "in" if kind is _K.CONV_TRANSPOSE else "out"
        high, wide = named[f"{side}_d"] * named[f"{side}_h"], named[f"{side}_w"]
        window = named["kernel_d"] * named["kernel_h"] * named["kernel_w"]
        return (high, wide, d[1], d[2], d[3], window, named["kernel_w"])
    if code == _POOL:
        side_pixels = d[3] ** 0.5
        return (side_pixels, side_pixels, d[1], d[1], 1, d[4], 1)
    return (d[0], 1, 1, 1, 1, 1, 1)


def network_flop(layers: LayerColumns) -> float:
    """FLOP of the convolutions and fully connected layers."""
    each = layers.rows * layers.columns * layers.channels_in * layers.channels_out * layers.window / layers.groups
    return float(2.0 * each[layers.kind <= _DEPTHWISE].sum())


def narrowed(layers: LayerColumns, flop: float) -> LayerColumns:
    """The network with channels scaled down evenly until it has `flop` FLOP: what pruning does on average.

    In residual bottlenecks only the inner channels shrink, since all blocks of a stage are added to one map.

    Args:
        layers: The whole network.
        flop: FLOP of the pruned one; at most the whole network's.
    """
    inner = _inner_channels(layers)
    if network_flop(_narrowed_by(layers, _NARROWEST, *inner)) > flop:
        inner = _all_channels(layers)
    low, high = _NARROWEST, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if network_flop(_narrowed_by(layers, middle, *inner)) > flop else (middle, high)
    return _narrowed_by(layers, low, *inner)


_NARROWEST = 0.02
#: Share of convolutions with a window below which a network with sums is one of bottlenecks (a third of a ResNet-50's).
_BOTTLENECK_WINDOWS = 0.4
_Mask = NDArray[np.bool_]


def _inner_channels(layers: LayerColumns) -> tuple[_Mask, _Mask]:
    """Whose inputs and whose outputs shrink: those of windows, and of 1x1 convolutions before one, in written order."""
    matrix = np.flatnonzero(layers.kind <= _DEPTHWISE)
    wide = layers.window[matrix] > 1
    outputs = wide | np.append(wide[1:], [False])
    outputs[0] = False
    inputs = np.append([False], outputs[:-1])
    masks = np.zeros((2, len(layers.kind)), dtype=np.bool_)
    masks[0, matrix], masks[1, matrix] = inputs, outputs
    is_bottleneck = (layers.kind == _SUM).any() and wide.mean() < _BOTTLENECK_WINDOWS
    return (masks[0], masks[1]) if is_bottleneck else _all_channels(layers)


def _all_channels(layers: LayerColumns) -> tuple[_Mask, _Mask]:
    """All channels but those of the image."""
    inputs = np.arange(len(layers.kind)) > 0
    return inputs, np.ones(len(layers.kind), dtype=np.bool_)


#: Channels a pruner keeps or removes together; not published, chosen among 1, 8 and 16 by the error on pruned networks.
_CHANNEL_STEP = 8.0


def _rounded(channels: FloatArray) -> FloatArray:
    """Whole steps of channels; single channels below one step."""
    rounded: FloatArray = np.maximum(np.round(channels / _CHANNEL_STEP), 1.0) * _CHANNEL_STEP
    return np.where(channels < _CHANNEL_STEP, np.maximum(np.round(channels), 1.0), rounded)


def _narrowed_by(layers: LayerColumns, share: float, inputs: _Mask, outputs: _Mask) -> LayerColumns:
    shaped = layers.kind <= _POOL
    c_in = np.where(inputs & shaped, _rounded(layers.channels_in * share), layers.channels_in)
    c_out = np.where(outputs & shaped, _rounded(layers.channels_out * share), layers.channels_out)
    kept = (c_in + c_out) / (layers.channels_in + layers.channels_out)
    kept = np.where(shaped, kept, np.where(outputs, share, 1.0))
    return replace(
        layers,
        rows=np.where(shaped, layers.rows, layers.rows * kept),
        channels_in=c_in,
        channels_out=c_out,
        groups=np.where(layers.groups > 1, c_in, 1.0),
        map_bytes=layers.map_bytes * kept,
    )


@dataclass(frozen=True, slots=True, eq=False)
class DpuBoards:
    """Boards that run networks, one per network run; columns of shape (k,).

    Attributes:
        parallelism: (PP, ICP, OCP), shape (k, 3).
        clock_hz: Core clock.
        core_count: Cores.
        memory_bytes_per_s: Theoretical bandwidth of the board's memory.
        host_ratio: Time of the host's cores over those of a 1.2 GHz Cortex-A53.
        has_wide_memory: Whether the memory module has x8 chips, whose four bank groups hide more turn-around.
    """

    parallelism: FloatArray
    clock_hz: FloatArray
    core_count: FloatArray
    memory_bytes_per_s: FloatArray
    host_ratio: FloatArray
    has_wide_memory: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class DpuNetworks:
    """Layers of k network runs end to end, ready to be timed with any rates.

    Attributes:
        start: First layer of each run, shape (k,).
        convolution_s: Cycles of convolutions over the clock, shape (n,), as the next three.
        depthwise_s: Of depthwise layers.
        other_s: Of pooling, sums and moves.
        gate_s: Of gates.
        weight_s: Weights over the board's theoretical bandwidth.
        map_s: Maps over the board's theoretical bandwidth.
        cores: Cores of each run, shape (k,).
        host_ratio: Of each run.
        has_wide_memory: Of each run.
        input_pixels: Of each run.
        task: Host task of each run.
        output: What the task is proportional to: pixels x classes, or output bytes.
    """

    start: NDArray[np.int64]
    convolution_s: FloatArray
    depthwise_s: FloatArray
    other_s: FloatArray
    gate_s: FloatArray
    weight_s: FloatArray
    map_s: FloatArray
    cores: FloatArray
    host_ratio: FloatArray
    has_wide_memory: NDArray[np.bool_]
    input_pixels: FloatArray
    task: NDArray[np.int64]
    output: FloatArray


def join_networks(networks: Sequence[LayerColumns], tasks: Sequence[HostTask], boards: DpuBoards) -> DpuNetworks:
    """Count cycles and traffic of each network on its board.

    Args:
        networks: Layers, k networks.
        tasks: Host task of each.
        boards: Board of each.
    """
    tasks = [_task(layers, task) for layers, task in zip(networks, tasks, strict=True)]
    counts = np.array([len(layers.kind) for layers in networks])
    start = np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int64)
    run = np.repeat(np.arange(len(networks)), counts)
    c = {name: np.concatenate([getattr(layers, name) for layers in networks]) for name in _COLUMNS}
    first = np.zeros(len(run), dtype=np.bool_)
    first[start] = True
    cycles = _cycles(c, boards.parallelism[run], first)
    clock, memory = boards.clock_hz[run], boards.memory_bytes_per_s[run]
    weights = np.where(c["kind"] <= _DEPTHWISE, c["channels_in"] / c["groups"] * c["channels_out"] * c["window"], 0.0)
    kind, seconds = c["kind"], cycles / clock
    return DpuNetworks(
        start=start,
        convolution_s=np.where(kind == _CONV, seconds, 0.0),
        depthwise_s=np.where(kind == _DEPTHWISE, seconds, 0.0),
        other_s=np.where((kind > _DEPTHWISE) & (kind < _GATE), seconds, 0.0),
        gate_s=np.where(kind == _GATE, seconds, 0.0),
        weight_s=weights / memory,
        map_s=c["map_bytes"] / memory,
        cores=boards.core_count,
        host_ratio=boards.host_ratio,
        has_wide_memory=boards.has_wide_memory,
        input_pixels=np.array([layers.input_pixels for layers in networks]),
        task=np.array([int(task) for task in tasks], dtype=np.int64),
        output=np.array([_output(layers, task) for layers, task in zip(networks, tasks, strict=True)]),
    )


_COLUMNS = (
    "kind", "rows", "columns", "channels_in", "channels_out", "groups", "window", "window_columns", "map_bytes",
)  # fmt: skip


def _cycles(c: dict[str, FloatArray], parallelism: FloatArray, first: NDArray[np.bool_]) -> FloatArray:
    pixels_at_once, inputs_at_once, outputs_at_once = parallelism.T
    positions = np.ceil(c["rows"] / pixels_at_once) * c["columns"]
    inputs = np.ceil(c["channels_in"] / inputs_at_once)
    outputs = np.ceil(c["channels_out"] / outputs_at_once)
    filled = np.ceil(c["channels_in"] * c["window_columns"] / inputs_at_once) / c["window_columns"]
    inputs = np.where(first & (c["channels_in"] <= _AUGMENTED_CHANNELS), filled, inputs)
    whole = positions * inputs * outputs * c["window"]
    # A depthwise layer with several outputs per input runs once for each.
    each = positions * np.ceil(c["channels_in"] / inputs_at_once) * c["window"]
    each = each * np.maximum(c["channels_out"] / c["channels_in"], 1.0)
    elements = c["rows"] / (pixels_at_once * inputs_at_once)
    cycles: FloatArray = np.select([c["kind"] == _CONV, c["kind"] <= _POOL], [whole, each], elements)
    return cycles


#: Largest window of average pooling on the overlay (PG338: 8 x 8); wider ones run on the host.
_LARGEST_POOL = 64


def _task(layers: LayerColumns, task: HostTask) -> HostTask:
    """A classifier whose last pooling is too wide for the overlay leaves that to the host."""
    pools = np.flatnonzero(layers.kind == _POOL)
    wide = pools.size > 0 and layers.window[pools[-1]] > _LARGEST_POOL and layers.rows[pools[-1]] == 1
    return HostTask.WIDE_POOL if task is HostTask.NONE and wide else task


def _output(layers: LayerColumns, task: HostTask) -> float:
    if task is HostTask.WIDE_POOL:
        return float(layers.map_bytes[np.flatnonzero(layers.kind == _POOL)[-1]])
    if task is not HostTask.PIXELS:
        return float(layers.output_bytes.sum())
    last = int(np.flatnonzero(layers.kind <= _DEPTHWISE)[-1])  # classes of the last convolution, at full size
    return layers.input_pixels * float(layers.channels_out[last])


#: Layers of compute and traffic overlap up to this exponent: 4 is within 19 % of a sharp maximum.
_OVERLAP = 4.0


def thread_times_s(networks: DpuNetworks, rates: DpuRates) -> tuple[FloatArray, FloatArray]:
    """Time per image of one thread, and per image with all cores busy; s, shape (k,) each.

    One thread: every layer's compute and traffic overlapped, plus its start, plus the host. All cores: the longest of the
    cores' time over their number joined with the memory's, and the host's over its threads.

    Args:
        networks: Network runs.
        rates: Of the release.
    """
    compute = networks.convolution_s * rates.cycle_ratio + networks.depthwise_s * rates.depthwise_ratio
    compute = compute + networks.other_s * rates.other_ratio + networks.gate_s * rates.gate_ratio
    traffic = networks.weight_s / rates.weight_fraction + networks.map_s / rates.map_fraction
    layer = (compute**_OVERLAP + traffic**_OVERLAP) ** (1 / _OVERLAP) + rates.layer_s
    core = np.add.reduceat(layer, networks.start)
    both = networks.weight_s / rates.shared_weight_fraction + networks.map_s / rates.shared_map_fraction
    shared = np.add.reduceat(both, networks.start) / np.where(networks.has_wide_memory, rates.wide_memory_ratio, 1.0)
    sharp = rates.sharpness
    all_cores = ((core / networks.cores) ** sharp + shared**sharp) ** (1 / sharp)
    host = _host_s(networks, rates)
    return core + host, np.maximum(all_cores, host / rates.host_threads)


def _host_s(networks: DpuNetworks, rates: DpuRates) -> FloatArray:
    per_output = np.array(
        [
            0.0,
            rates.pixels_s,
            rates.softmax_box_s,
            rates.sigmoid_box_s,
            rates.image_byte_s,
            rates.yolo_s,
            rates.pixels_s,
        ]
    )
    work = rates.image_s + rates.pixel_s * networks.input_pixels + per_output[networks.task] * networks.output
    host: FloatArray = work * networks.host_ratio
    return host
