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
from accelsim.plain import Values
from accelsim.scoreboard.data_folder import DataFolder, schema
from accelsim.scoreboard.measured_runs import MeasuredRun, run_batches
from accelsim.scoreboard.published_runs import PUBLISHED, published_row
from accelsim.scoreboard.suite import MeasuredBatch, register_suite

NETWORKS_SCHEMA = schema("asic/networks.csv")


@register_suite(
    "asic-networks", "whole networks on matrix chips, as published", (NETWORKS_SCHEMA,), "model"
)
def load(folder: DataFolder) -> list[MeasuredBatch]:
    """Rows by device, and by reason where they are refused."""
    return run_batches(map(network_row, folder.records(NETWORKS_SCHEMA)), PUBLISHED)


def network_row(record: Values) -> MeasuredRun:
    """A row of the table as a run."""
    sizes = {name: record[name] or np.nan for name in _SIZES}
    is_latency = sizes["batch"] == 1.0
    seconds = record["seconds_per_sample"]
    row = published_row(
        dict.fromkeys(_DEFAULT, "")
        | {"workload": record["model"], "mode": "inference", **sizes, "output_len": np.nan}
        | {name: record[name] for name in ("device", "precision")}
        | {
            "metric": "latency_ms" if is_latency else "samples_per_s",
            "value": seconds * 1e3 if is_latency else 1.0 / seconds,
        }
    )
    model = record["model"]
    row = replace(row, group=model, label=f"{model}-{sizes['batch']:.0f}")
    cores = 1 if row.run is None else value_of(row.run.run.device.core_count, 1)
    programs = round(record["programs"])
    is_full = row.run is None or programs == min(cores, sizes["batch"])
    return row if is_full else row.refused(f"{programs} programs on {cores} cores")


_SIZES = ("batch", "seq_len", "image_size")
_DEFAULT = ("stack", "execution", "layout", "fused_attention", "optimizer")
