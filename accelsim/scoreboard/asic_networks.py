"""Suite `asic-networks`: whole networks on matrix chips, as their makers publish them, asked as the
rows of `published` are: on the chip's own stack, with the ratios of all chips but its own.

A row is a batch that so many programs, each with its own weights and a core of its own, share on
one chip; its time is that of a batch. Where one program runs one sample (Coral's latencies) the
transfer of its input over the host's link counts, elsewhere it hides behind other batches.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from accelsim.hardware.sourced import value_of
from accelsim.scoreboard.data_folder import DataFolder, Table, schema
from accelsim.scoreboard.measured_runs import MeasuredRun, run_batches
from accelsim.scoreboard.published_runs import PUBLISHED, published_row
from accelsim.scoreboard.suite import Batch, register_suite

NETWORKS_SCHEMA = schema("asic/networks.csv")


@register_suite(
    "asic-networks", "whole networks on matrix chips, as published", (NETWORKS_SCHEMA,), "model"
)
def load(folder: DataFolder) -> list[Batch]:
    """Rows by device, and by reason where they are refused."""
    table = folder.table(NETWORKS_SCHEMA)
    return [] if table is None else run_batches(network_rows(table), PUBLISHED)


def network_rows(table: Table) -> list[MeasuredRun]:
    """Rows of the table as runs."""
    return [_row(table, index) for index in range(len(table))]


def _row(table: Table, index: int) -> MeasuredRun:
    device, model, form = (str(table[name][index]) for name in ("device", "model", "precision"))
    sizes = {name: float(table[name][index]) or np.nan for name in _SIZES}
    is_latency = sizes["batch"] == 1.0
    seconds = float(table["seconds_per_sample"][index])
    row = published_row(
        dict.fromkeys(_DEFAULT, "")
        | {"workload": model, "device": device, "precision": form, "mode": "inference"}
        | {**sizes, "output_len": np.nan}
        | {
            "metric": "latency_ms" if is_latency else "samples_per_s",
            "value": seconds * 1e3 if is_latency else 1.0 / seconds,
        }
    )
    found = replace(row, group=model, label=f"{model}-{sizes['batch']:.0f}")
    cores = 1 if found.run is None else value_of(found.run.run.device.core_count, 1)
    programs = round(float(table["programs"][index]))
    is_full = found.run is None or programs == min(cores, sizes["batch"])
    return found if is_full else found.refused(f"{programs} programs on {cores} cores")


_SIZES = ("batch", "seq_len", "image_size")
_DEFAULT = ("stack", "execution", "layout", "fused_attention", "optimizer")
