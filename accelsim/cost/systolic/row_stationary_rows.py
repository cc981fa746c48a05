"""Convolution rows of a graph on a row-stationary array.

Several arrays share the filters. Images have no zeros, later maps a usual share; the planes of 3-D
maps are images of a longer batch.
"""

from __future__ import annotations

from accelsim.cost.systolic.machine import AsicMachine
from accelsim.cost.systolic.row_stationary import (
    ConvLayer,
    RowStationaryRun,
    row_stationary_chip,
    row_stationary_run,
)
from accelsim.cost.table import Rows

_IMAGE_CHANNELS = 3


def row_stationary_runs(
    rows: Rows, machine: AsicMachine, link_bytes_per_s: float
) -> list[RowStationaryRun]:
    """Each convolution on one array of the machine, in row order.

    Chen et al., ISCA 2016 and JSSC 2017 (Eyeriss).

    Args:
        rows: Convolutions.
        machine: Arrays.
        link_bytes_per_s: Bandwidth of main memory.
    """
    chip = row_stationary_chip()
    clock_hz = 1.0 / machine.seconds_per_cycle[rows.column("dtype")]
    sides = int(machine.rows), int(machine.columns)
    return [
        row_stationary_run(
            _conv_layer(rows, index, machine.count),
            chip,
            *sides,
            float(clock_hz[index]),
            link_bytes_per_s,
        )
        for index in range(len(rows))
    ]


def _conv_layer(rows: Rows, index: int, arrays: int) -> ConvLayer:
    place = int(rows.index[index])
    sizes = {name: max(size, 1) for name, size in rows.graph.dimensions_of(place).items()}
    return ConvLayer(
        sizes["batch"] * sizes["out_d"] * sizes["kernel_d"],
        sizes["channels_in"],
        max(-(-sizes["channels_out"] // arrays), sizes["groups"]),
        sizes["groups"],
        sizes["in_h"],
        sizes["in_w"],
        sizes["kernel_h"],
        sizes["kernel_w"],
        sizes["out_h"],
        sizes["out_w"],
        sizes["stride"],
        input_zero_fraction=0.0 if sizes["channels_in"] <= _IMAGE_CHANNELS else None,
        name=rows.graph.name[place],
    )
