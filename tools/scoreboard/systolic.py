"""Suite `systolic`: cycles of systolic arrays against SCALE-Sim v2 and v3, equal or not.

The simulator's memory stalls are not scored: it charges neither the first fill nor the last drain.
Its mapping, utilisation and scratchpad accesses are no figures of an answer, and are not asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from accelsim.cost.systolic.cycles import systolic_cycles
from accelsim.errors import InvalidValueError
from accelsim.hardware.profile import Dataflow, DeviceProfile, parse_device
from accelsim.scoreboard.data_folder import DataFolder, Table, schema
from accelsim.scoreboard.suite import MeasuredBatch, refused_batch, register_suite
from accelsim.workloads.graph import TextArray
from tools.scoreboard.quantity_batches import QUANTITY, quantity_batch

#: Figures this close are equal: the tables hold percentages of 15 to 17 digits.
EXACT_FRACTION = 1e-9
DATAFLOWS = {
    "os": Dataflow.OUTPUT_STATIONARY,
    "ws": Dataflow.WEIGHT_STATIONARY,
    "is": Dataflow.INPUT_STATIONARY,
}
V2 = schema("systolic/scalesim_v2.csv")
USER_BANDWIDTH = replace(V2, file="systolic/scalesim_v2_user_bandwidth.csv")
V3 = replace(V2, file="systolic/scalesim_v3.csv.gz")
_LABEL = ("mode", "topology", "layer", "M", "N", "K", "rows", "cols", "dataflow")
_FILES = (V2, USER_BANDWIDTH, V3)


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
def load(folder: DataFolder) -> list[MeasuredBatch]:
    """One batch per file, array and dataflow."""
    batches: list[MeasuredBatch] = []
    for file in _FILES:
        if (table := folder.filled(file)) is not None:
            batches += _table_batches(table)
    return batches


def _table_batches(table: Table) -> list[MeasuredBatch]:
    keys = _joined(table, ("dataflow", "rows", "cols"))
    return [_batch(table.take(keys == key)) for key in dict.fromkeys(keys.tolist())]


def _batch(table: Table) -> MeasuredBatch:
    flow, rows, columns = (table[name].tolist()[0] for name in ("dataflow", "rows", "cols"))
    device = f"{table['simulator'][0]} {rows:.0f}x{columns:.0f} {flow}"
    label = _joined(table, _LABEL)
    try:
        dataflow = _dataflow(flow)
        cycles = systolic_cycles(table["M"], table["N"], table["K"], rows, columns, dataflow)
        profile = _profile(table, dataflow)
    except InvalidValueError as error:
        group = np.full(len(table), "cycles")
        return refused_batch(device, group, label, table["demand_rows"], str(error))
    measured = {"cycles": table["demand_rows"]}
    return quantity_batch(profile, device, label, measured, {"cycles": cycles}, EXACT_FRACTION)


def _dataflow(name: str) -> Dataflow:
    if name not in DATAFLOWS:
        raise InvalidValueError("dataflow", name, "os, ws or is")
    return DATAFLOWS[name]


def _joined(table: Table, names: Sequence[str]) -> TextArray:
    """One text per row: the columns joined with blanks."""
    cells = zip(*(table[name].tolist() for name in names), strict=True)
    words = ([f"{cell:g}" if isinstance(cell, float) else cell for cell in row] for row in cells)
    return np.array([" ".join(row) for row in words])


def _profile(table: Table, dataflow: Dataflow) -> DeviceProfile:
    """The array the rows were simulated with. Nothing is timed on it: its clock and its memory are
    any.
    """
    rows, columns = (int(table[name][0]) for name in ("rows", "cols"))
    simulator = str(table["simulator"][0])
    source = {"kind": "datasheet", "source": f"SCALE-Sim configuration {simulator}"}
    shape = {"rows": rows, "columns": columns, "count": 1}
    sizes = {name: source | {"value": size} for name, size in shape.items()}
    return parse_device(
        {
            "name": f"scalesim-{rows}x{columns}-{dataflow.value.split('_')[0]}",
            "class": "asic",
            "title": f"SCALE-Sim {simulator}",
            "vendor": "user",
            "year": 2020,
            "arrays": sizes | {"dataflow": dataflow.value},
            "clock_hz": source | {"value": 1e9},
            "memory": {"name": "DRAM", "capacity_bytes": source | {"value": 2.0**30}},
        }
    )
