"""Errors planted in a throughput table are found, and good rows are let pass."""

from dataclasses import replace

import numpy as np
import pytest

from tools.refit.dpu_slips import find_slips
from tools.scoreboard.dpu_check import DpuRow, check_rows

NAN = float("nan")
#: Board, core, cores, clock, operations per second of a core, share of peak, host threads' gain;
#: multi-thread only where 0.
PLATFORMS = (
    ("ZCU102 (0432055-05)", "DPUCZDX8G_B4096", 3, 281e6, 1.15e12, 0.4, 1.1),
    ("ZCU104", "DPUCZDX8G_B4096", 2, 300e6, 1.23e12, 0.4, 1.05),
    ("Kria KV260", "DPUCZDX8G_B4096F", 1, 300e6, 1.23e12, 0.42, 1.2),
    ("Versal VCK190", "DPUCVDX8G_AIE", 96, 1333e6, 3.2e11, 0.15, 0.02),
    ("Alveo U50", "DPUCAHX8H", 6, 300e6, 1e12, 0.35, 0.0),
    ("Alveo U280", "DPUCAHX8H", 14, 150e6, 5e11, 0.35, 0.0),
    ("Versal ACAP VCK5000", "DPUCVDX8H", 4, 350e6, 1.1e13, 0.2, 0.0),
)


def table(random):
    """About a thousand rows of sixty networks: what rows share is drawn as it spreads in published
    tables.
    """
    rows = []
    for number in range(60):
        operations = 1e9 * float(np.exp(random.normal(2.0, 1.3)))
        network, of_kind = random.normal(0.0, 0.4), {}
        for board, core, cores, clock, peak, share, gain in PLATFORMS:
            kind = of_kind.setdefault(core.rstrip("F"), random.normal(0.0, 0.25))
            for release in ("v2.0", "v2.5", "v3.0"):
                if random.random() < 0.25:
                    continue
                rate = share * peak / operations * (operations / 1e10) ** 0.2
                rate *= float(np.exp(min(network, 0.5) + kind + random.normal(0.0, 0.08)))
                rate = min(rate, 0.8 * peak / operations)
                scaling = max(1.03, cores * gain) * float(np.exp(abs(random.normal(0.0, 0.02))))
                single = rate if gain else NAN
                multi = min(rate * (scaling if gain else cores), 0.9 * peak * cores / operations)
                name = f"pt_net{number}_224_224_{operations / 1e9:.2f}G"
                rows.append(
                    DpuRow(
                        release,
                        board,
                        core,
                        cores,
                        clock,
                        name,
                        operations,
                        single,
                        multi,
                        peak * cores,
                    )
                )
    return rows


def times(row, factor, *modes):
    return replace(
        row, **{f"{mode}_per_s": factor * getattr(row, f"{mode}_per_s") for mode in modes}
    )


def swapped(row, _random):
    return (
        replace(row, single_per_s=row.multi_per_s, multi_per_s=row.single_per_s)
        if row.single_per_s > 0
        else None
    )


def one_of(random, row):
    return "multi" if np.isnan(row.single_per_s) else random.choice(["single", "multi"])


PLANTS = {
    "tenfold": lambda row, _: times(row, 10.0, "single", "multi"),
    "a tenth": lambda row, _: times(row, 0.1, "single", "multi"),
    "one rate tenfold": lambda row, random: times(row, 10.0, one_of(random, row)),
    "one rate a tenth": lambda row, random: times(row, 0.1, one_of(random, row)),
    "single and multi swapped": swapped,
    "multiply-adds for operations": lambda row, _: replace(row, operations=row.operations / 2),
    "operations twice": lambda row, _: replace(row, operations=row.operations * 2),
    "beyond the peak": lambda row, random: times(
        row,
        random.uniform(1.1, 3.0) * row.peak_per_s / row.operations / row.multi_per_s,
        "single",
        "multi",
    ),
}
COUNT = 40


def findings(rows):
    """What the checks and the search for slips find wrong with each row."""
    return [(*bad, *slips) for bad, slips in zip(check_rows(rows), find_slips(rows), strict=True)]


def planted(rows, plant, random):
    """The table with `COUNT` rows spoilt, and which."""
    spoilt, where = list(rows), []
    for index in random.permutation(len(rows)).tolist():
        row = plant(rows[index], random)
        if row is not None:
            spoilt[index] = row
            where.append(index)
        if len(where) == COUNT:
            break
    return spoilt, set(where)


@pytest.mark.parametrize("kind", PLANTS)
def test_planted_errors_are_found_and_good_rows_pass(kind):
    found = wrong = good = 0
    for seed in range(3):
        random = np.random.default_rng(seed)
        rows, where = planted(table(random), PLANTS[kind], random)
        flagged = {index for index, names in enumerate(findings(rows)) if names}
        found += len(flagged & where)
        wrong += len(flagged - where)
        good += len(rows) - len(where)
    assert found >= 0.95 * 3 * COUNT
    assert wrong <= 0.01 * good


def test_rows_of_an_earlier_release_given_again_are_found():
    random = np.random.default_rng(0)
    rows = table(random)
    key = {(row.release, row.board, row.network): row for row in rows}
    later = [
        i
        for i, row in enumerate(rows)
        if row.release == "v3.0" and ("v2.5", row.board, row.network) in key
    ]
    where = set(random.choice(later, COUNT, replace=False).tolist())
    spoilt = list(rows)
    for index in where:
        earlier = key["v2.5", rows[index].board, rows[index].network]
        spoilt[index] = replace(
            rows[index], single_per_s=earlier.single_per_s, multi_per_s=earlier.multi_per_s
        )
    flagged = {
        index
        for index, names in enumerate(findings(spoilt))
        if "repeat_of_earlier_release" in names
    }
    assert where <= flagged
    assert len(flagged - where) <= 0.01 * len(rows)


def test_a_slip_does_not_condemn_its_sisters():
    rows = [row for row in table(np.random.default_rng(5)) if row.network.startswith("pt_net7_")]
    clean = findings(rows)
    spoilt = [times(rows[0], 10.0, "single", "multi"), *rows[1:]]
    again = findings(spoilt)
    assert again[0]
    assert again[1:] == clean[1:]


def test_no_row_and_no_rate_is_no_finding():
    assert findings([]) == []
    row = DpuRow("v3.0", "ZCU104", "DPUCZDX8G_B4096", 2, 300e6, "pt_net_1G", 1e9, NAN, NAN, 2.4e12)
    assert findings([row]) == [()]
