"""Reads results that commands saved: JSON files, and folders of sweeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from accelsim.errors import InputError, MissingDependencyError, ProfileError
from accelsim.exploration.sweeps.store import part_paths
from accelsim.files.datafile import MAX_DEPTH
from accelsim.files.plainfile import parse_values, read_plain
from accelsim.plain import Document

#: Largest file that is read; larger results are folders of sweeps.
MAX_BYTES = 128_000_000
#: Columns of a sweep that a page shows.
_COLUMNS = (
    *("workload", "device", "mode", "batch", "latency_s", "throughput_per_s"),
    *("energy_per_sample_j", "cost_usd_per_1000", "bound", "reason", "offer"),
    *("usd_per_hour", "average_power_w"),
)
#: Points of a sweep that a page takes in: evenly spaced ones of a larger one.
_MOST_POINTS = 100_000


def read_result(path: Path) -> Any:
    """A saved result as plain values.

    Args:
        path: JSON file of a command, or folder of a sweep.

    Raises:
        InputError: If it cannot be read, is too large, or is no JSON.
        MissingDependencyError: If it is a sweep and pyarrow is not installed.
    """
    if path.is_dir():
        return _sweep_rows(path)
    try:
        document = parse_values(read_plain(path, MAX_BYTES), str(path))
    except ProfileError as refused:
        remedy = (
            "Results are JSON as --format json --out FILE.json writes it; keep large ones with "
            "accelsim sweep, whose folder is read in parts."
        )
        raise InputError(f"{refused}. {remedy}") from None
    return _checked(document, path)


def _checked(document: Any, path: Path) -> Any:
    """The document, no deeper than data files are."""
    level, layer = 0, [document]
    while layer:
        level += 1
        if level > MAX_DEPTH:
            raise InputError(f"{path} is nested more than {MAX_DEPTH} deep.")
        nested = [item for item in layer if isinstance(item, dict | list)]
        layer = [
            one for item in nested for one in (item.values() if isinstance(item, dict) else item)
        ]
    return document


def _sweep_rows(folder: Path) -> list[Document]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise MissingDependencyError("pyarrow", "sweep") from None
    parts = part_paths(folder)
    try:
        files = [pq.ParquetFile(part) for part in parts]
        stride = -(-sum(one.metadata.num_rows for one in files) // _MOST_POINTS)
        rows: list[Document] = []
        passed = 0
        for one in files:
            stored = one.schema_arrow.names
            is_estimate = "latency_s" in stored  # answers of other commands have other figures
            names = [name for name in _COLUMNS if name in stored] if is_estimate else stored
            for block in one.iter_batches(columns=names):
                places = pa.array(range(-passed % stride, len(block), stride), pa.int64())
                rows += pa.Table.from_batches([block]).take(places).to_pylist()
                passed += len(block)
    except (OSError, ValueError) as error:
        raise InputError(f"{folder} cannot be read: {error}") from None
    return [row | {"reason": row.get("reason") or None} for row in rows]
