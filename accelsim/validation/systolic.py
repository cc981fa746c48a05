"""Suite `systolic`: cycles, mapping, utilisation and scratchpad accesses against SCALE-Sim v2 and
v3, row by row.

Every quantity of a row is scored by itself and must be equal. What the simulator's reports print
beside what it simulates (`accelsim.cost.systolic.counts`) is asked for with ``compat="scalesim"``;
the findings say how many figures that concerns. The simulator's memory stalls are not scored: it
charges neither the first fill nor the last drain, so its reported cycles are compared after its
stalls are taken off.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from accelsim.cost.systolic.counts import ArrayCounts, array_counts
from accelsim.errors import InvalidValueError
from accelsim.hardware.profile import AsicProfile, Dataflow
from accelsim.hardware.scalesim import ScaleSimConfig
from accelsim.validation.data_folder import DataFolder, Schema, Table, number, text
from accelsim.validation.quantity_batches import QUANTITY, quantity_batch
from accelsim.validation.suite import Batch, TextArray, refused_batch, register_suite
from accelsim.workloads.graph import FloatArray

__all__ = ["EXACT_FRACTION", "mismatches"]

#: Figures this close are equal: the tables hold percentages of 15 to 17 digits.
EXACT_FRACTION: Final = 1e-9
_DATAFLOWS: Final = {
    "os": Dataflow.OUTPUT_STATIONARY,
    "ws": Dataflow.WEIGHT_STATIONARY,
    "is": Dataflow.INPUT_STATIONARY,
}
_COLUMNS: Final = (
    *text("simulator", "mode", "topology", "layer", "dataflow"),
    *number("M", "N", "K", "rows", "cols", "ifmap_kb", "filter_kb", "ofmap_kb", "demand_rows"),
    *number(
        "mapping_eff_pct",
        "compute_util_pct",
        "ifmap_sram_reads",
        "filter_sram_reads",
        "ofmap_sram_writes",
    ),
    *number("total_cycles", "stall_cycles", "overall_util_pct", optional=True),
)
V2: Final = Schema("systolic/scalesim_v2.csv", _COLUMNS)
USER_BANDWIDTH: Final = Schema("systolic/scalesim_v2_user_bandwidth.csv", _COLUMNS)
V3: Final = Schema("systolic/scalesim_v3.csv.gz", _COLUMNS)
_SCHEMAS: Final = (V2, USER_BANDWIDTH, V3)


def mismatches(rows: Sequence[Any]) -> dict[str, Any]:
    """Figures and configurations that are not equal, by quantity."""
    wrong: Counter[str] = Counter()
    asked: Counter[str] = Counter()
    for part in rows:
        if part.refusal:
            wrong["refused"] += len(part)
            continue
        differs = np.abs(part.predicted_s / part.measured_s - 1.0) > EXACT_FRACTION
        asked.update(part.group.tolist())
        wrong.update(part.group[differs].tolist())
    by_quantity = {
        name: {"figures": count, "mismatches": wrong[name]} for name, count in sorted(asked.items())
    }
    return {"mismatches": sum(wrong.values()), "quantities": by_quantity}


@register_suite(
    "systolic",
    "systolic arrays against SCALE-Sim, equal or not",
    (V2,),
    "operator",
    optional_files=(USER_BANDWIDTH, V3),
    findings=mismatches,
    quantity=QUANTITY,
)
def load(folder: DataFolder) -> list[Batch]:
    """One batch per file, array and dataflow."""
    batches: list[Batch] = []
    for schema in _SCHEMAS:
        table = folder.table(schema) if folder.has(schema) else None
        if table is not None and len(table):
            batches += _table_batches(table)
    return batches


def _table_batches(table: Table) -> list[Batch]:
    keys = np.array(
        [
            f"{flow} {r:.0f} {c:.0f}"
            for flow, r, c in zip(table["dataflow"], table["rows"], table["cols"], strict=True)
        ]
    )
    return [_batch(table.take(keys == key)) for key in dict.fromkeys(keys.tolist())]


def _batch(table: Table) -> Batch:
    flow, rows, columns = (
        str(table["dataflow"][0]),
        float(table["rows"][0]),
        float(table["cols"][0]),
    )
    device = f"{table['simulator'][0]} {rows:.0f}x{columns:.0f} {flow}"
    label = _labels(table)
    try:
        dataflow = _dataflow(flow)
        sides = (table["M"], table["N"], table["K"], rows, columns, dataflow)
        plain, reported = array_counts(*sides), array_counts(*sides, compat="scalesim")
        profile = _profile(table, dataflow)
    except InvalidValueError as error:
        return refused_batch(
            device, np.full(len(table), "cycles"), label, table["demand_rows"], str(error)
        )
    return quantity_batch(
        profile, device, label, _measured(table), _predicted(plain, reported), EXACT_FRACTION
    )


def _dataflow(name: str) -> Dataflow:
    if name not in _DATAFLOWS:
        raise InvalidValueError("dataflow", name, "os, ws or is")
    return _DATAFLOWS[name]


def _labels(table: Table) -> TextArray:
    names = ("mode", "topology", "layer", "M", "N", "K", "rows", "cols", "dataflow")
    cells = zip(*(table[name].tolist() for name in names), strict=True)
    return np.array(
        [
            " ".join(f"{cell:g}" if isinstance(cell, float) else cell for cell in row)
            for row in cells
        ]
    )


def _measured(table: Table) -> dict[str, FloatArray]:
    stalls = np.nan_to_num(table["stall_cycles"])
    total = table["total_cycles"]
    stalled = stalls > 0
    return {
        "cycles": table["demand_rows"],
        "reported cycles": total - stalls,
        "mapping efficiency": table["mapping_eff_pct"] / 100.0,
        "utilisation": table["compute_util_pct"] / 100.0,
        "overall utilisation": np.where(stalled, np.nan, table["overall_util_pct"]) / 100.0,
        "input reads": table["ifmap_sram_reads"],
        "weight reads": table["filter_sram_reads"],
        "output writes": table["ofmap_sram_writes"],
    }


def _predicted(plain: ArrayCounts, reported: ArrayCounts) -> dict[str, FloatArray]:
    return {
        "cycles": plain.cycles,
        "reported cycles": reported.cycles,
        "mapping efficiency": plain.mapping_efficiency_fraction,
        "utilisation": reported.utilisation_fraction,
        "overall utilisation": reported.overall_utilisation_fraction,
        "input reads": plain.input_reads,
        "weight reads": plain.weight_reads,
        "output writes": reported.output_writes,
    }


def _profile(table: Table, dataflow: Dataflow) -> AsicProfile:
    """The configuration the rows were simulated with, at a clock that makes a cycle a second."""
    sizes = {name: int(table[f"{column}_kb"][0]) for name, column in _PADS.items()}
    config = ScaleSimConfig(
        f"{table['simulator'][0]}",
        int(table["rows"][0]),
        int(table["cols"][0]),
        **sizes,
        dataflow=dataflow,
        words_per_cycle=None,
    )
    return config.profile(clock_hz=1.0, memory_bytes=2.0**30, bandwidth_bytes_per_s=1e30)


_PADS: Final = {"input_sram_kib": "ifmap", "weight_sram_kib": "filter", "output_sram_kib": "ofmap"}
