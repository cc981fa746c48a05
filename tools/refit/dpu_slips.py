"""Slips of the pen in the table of DPU throughput: rates far from what everything else says.

A slip is a rate far from the best linear prediction from everything else: the operations' trend on
the platform, and the network's rows on other platforms and in other releases, each as far as it
tells. Sister rows are the same network on the same architecture, on another board or in another
release, with times scaled to one clock. What is found is listed beside the published tables, where
the suite reads it: ``python -m tools.refit.dpu_slips DATA calibration/published``.
"""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from accelsim.scoreboard.data_folder import DataFolder
from accelsim.workloads.graph import FloatArray
from tools.scoreboard.dpu import SCHEMA, runs_of
from tools.scoreboard.dpu_check import (
    SLIP_FIELDS,
    SLIPS_FILE,
    DpuRow,
    Finding,
    bare_core,
    bare_name,
    check_rates,
    slip_key,
)

__all__ = ["find_slips", "write_slips"]

_SLIP_NAMES = {"single": "single_thread_slip", "multi": "multi_thread_slip"}
#: Rate over the median of its sisters that tells a slip: boards of one release, and releases of one
#: board.
_SISTER_BOARDS = {"single": 1.29, "multi": 2.6}
_SISTER_RELEASES = 2.2
_LEAST_SISTERS = 3
#: Standard deviations of ln(rate) about the platform's trend that rows of a network share:
#: everywhere, on one kind of core, on one platform, in one release of a kind of core; and a row's
#: own.
_NETWORK, _KIND, _PLATFORM, _RELEASE, _ROW = 0.8, 0.3, 0.1, 0.15, 0.2
#: Distance from the prediction, in its standard deviations, that tells a slip.
_SLIP_SCORE = 4.0
#: Rates of a platform fall as operations to this power: small networks use overlays badly.
_OPERATIONS_POWER = -0.8
_POLISHES = 4


def find_slips(rows: Sequence[DpuRow]) -> list[tuple[str, ...]]:
    """The slips of each row; empty where there are none. Order of `rows` does not matter."""
    found: list[list[str]] = [[] for _ in rows]
    slips = _check_slips(rows)
    for index, name in slips:
        found[index].append(name)
    bad = {index for index, _ in (*slips, *check_rates(rows))}
    trusted = [index for index in range(len(rows)) if index not in bad]
    for place, name in _check_sisters([rows[index] for index in trusted]):
        found[trusted[place]].append(name)
    return [tuple(names) for names in found]


def write_slips(folder: DataFolder, out: Path) -> int:
    """List the slips of a folder's table.

    Args:
        folder: With the table of throughput.
        out: Folder of the list.

    Returns:
        Rows listed.
    """
    table = folder.table(SCHEMA)
    rows = [] if table is None else runs_of(table).rows
    listed = {
        slip_key(row): (*slip_key(row), ";".join(names))
        for row, names in zip(rows, find_slips(rows), strict=True)
        if names
    }
    with (out / SLIPS_FILE).open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream, lineterminator="\n").writerows([SLIP_FIELDS, *sorted(listed.values())])
    return len(listed)


def _check_slips(rows: Sequence[DpuRow]) -> list[Finding]:
    """Rates far from what the network's other rows and its operations say, the farthest first."""
    found = []
    for mode, name in _SLIP_NAMES.items():
        stated = [i for i, row in enumerate(rows) if np.isfinite(getattr(row, f"{mode}_per_s"))]
        if stated:
            some = [rows[i] for i in stated]
            rates = np.log([getattr(row, f"{mode}_per_s") for row in some])
            found += [(stated[place], name) for place in _slips(some, rates)]
    return found


def _slips(rows: Sequence[DpuRow], rates: FloatArray) -> list[int]:
    """Rows farther from their prediction than its spread allows; each is left out before the next
    is sought.
    """
    network = _codes([bare_name(row.network) for row in rows])
    platform = _codes(
        [(row.board.split(" (")[0], row.core, row.core_count, row.clock_hz) for row in rows]
    )
    kind = _codes([bare_core(row.core).split("_")[0] for row in rows])
    release = _codes([row.release for row in rows])
    residual = _off_trend(rows, rates, platform)
    found: list[int] = []
    for members in _groups(network):
        same = [code[members][:, None] == code[members] for code in (kind, platform, release)]
        spread = (
            _NETWORK**2
            + _KIND**2 * same[0]
            + _PLATFORM**2 * same[1]
            + _RELEASE**2 * (same[0] & same[2])
        )
        spread = spread + _ROW**2 * np.eye(len(members))
        kept = np.arange(len(members))
        while kept.size:
            inverse = np.linalg.inv(spread[np.ix_(kept, kept)])
            score = np.abs(inverse @ residual[members[kept]]) / np.sqrt(np.diag(inverse))
            worst = int(np.argmax(score))
            if score[worst] < _SLIP_SCORE:
                break
            found.append(int(members[kept[worst]]))
            kept = np.delete(kept, worst)
    return found


def _off_trend(
    rows: Sequence[DpuRow], rates: FloatArray, platform: NDArray[np.int64]
) -> FloatArray:
    """ln of each rate over its platform's usual one for so many operations; the usual one of all
    where none are stated.
    """
    operations = np.log([row.operations for row in rows])
    known = np.isfinite(operations)
    residual = rates - _OPERATIONS_POWER * np.where(
        known, operations, np.nanmedian(operations) if known.any() else 0.0
    )
    network = _codes([bare_name(row.network) for row in rows])
    platform_effect = _group_medians(residual, platform)
    for _ in range(_POLISHES):  # median polish (Tukey, Exploratory Data Analysis, 1977)
        network_effect = _group_medians(residual - platform_effect, network)
        platform_effect = _group_medians(residual - network_effect, platform)
    return residual - platform_effect


def _codes(keys: Sequence[object]) -> NDArray[np.int64]:
    """A number for each distinct key, shape (n,)."""
    known: dict[object, int] = {}
    return np.array([known.setdefault(key, len(known)) for key in keys], dtype=np.int64)


def _groups(code: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    order = np.argsort(code, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(code[order])) + 1)


def _group_medians(values: FloatArray, code: NDArray[np.int64]) -> FloatArray:
    """The median of each value's group, not counting what is unknown; 0 where nothing is known."""
    medians = np.zeros(len(values))
    for members in _groups(code):
        known = values[members][np.isfinite(values[members])]
        medians[members] = np.median(known) if known.size else 0.0
    return medians


def _check_sisters(rows: Sequence[DpuRow]) -> list[Finding]:
    """Rates far from the median of their sisters: per clock and core on other boards, as they are
    in other releases.
    """
    found = []
    for name, limit in _SISTER_BOARDS.items():
        rates = np.array([getattr(row, f"{name}_per_s") for row in rows])
        scaled = rates / np.array(
            [row.clock_hz * (row.core_count if name == "multi" else 1.0) for row in rows]
        )
        boards = [(bare_core(row.core), bare_name(row.network), row.release) for row in rows]
        releases = [(row.board, row.core, row.core_count, bare_name(row.network)) for row in rows]
        out = {*_outliers(scaled, boards, limit), *_outliers(rates, releases, _SISTER_RELEASES)}
        found += [(index, f"{name}_thread_outlier_vs_sister_boards") for index in sorted(out)]
    return found


def _outliers(rates: FloatArray, keys: Sequence[tuple[object, ...]], limit: float) -> list[int]:
    """Rows beyond `limit` times, or below a `limit`th of, the median of three or more rows of one
    key.
    """
    groups: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for index, key in enumerate(keys):
        if np.isfinite(rates[index]):
            groups[key].append(index)
    out = []
    for members in groups.values():
        if len(members) >= _LEAST_SISTERS:
            middle = float(np.median(rates[members]))
            out += [i for i in members if abs(np.log(rates[i] / middle)) > np.log(limit)]
    return out


if __name__ == "__main__":
    write_slips(DataFolder(Path(sys.argv[1])), Path(sys.argv[2]))
