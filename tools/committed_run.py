"""Committed calibration runs: operators as one Parquet file, machine and settings beside it.

``python -m tools.committed_run RUN.jsonl FOLDER`` writes one from a run file. Rows from which other
programs took a core, and those without a time, are left out.
"""

from __future__ import annotations

import gzip
import json
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from accelsim.calibration.measured_rows import MeasuredRow
from accelsim.calibration.measurement.case import Case
from accelsim.calibration.run_file import CalibrationRun, Measurement, read_run
from accelsim.workloads.graph import OperatorGraph

#: Columns of a row's operator.
_ROW_FIELDS: Final = tuple(f.name for f in fields(MeasuredRow))
#: The runs that the figures of the documentation are of.
COMMITTED_RUN: Final = Path(__file__).parents[1] / "calibration/runs/amd-epyc-2cpu"
COMMITTED_GPU_RUN: Final = COMMITTED_RUN.parent / "nvidia-h100-80gb"


def write_committed_run(run: CalibrationRun, folder: Path) -> None:
    """Write a run for the repository.

    Args:
        run: What `accelsim calibrate` measured.
        folder: Where ``operators.parquet`` and ``run.json`` go.
    """
    rows = [_columns(row) for row in run.rows if row.time_s is not None and row.is_undisturbed]
    about = {
        "run_hash": run.digest,
        "environment": dict(run.environment),
        "settings": dict(run.settings),
        "notes": list(run.notes),
    }
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(about, indent=1, sort_keys=True)
    (folder / "run.json").write_text(text + "\n", encoding="utf-8")
    table = pa.Table.from_pylist(rows)
    path = folder / "operators.parquet"
    pq.write_table(table, path, compression="zstd", compression_level=19)


def _columns(row: Measurement) -> dict[str, Any]:
    case = row.case
    shape = " ".join(f"{name}={value}" for name, value in case.shape.items())
    return {
        "family": case.family,
        "operator": case.operator,
        "shape": shape,
        "dtype": case.dtype,
        "threads": case.threads,
        "cold": case.cold,
        "execution": case.execution,
        "amid": case.amid,
        "time_s": row.time_s,
        "noise_fraction": row.noise_fraction,
        "round": row.round_number,
        "reference_s": row.details.get("reference_s"),
        "energy_j": row.details.get("energy_j"),
    } | _row_columns(row.row)


def _row_columns(row: MeasuredRow | None) -> dict[str, Any]:
    """The operator row that stands for a case; empty where the cost model has none for it."""
    if row is None:
        return dict.fromkeys(_ROW_FIELDS)
    columns = {name: getattr(row, name) for name in _ROW_FIELDS}
    return columns | {"dims": " ".join(map(str, row.dims))}


def read_committed_run(folder: Path = COMMITTED_RUN) -> CalibrationRun:
    """Read what `write_committed_run` wrote, as a run to fit.

    Args:
        folder: Folder of the run.
    """
    about = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    rows = pq.read_table(folder / "operators.parquet").to_pylist()
    measurements = [_measurement(row) for row in rows]
    return CalibrationRun(
        environment=about["environment"],
        settings=about["settings"],
        rows=measurements,
        notes=about["notes"],
        digest=str(about["run_hash"]),
        dropped_bytes=0,
    )


def read_committed_networks(folder: Path = COMMITTED_RUN) -> dict[str, OperatorGraph]:
    """Operators of the networks that were measured beside a run, by model, batch, format and mode.

    Args:
        folder: Folder of the run.
    """
    networks = json.loads(gzip.decompress((folder / "networks.json.gz").read_bytes()))
    return {key: OperatorGraph.from_dict(graph) for key, graph in networks.items()}


def _measurement(row: dict[str, Any]) -> Measurement:
    dimensions = (pair.split("=") for pair in row["shape"].split())
    case = Case(
        family=row["family"],
        operator=row["operator"],
        shape={name: int(value) for name, value in dimensions},
        dtype=row["dtype"],
        threads=row["threads"],
        cold=row["cold"],
        execution=row["execution"],
        amid=row["amid"],
    )
    known = {name: row.get(name) for name in ("reference_s", "energy_j")}
    details = {name: value for name, value in known.items() if value is not None}
    measured = (row["time_s"], row["noise_fraction"], row["round"], details)
    return Measurement(case, *measured, row=_measured_row(row))


def _measured_row(columns: dict[str, Any]) -> MeasuredRow | None:
    if columns["kind"] is None:
        return None
    dims = tuple(map(int, columns["dims"].split()))
    return MeasuredRow(**{name: columns[name] for name in _ROW_FIELDS} | {"dims": dims})


if __name__ == "__main__":
    write_committed_run(read_run(sys.argv[1]), Path(sys.argv[2]))
