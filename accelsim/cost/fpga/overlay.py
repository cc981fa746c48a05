"""Overlay processors: cores that run one layer at a time with fixed pixel and channel parallelism.

A core multiplies PP pixels x ICP input channels x OCP output channels per cycle (AMD DPUCZDX8G,
PG338, "DPU architectures"); a layer takes ceil(pixels/PP) ceil(C_in/ICP) ceil(C_out/OCP) x window
cycles. Boards without a published overlay get a grid of the same kind sized to their stated peak,
whose shape a compiler picks for each layer.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from accelsim.cost.fpga.fpga_parameters import FpgaParameters
from accelsim.cost.fpga.network_rates import core_sides
from accelsim.cost.roofline import main_memory_bandwidth_bytes_per_s, rate_table
from accelsim.dtype import Dtype
from accelsim.errors import InvalidValueError
from accelsim.frozen import frozen
from accelsim.hardware.profile import DpuCore, FpgaProfile
from accelsim.workloads.graph import FloatArray

#: Least pixel parallelism of a generic grid: that of the published cores (AMD PG338, B1600 to
#: B4096).
_GENERIC_PIXELS = 8
#: Layouts of a generic grid for twice the pixels: a batch that outgrows one by an image finds
#: another a fifth larger.
_GENERIC_LAYOUTS = 4
#: Power of two of its least channel parallelism: that of the published cores.
_GENERIC_POWER = 3
#: Overlays whose cores are one engine's batch: they share each weight fetch and keep feature maps
#: in on-chip RAM where these fit (AMD PG389 and PG403, Versal: batch engines behind one weight
#: buffer; PG400, DPUCADF8H: four images at a time).
_BATCH_ENGINES = ("DPUCVDX8", "DPUCV2DX8", "DPUCADF8")


Sides = tuple[float, float, float]


@frozen(eq=False)
class OverlayMachine:
    """Sustained rates of a board's overlay.

    Attributes:
        name: Device name, for messages.
        published: Whether the overlay is a published convolution processor (DPU), which multiplies
            no two activations.
        grids: (PP, ICP, OCP) of one core: pixel, input-channel and output-channel parallelism; of a
            board without a published overlay all that its multipliers can be laid out as.
        lanes: Operations that the engine of sums, pooling and depthwise windows does per cycle.
        cores: Cores; each works on its own image.
        seconds_per_cycle: Of one core by `Dtype` code, pipeline fills included; NaN for formats it
            lacks.
        shares_weights: Whether one weight fetch serves all cores.
        resident_bytes: Feature maps of one image and layer that stay on chip; 0 sends all through
            memory.
        port_bytes_per_s: What one core draws from memory.
        memory_bytes_per_s: Sustained bandwidth of the board's memory, shared by the cores.
        host_bytes_per_s: Host link; memory where host and fabric share it.
        layer_overhead_s: Time to start one layer.
        is_alone: Whether a batch waits for its last, part-filled round; batches that follow each
            other fill it.
    """

    name: str
    published: bool
    grids: tuple[Sides, ...]
    lanes: float
    cores: float
    seconds_per_cycle: FloatArray
    shares_weights: bool
    resident_bytes: float
    port_bytes_per_s: float
    memory_bytes_per_s: float
    host_bytes_per_s: float
    layer_overhead_s: float
    is_alone: bool = False

    def array_cycles(
        self, pixels: ArrayLike, channels_in: ArrayLike, channels_out: ArrayLike, window: ArrayLike
    ) -> FloatArray:
        """Cycles of layers on the fastest grid; more multipliers never take longer."""
        sizes = (pixels, channels_in, channels_out, window)
        cycles: FloatArray = np.minimum.reduce(
            [overlay_cycles(*sizes, sides) for sides in self.grids]
        )
        return cycles

    def rounds(self, images: FloatArray) -> FloatArray:
        """Images that each core works through; one that is done takes the next batch's."""
        shares = np.maximum(images / self.cores, np.minimum(images, 1.0))
        return np.ceil(shares) if self.is_alone else shares

    def lane_cycles(self, pixels: ArrayLike, channels: ArrayLike, window: ArrayLike) -> FloatArray:
        """Cycles of layers that work channel by channel: PP x ICP lanes, filled evenly where the
        grid is not published.

        AMD PG338; evenly filled lanes are an estimate.
        """
        if self.published:
            pixel_side, channel_side, _ = self.grids[0]
            return overlay_cycles(pixels, channels, 1.0, window, (pixel_side, channel_side, 1.0))
        operations = np.asarray(pixels) * np.asarray(channels) * np.asarray(window)
        cycles: FloatArray = operations / self.lanes
        return cycles


def overlay_cycles(
    pixels: ArrayLike,
    channels_in: ArrayLike,
    channels_out: ArrayLike,
    window: ArrayLike,
    parallelism: Sides,
) -> FloatArray:
    """Cycles of one layer on one core: ceil(pixels/PP) ceil(C_in/ICP) ceil(C_out/OCP) window.

    Parallelism PP x ICP x OCP: AMD PG338 (DPUCZDX8G).

    Args:
        pixels: Output pixels of one image, >= 0.
        channels_in: Input channels.
        channels_out: Output channels.
        window: Window taps, 1 for fully connected layers.
        parallelism: (PP, ICP, OCP), each >= 1.
    """
    sides = zip((pixels, channels_in, channels_out), parallelism, strict=True)
    tiles = [np.ceil(np.asarray(side) / at_once) for side, at_once in sides]
    return np.asarray(tiles[0] * tiles[1] * tiles[2] * np.asarray(window))


def overlay_machine(device: FpgaProfile, values: FpgaParameters) -> OverlayMachine:
    """The overlay of a board.

    Estimate: of a batch engine half of the on-chip memory holds maps, since buffers swap.

    Raises:
        InvalidValueError: If the board has neither an overlay nor a stated rate, or no memory
            bandwidth.
    """
    memory = main_memory_bandwidth_bytes_per_s(device)
    link = device.host_link
    core = device.overlay
    grid = _generic_grid(device, values) if core is None else _published_grid(device, core, values)
    grids, lanes, cores, clock_hz, seconds = grid
    batched = core is not None and core.name.startswith(_BATCH_ENGINES)
    on_chip = sum(level.capacity_bytes.value for level in device.on_chip)
    return OverlayMachine(
        name=device.name,
        published=device.overlay is not None,
        grids=grids,
        lanes=lanes,
        cores=cores,
        seconds_per_cycle=seconds,
        shares_weights=batched,
        resident_bytes=on_chip / cores / 2.0 if batched else 0.0,  # input and output buffers swap
        port_bytes_per_s=memory if core is None else values.port_bytes_per_cycle * clock_hz,
        memory_bytes_per_s=memory * values.memory_efficiency_fraction,
        host_bytes_per_s=memory if link is None else link.bandwidth_bytes_per_s.value,
        layer_overhead_s=values.layer_overhead_s,
    )


Grid = tuple[tuple[Sides, ...], float, float, float, FloatArray]


def _published_grid(device: FpgaProfile, core: DpuCore, values: FpgaParameters) -> Grid:
    """The grid of a published overlay.

    Sides and rate of AMD PG338: PP x ICP x OCP multiply-adds per cycle.
    """
    pixels, inputs, outputs = core_sides(core)
    cores = float(core.core_count.value)
    clock = core.clock_hz.value
    native = 2.0 * pixels * inputs * outputs * cores * clock
    rates = {Dtype.INT8: native} | {d: r.value for d, r in device.matrix_flop_per_s.items()}
    # A core clocked above what its board states is held to the statement.
    slower = max(1.0, native / rates[Dtype.INT8]) / (clock * values.compute_efficiency_fraction)
    seconds = slower * rates[Dtype.INT8] / rate_table(rates, substitute=False)
    return ((pixels, inputs, outputs),), pixels * inputs, cores, clock, seconds


def _generic_grid(device: FpgaProfile, values: FpgaParameters) -> Grid:
    """Grids sized to the best stated rate: square in their channels, the rest pixels, or of some
    pixels and input channels, the rest output channels.

    A larger rate has all layouts of a smaller one with more pixels or channels, so that it takes no
    layer longer. The engine beside them has the lanes of the nearly square one.

    Estimate: the forms of published grids (AMD DPUCZDX8G, PG338).
    """
    rates = {
        d: rate * values.generic_efficiency_fraction for d, rate in device.peak_flop_per_s.items()
    }
    if not rates:
        field = f"{device.name}: matrix_flop_per_s"
        raise InvalidValueError(
            field, None, "a stated rate or an overlay", "Add one to the device profile."
        )
    clock = device.fabric_clock_hz.value
    best = max(rates.values())
    multipliers = max(best / (2.0 * clock), 1.0)
    widest = int(np.log2(max(multipliers / _GENERIC_PIXELS, 1.0)) / 2.0)
    sides = [2.0**power for power in range(min(widest, _GENERIC_POWER), widest + 1)]
    squares = tuple((max(np.floor(multipliers / side**2), 1.0), side, side) for side in sides)
    grids = tuple(dict.fromkeys((*squares, *_other_layouts(multipliers, sides))))
    native = 2.0 * multipliers * clock
    seconds = np.maximum(1.0, native / rate_table(rates, substitute=False)) / clock
    lanes = float(np.sqrt(multipliers * _GENERIC_PIXELS))
    return grids, lanes, 1.0, clock, seconds


def _other_layouts(multipliers: float, sides: list[float]) -> tuple[Sides, ...]:
    """Grids with at least as many output as input channels, `_GENERIC_LAYOUTS` for twice the
    pixels.

    Estimate: the forms of published grids (AMD DPUCZDX8G, PG338).
    """
    other_layouts = []
    for side in sides:
        doublings = np.log2(max(multipliers / side**2 / _GENERIC_PIXELS, 0.5))
        steps = np.arange(np.floor(_GENERIC_LAYOUTS * doublings) + 1) / _GENERIC_LAYOUTS
        pixels = np.floor(_GENERIC_PIXELS * 2.0**steps).tolist()
        other_layouts += [(count, side, np.floor(multipliers / (count * side))) for count in pixels]
    return tuple(other_layouts)
