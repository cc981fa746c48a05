"""Whole networks on a DPU: one core alone, and all cores with the host's threads, as published
throughput tables have it.

A layer takes ceil(rows/PP) columns ceil(C_in/ICP) ceil(C_out/OCP) x window cycles (AMD PG338: PP
pixels of one column at once), its first layer fills the input lanes with the window's columns.
Weights and maps pass through the board's memory beside the arithmetic. With n cores the memory
carries n images at once, layer by layer: cores that wait for the same memory fall into step. The
host scales the picture and finishes what the overlay cannot (`accelsim.cost.fpga.host_tasks`). What
these mechanisms cost depends on the compiler's release: `DpuRates` is fitted per release
(`tools.scoreboard.dpu_fit`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import numpy as np

from accelsim.cost.fpga.host_tasks import HOST_CORES, HostTask, HostWork, host_work, join_work
from accelsim.cost.fpga.network_layers import CONV, DEPTHWISE, GATE, POOL, LayerColumns, join_layers
from accelsim.frozen import frozen
from accelsim.workloads.graph import BoolArray, FloatArray, IntArray

#: Input channels up to which the first layer's window columns fill the input lanes (PG338, channel
#: augmentation).
_AUGMENTED_CHANNELS = 4


@frozen
class DpuRates:
    """What a release of the compiler and its overlay reach; all above 0.

    Attributes:
        cycle_ratio: Cycles of a convolution over those of its tiles.
        weight_fraction: Share of the board's memory bandwidth at which weights are fetched by one
            core.
        map_fraction: Share at which feature maps are read by one core, and at which they are
            written.
        layer_s: Start of a layer, s.
        image_s: Host work per image, s.
        pixel_s: Host work per input pixel, s.
        depthwise_ratio: Cycles of a depthwise layer over those of its lanes.
        other_ratio: Cycles of pooling, sums, moves, gates and activations of their own over those
            of their lanes.
        host_threads: Images the host works on at once where memory or the driver holds it up.
        cached_threads: Images whose outputs it works on at once where they stay in its cache.
        shared_weight_fraction: Share of the memory bandwidth at which all cores together fetch
            weights.
        shared_map_fraction: Share at which maps of all cores pass.
        pixels_s: Host work per pixel and class of a dense prediction, and per byte the host pools,
            s.
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
    host_threads: float = 1.6
    cached_threads: float = 3.0
    shared_weight_fraction: float = 0.6
    shared_map_fraction: float = 0.6
    pixels_s: float = 5e-9
    softmax_box_s: float = 8e-8
    sigmoid_box_s: float = 2.5e-8
    image_byte_s: float = 1e-10
    yolo_s: float = 1e-9

    def vector(self) -> FloatArray:
        """Natural logarithms in field order, shape (fields,)."""
        values: FloatArray = np.log(np.array([getattr(self, f.name) for f in fields(self)]))
        return values

    @staticmethod
    def of_vector(values: FloatArray) -> DpuRates:
        """The rates of a vector of logarithms."""
        return DpuRates(*(float(v) for v in np.exp(values)))


@frozen(eq=False)
class DpuBoards:
    """Boards that run networks, one per network run; columns of shape (k,).

    Attributes:
        parallelism: (PP, ICP, OCP), shape (k, 3).
        clock_hz: Core clock.
        core_count: Cores.
        memory_bytes_per_s: Theoretical bandwidth of the board's memory.
        host_ratio: Time of the host's cores over those of a 1.2 GHz Cortex-A53.
    """

    parallelism: FloatArray
    clock_hz: FloatArray
    core_count: FloatArray
    memory_bytes_per_s: FloatArray
    host_ratio: FloatArray


@frozen(eq=False)
class DpuNetworks:
    """Layers of k network runs end to end, ready to be timed with any rates.

    Attributes:
        start: First layer of each run, shape (k,).
        convolution_s: Cycles of convolutions over the clock, shape (n,), as the next two.
        depthwise_s: Of depthwise layers.
        other_s: Of pooling, sums, moves and gates.
        weight_s: Weights over the board's theoretical bandwidth.
        read_s: Maps read over the board's theoretical bandwidth.
        write_s: Maps written over it.
        starts: Times the overlay starts.
        is_gate: Whether a layer is a gate or an activation of its own.
        boards: Board of each run.
        host: Host work of each run.
    """

    start: IntArray
    convolution_s: FloatArray
    depthwise_s: FloatArray
    other_s: FloatArray
    weight_s: FloatArray
    read_s: FloatArray
    write_s: FloatArray
    starts: FloatArray
    is_gate: BoolArray
    boards: DpuBoards
    host: HostWork


def join_networks(
    networks: Sequence[LayerColumns], tasks: Sequence[HostTask], boards: DpuBoards
) -> DpuNetworks:
    """Count cycles and traffic of each network on its board.

    Args:
        networks: Layers, k networks.
        tasks: Host task of each.
        boards: Board of each.
    """
    pairs = zip(networks, tasks, strict=True)
    host = join_work([host_work(layers, task) for layers, task in pairs])
    counts = [len(layers.kind) for layers in networks]
    start = np.cumsum([0, *counts[:-1]])
    run = np.repeat(np.arange(len(networks)), counts)
    layers = join_layers(networks)
    kind = layers.kind
    is_first = np.isin(np.arange(len(kind)), start)
    seconds = _cycles(layers, boards.parallelism[run], is_first) / boards.clock_hz[run]
    weights = layers.channels_in / layers.groups * layers.channels_out * layers.window
    memory = boards.memory_bytes_per_s[run]
    return DpuNetworks(
        start=start,
        convolution_s=np.where(kind == CONV, seconds, 0.0),
        depthwise_s=np.where(kind == DEPTHWISE, seconds, 0.0),
        other_s=np.where(kind > DEPTHWISE, seconds, 0.0),
        weight_s=np.where(kind <= DEPTHWISE, weights, 0.0) / memory,
        read_s=(layers.map_bytes - layers.write_bytes) / memory,
        write_s=layers.write_bytes / memory,
        starts=layers.starts,
        is_gate=kind == GATE,
        boards=boards,
        host=host,
    )


def _cycles(layers: LayerColumns, parallelism: FloatArray, is_first: BoolArray) -> FloatArray:
    """Cycles of one image on one core, shape (n,). AMD PG338, DPU architectures."""
    pixels_at_once, inputs_at_once, outputs_at_once = parallelism.T
    positions = np.ceil(layers.rows / pixels_at_once) * layers.columns * layers.window
    inputs = np.ceil(layers.channels_in / inputs_at_once)
    outputs = np.ceil(layers.channels_out / outputs_at_once)
    # A depthwise layer with several outputs per input runs once for each.
    copies = np.maximum(layers.channels_out / layers.channels_in, 1.0)
    filled = np.ceil(layers.channels_in * layers.window_columns / inputs_at_once)
    is_augmented = is_first & (layers.channels_in <= _AUGMENTED_CHANNELS)
    lanes = np.where(is_augmented, filled / layers.window_columns, inputs)
    ways = [positions * lanes * outputs, positions * inputs * copies]
    elements = layers.rows / (pixels_at_once * inputs_at_once)
    return np.select([layers.kind == CONV, layers.kind <= POOL], ways, elements)


def thread_times_s(networks: DpuNetworks, rates: DpuRates) -> tuple[FloatArray, FloatArray]:
    """Time per image of one thread, and per image with all cores busy; s, shape (k,) each.

    Estimate: its form is chosen to fit the throughput AMD publishes for its boards.

    One thread waits for one core and the host; with all threads busy the longer of the cores' time
    over their number and the host's over its threads counts.

    Args:
        networks: Network runs.
        rates: Of the release.
    """
    alone, together = (core_times_s(networks, rates, is_shared=shared) for shared in (False, True))
    single_s, all_threads = host_times_s(networks, rates, box_threads=HOST_CORES)
    return alone + single_s, np.maximum(together / networks.boards.core_count, all_threads)


def core_times_s(
    networks: DpuNetworks,
    rates: DpuRates,
    *,
    is_shared: bool = False,
    among: BoolArray | bool = True,
) -> FloatArray:
    """Time of each run's layers on one core, s, shape (k,).

    Args:
        networks: Network runs.
        rates: Of the release.
        is_shared: Whether all cores are busy and share the memory.
        among: Layers that count, shape (n,).
    """
    longer = np.maximum(*layer_times_s(networks, rates, is_shared=is_shared))
    layers = np.where(among, longer + rates.layer_s * networks.starts, 0.0)
    return np.add.reduceat(layers, networks.start)


def layer_times_s(
    networks: DpuNetworks, rates: DpuRates, *, is_shared: bool
) -> tuple[FloatArray, FloatArray]:
    """Arithmetic and traffic of every layer of one image, of which the longer counts; s, shape (n,)
    each.

    Parallelism PP x ICP x OCP: AMD PG338 (DPUCZDX8G); estimate: its form is chosen to fit the
    throughput AMD publishes for its boards.

    Weights, maps read and maps written have ports of their own.

    Args:
        networks: Network runs.
        rates: Of the release.
        is_shared: Whether all cores are busy and share the memory.
    """
    compute = (
        networks.convolution_s * rates.cycle_ratio + networks.depthwise_s * rates.depthwise_ratio
    )
    compute = compute + networks.other_s * rates.other_ratio
    maps = networks.read_s + networks.write_s
    traffic = np.maximum(networks.read_s, networks.write_s) / rates.map_fraction
    traffic = np.maximum(traffic, networks.weight_s / rates.weight_fraction)
    if is_shared:
        together = (
            networks.weight_s / rates.shared_weight_fraction + maps / rates.shared_map_fraction
        )
        counts = np.diff(np.append(networks.start, len(traffic)))
        cores = networks.boards.core_count
        at_once = np.where(cores > 1, cores, 0.0)
        traffic = np.maximum(traffic, together * np.repeat(at_once, counts))
    return compute, traffic


def gate_fractions(networks: DpuNetworks, rates: DpuRates) -> FloatArray:
    """Share of one core's time that goes into gates and activations of their own, shape (k,).

    Estimate: its form is chosen to fit the throughput AMD publishes for its boards.

    Args:
        networks: Network runs.
        rates: Of the release.
    """
    gates = core_times_s(networks, rates, among=networks.is_gate)
    return gates / core_times_s(networks, rates)


def host_times_s(
    networks: DpuNetworks, rates: DpuRates, box_threads: float | None = None
) -> tuple[FloatArray, FloatArray]:
    """Host time of one image alone, and per image with all threads busy, shape (k,) each.

    Estimate: its form is chosen to fit the throughput AMD publishes for its boards.

    Args:
        networks: Network runs.
        rates: Of the release.
        box_threads: Images whose boxes the host chooses at once from scores in its cache, which is
            arithmetic where a map of classes is traffic; as for other outputs if None.
    """
    per_unit = np.array([0.0, *(getattr(rates, name) for name in _TASK_RATES)])
    host = networks.host
    boards = networks.boards
    common = (rates.image_s + rates.pixel_s * host.input_pixels) * boards.host_ratio
    outputs = per_unit[host.task] * host.amount * boards.host_ratio
    is_chosen = np.isin(host.task, (HostTask.SOFTMAX_BOXES, HostTask.SIGMOID_BOXES))
    cached = np.where(is_chosen, box_threads or rates.cached_threads, rates.cached_threads)
    threads = np.where(host.is_cached, cached, rates.host_threads)
    return common + outputs, common / rates.host_threads + outputs / threads


#: Rate of each host task after NONE.
_TASK_RATES = (
    "pixels_s",
    "softmax_box_s",
    "sigmoid_box_s",
    "image_byte_s",
    "yolo_s",
    "pixels_s",
    "sigmoid_box_s",
)
