"""Checks rows of DPU throughput tables: repeats, operations that are none, rates beyond the array,
impossible scaling.

Published tables repeat an earlier release's row, mix multiply-adds with operations, and hold slips
of the pen, which are listed beside the published tables. Each check names what is wrong with a row;
a row may fail several.
"""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Sequence
from functools import cache

import numpy as np

from accelsim.cost.fpga.network_rates import release_order
from accelsim.files.datafile import data_root
from accelsim.frozen import frozen

#: Rates far from what everything else says, found once (``tools/refit/README.md`` has the rule),
#: beside the published tables.
_SLIPS_FILE = "dpu_slips.csv"
#: Largest relative difference of operations stated twice.
_SAME_OPERATIONS = 0.25
#: All cores are never slower than one thread, which they could run as well; rates are printed
#: rounded.
_LEAST_SCALING = 0.995
#: Most that all cores gain over one thread, per core: host work that one thread waits for runs on
#: four processors.
_HOST_SCALING = 4.1
#: Peaks and operations are printed rounded.
_ROUNDING = 1.001
_OPERATIONS = re.compile(r"_(\d+(?:\.\d+)?)([GM])(?:_[\d.]+)?$")


@frozen
class DpuRow:
    """One row of a table.

    Attributes:
        release: Release, "v3.0".
        board: Board as printed.
        core: Architecture, "DPUCZDX8G_B4096".
        core_count: Cores.
        clock_hz: Clock.
        network: Name in the table, framework first.
        operations: Per image; NaN where not stated.
        single_per_s: Images per second of one thread; NaN where not stated.
        multi_per_s: Of all threads.
        peak_per_s: Operations per second of all cores; NaN where unknown.
    """

    release: str
    board: str
    core: str
    core_count: float
    clock_hz: float
    network: str
    operations: float
    single_per_s: float
    multi_per_s: float
    peak_per_s: float


def stated_operations(network: str) -> float:
    """Operations in a network's name; NaN where it has none."""
    match = _OPERATIONS.search(network)
    if match is None:
        return float("nan")
    return float(match[1]) * (1e9 if match[2] == "G" else 1e6)


def bare_core(core: str) -> str:
    """The architecture without the letter of its packaging: B4096F is B4096."""
    return core.rstrip("F") if core.startswith("DPUCZDX8G") else core


Finding = tuple[int, str]


def check_rows(rows: Sequence[DpuRow]) -> list[tuple[str, ...]]:
    """What is wrong with each row; empty where nothing is. Order of `rows` does not matter but for
    equal releases.
    """
    faults: list[dict[str, None]] = [{} for _ in rows]
    for check in (_check_repeats, _check_operations, _check_rates, _listed_slips):
        for index, name in check(rows):
            faults[index][name] = None
    return [tuple(names) for names in faults]


@cache
def _slips() -> dict[tuple[str, ...], tuple[str, ...]]:
    path = data_root() / "calibration" / "published" / _SLIPS_FILE
    with path.open(encoding="utf-8", newline="") as stream:
        _, *rows = csv.reader(stream)
    return {tuple(key): tuple(findings.split(";")) for *key, findings in rows}


def _listed_slips(rows: Sequence[DpuRow]) -> list[Finding]:
    known = _slips()
    keys = [(row.release, row.board, row.core, f"{row.core_count:g}", row.network) for row in rows]
    return [(index, name) for index, key in enumerate(keys) for name in known.get(key, ())]


def _check_repeats(rows: Sequence[DpuRow]) -> list[Finding]:
    """Rows whose rates are those of the same board and network in an earlier release."""
    seen: dict[tuple[object, ...], tuple[int, ...]] = {}
    repeats = []
    for index, row in sorted(enumerate(rows), key=lambda item: release_order(item[1].release)):
        rates = (str(row.single_per_s), str(row.multi_per_s))
        key = (row.board, row.core, row.core_count, _bare_name(row.network), *rates)
        order = release_order(row.release)
        if key in seen and (order > seen[key] or row in rows[:index]):
            repeats.append((index, "repeat_of_earlier_release"))
        seen.setdefault(key, order)
    return repeats


def _bare_name(network: str) -> str:
    """The name without the operations in it."""
    return _OPERATIONS.sub("", network)


def _check_operations(rows: Sequence[DpuRow]) -> list[Finding]:
    by_name: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        by_name[row.network].append(row.operations)
    operations = []
    for index, row in enumerate(rows):
        if np.isnan(row.operations):
            operations.append((index, "ops_missing"))
            continue
        if _differ(row.operations, stated_operations(row.network)):
            operations.append((index, "ops_col_disagrees_with_name"))
        if _differ(row.operations, float(np.nanmedian(by_name[row.network]))):
            operations.append((index, "ops_differ_between_rows"))
    return operations


def _differ(one: float, other: float) -> bool:
    return bool(abs(np.log(one / other)) > np.log1p(_SAME_OPERATIONS)) if other > 0 else False


def _check_rates(rows: Sequence[DpuRow]) -> list[Finding]:
    """Rates beyond the array's, and gains of all cores that are impossible."""
    rates = []
    for index, row in enumerate(rows):
        single = row.single_per_s
        multi = row.multi_per_s
        cores = max(row.core_count, 1.0)
        if row.operations * np.nanmax([single, multi, 0.0]) > row.peak_per_s * _ROUNDING:
            rates.append((index, "implied_over_peak"))
        scaling = multi / single
        if scaling < _LEAST_SCALING or scaling > cores * _HOST_SCALING:
            rates.append((index, "thread_scaling_impossible"))
    return rates
