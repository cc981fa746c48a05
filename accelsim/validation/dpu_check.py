"""Checks rows of DPU throughput tables: repeats, operations that are none, rates beyond the array,
impossible scaling.

Published tables repeat an earlier release's row, mix multiply-adds with operations, and hold slips
of the pen. Each check names what is wrong with a row; a row may fail several. Sister rows are the
same network on the same architecture, on another board or in another release, with times scaled to
one clock.

A slip is a rate far from the best linear prediction from everything else: the operations' trend on
the platform, and the network's rows on other platforms and in other releases, each as far as it
tells.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accelsim.workloads.graph import FloatArray

__all__ = ["CHECKS", "DpuRow", "bare_core", "check_rows", "stated_operations"]

CHECKS = (
    "repeat_of_earlier_release",
    "ops_missing",
    "ops_col_disagrees_with_name",
    "ops_differ_between_rows",
    "implied_over_peak",
    "thread_scaling_impossible",
    "single_thread_slip",
    "multi_thread_slip",
    "single_thread_outlier_vs_sister_boards",
    "multi_thread_outlier_vs_sister_boards",
)
_SLIP_NAMES = {"single": "single_thread_slip", "multi": "multi_thread_slip"}
#: Largest relative difference of operations stated twice.
_SAME_OPERATIONS = 0.25
#: All cores are never slower than one thread, which they could run as well; rates are printed
#: rounded.
_LEAST_SCALING = 0.995
#: Most that all cores gain over one thread, per core: host work that one thread waits for runs on
#: four processors.
_HOST_SCALING = 4.1
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
#: Peaks and operations are printed rounded.
_ROUNDING = 1.001
_OPERATIONS = re.compile(r"_(\d+(?:\.\d+)?)([GM])(?:_[\d.]+)?$")


@dataclass(frozen=True, slots=True)
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
    found = _OPERATIONS.search(network)
    if found is None:
        return float("nan")
    return float(found[1]) * (1e9 if found[2] == "G" else 1e6)


def bare_core(core: str) -> str:
    """The architecture without the letter of its packaging: B4096F is B4096."""
    return core.rstrip("F") if core.startswith("DPUCZDX8G") else core


def check_rows(rows: Sequence[DpuRow]) -> list[tuple[str, ...]]:
    """What is wrong with each row; empty where nothing is. Order of `rows` does not matter but for
    equal releases.
    """
    found: list[list[str]] = [[] for _ in rows]
    for check in (_check_repeats, _check_operations, _check_rates, _check_slips):
        for index, name in check(rows):
            if name not in found[index]:
                found[index].append(name)
    bad_rates = {"implied_over_peak", "thread_scaling_impossible", *_SLIP_NAMES.values()}
    trusted = [index for index, names in enumerate(found) if bad_rates.isdisjoint(names)]
    for place, name in _check_sisters([rows[index] for index in trusted]):
        found[trusted[place]].append(name)
    return [tuple(names) for names in found]


Finding = tuple[int, str]


def _release_order(release: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", release))


def _check_repeats(rows: Sequence[DpuRow]) -> list[Finding]:
    """Rows whose rates are those of the same board and network in an earlier release."""
    seen: dict[tuple[object, ...], tuple[int, ...]] = {}
    found = []
    for index in sorted(range(len(rows)), key=lambda i: _release_order(rows[i].release)):
        row = rows[index]
        rates = (row.single_per_s, row.multi_per_s)
        key = (
            row.board,
            row.core,
            row.core_count,
            _bare_name(row.network),
            *(str(rate) for rate in rates),
        )
        order = _release_order(row.release)
        if key in seen and (order > seen[key] or rows[index] in rows[:index]):
            found.append((index, "repeat_of_earlier_release"))
        seen.setdefault(key, order)
    return found


def _bare_name(network: str) -> str:
    return _OPERATIONS.sub("", network)


def _check_operations(rows: Sequence[DpuRow]) -> list[Finding]:
    by_name: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        by_name[row.network].append(row.operations)
    found = []
    for index, row in enumerate(rows):
        if np.isnan(row.operations):
            found.append((index, "ops_missing"))
            continue
        if _differ(row.operations, stated_operations(row.network)):
            found.append((index, "ops_col_disagrees_with_name"))
        if _differ(row.operations, float(np.nanmedian(by_name[row.network]))):
            found.append((index, "ops_differ_between_rows"))
    return found


def _differ(one: float, other: float) -> bool:
    return bool(abs(np.log(one / other)) > np.log1p(_SAME_OPERATIONS)) if other > 0 else False


def _check_rates(rows: Sequence[DpuRow]) -> list[Finding]:
    found = []
    for index, row in enumerate(rows):
        single, multi, cores = row.single_per_s, row.multi_per_s, max(row.core_count, 1.0)
        if row.operations * np.nanmax([single, multi, 0.0]) > row.peak_per_s * _ROUNDING:
            found.append((index, "implied_over_peak"))
        scaling = multi / single
        if scaling < _LEAST_SCALING or scaling > cores * _HOST_SCALING:
            found.append((index, "thread_scaling_impossible"))
    return found


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
    network = _codes([_bare_name(row.network) for row in rows])
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
    network = _codes([_bare_name(row.network) for row in rows])
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
        boards = [(bare_core(row.core), _bare_name(row.network), row.release) for row in rows]
        releases = [(row.board, row.core, row.core_count, _bare_name(row.network)) for row in rows]
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
