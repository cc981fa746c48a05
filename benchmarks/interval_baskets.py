"""Do 90 % intervals of whole models hold on sums of operators that no fit has seen? Random baskets
of measured operators.

A basket is drawn like a model: kinds of operators with shares of the time, a few shapes of each.
Its measured over its predicted time is that of its rows, its interval the one a model of these rows
would get. At tier `spec` each chip is predicted by parameters fitted without it, at tier `fitted`
rows are those kept from its overlay. Rows count from 0.5 ms on, where an eager call shows its
kernel. The second table splits long rows' errors into what a board shares over all kinds, what it
shares within a kind, and what is a shape's own (random effects, method of moments), with ranges
over boards drawn anew.

``python benchmarks/interval_baskets.py --data DIR [--tier spec|fitted]``
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from accelsim.confidence.residual import LONG_S, run_log_sigma
from accelsim.cost.table import Execution
from accelsim.scoreboard.data_folder import data_folder
from accelsim.scoreboard.split import held_out_mask
from accelsim.scoreboard.tiers import choose
from accelsim.workloads.operator import OperatorKind
from tools.scoreboard.gpu_operators import KernelPrediction, load

K = OperatorKind
#: Share of the time and number of shapes of each kind in a basket. The first is the mix of
#: NeuSight's transformers.
MIXES: Mapping[str, Mapping[int, tuple[float, int]]] = {
    "transformer": {
        K.GEMM: (0.65, 10),
        K.BATCHED_GEMM: (0.10, 4),
        K.ELEMENTWISE: (0.15, 10),
        K.SOFTMAX: (0.05, 2),
        K.LAYER_NORM: (0.05, 2),
    },
    "convolutional": {K.CONV: (0.7, 15), K.ELEMENTWISE: (0.3, 10)},
    "products": {K.GEMM: (0.7, 10), K.BATCHED_GEMM: (0.3, 4)},
    "elementwise": {K.ELEMENTWISE: (1.0, 10)},
}
BASKETS, FEWEST_ROWS, INSIDE = 500, 15, 1.645


@dataclass(frozen=True)
class Sample:
    """Long rows of one kind on one board: ln(measured / predicted), and their spread; shape (n,)
    each.
    """

    error: np.ndarray
    sigma: np.ndarray
    shared: np.ndarray


def samples(data: Path, tier: str) -> dict[tuple[str, int], Sample]:
    """Rows of eager single operators by board and kind."""
    found: dict[tuple[str, int], list[Sample]] = {}
    for batch in load(data_folder(data)):
        kernels = batch.predict
        if not isinstance(kernels, KernelPrediction) or kernels.execution is not Execution.EAGER:
            continue
        choice = choose(kernels.profile, tier)
        if choice.refusal or (tier == "fitted" and not choice.saw_operators):
            continue
        unseen = (
            held_out_mask(batch.label.tolist(), batch.held_out_share) if tier == "fitted" else True
        )
        rows = np.flatnonzero((batch.measured_s > LONG_S) & unseen)
        part = kernels.take(rows)
        costs = part.costs(choice.parameters)
        error = np.log(batch.measured_s[rows] / part.call_s(costs, choice.parameters))
        for kind in np.unique(part.graph.kind).tolist():
            own = part.graph.kind == kind
            sample = Sample(error[own], costs.log_sigma[own], costs.shared_log_sigma[own])
            found.setdefault((kernels.profile.name, kind), []).append(sample)
    joined = {
        key: Sample(
            *(np.concatenate(c) for c in zip(*(vars(s).values() for s in own), strict=True))
        )
        for key, own in found.items()
    }
    return {key: sample for key, sample in joined.items() if len(sample.error) >= FEWEST_ROWS}


def basket(
    own: Mapping[int, Sample], mix: Mapping[int, tuple[float, int]], random: np.random.Generator
) -> tuple[float, float]:
    """ln(measured / predicted) of one basket, and its spread."""
    kinds, shares, parts = [], [], []
    for kind, (share, count) in mix.items():
        rows = random.choice(len(own[kind].error), min(count, len(own[kind].error)), replace=False)
        kinds += [kind] * len(rows)
        shares.append(share * random.dirichlet(np.ones(len(rows))))
        parts.append([own[kind].error[rows], own[kind].sigma[rows], own[kind].shared[rows]])
    error, sigma, shared = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    time = np.concatenate(shares)
    return float(np.log(time @ np.exp(error))), run_log_sigma(np.array(kinds), time, sigma, shared)


def show_coverage(found: Mapping[tuple[str, int], Sample]) -> None:
    """Share of baskets inside their interval, by mix and board."""
    random = np.random.default_rng(0)
    boards = sorted({board for board, _ in found})
    for name, mix in MIXES.items():
        cover, width, bias = {}, {}, {}
        for board in boards:
            own = {kind: found[board, kind] for kind in mix if (board, kind) in found}
            if len(own) < len(mix):
                continue
            drawn = np.array([basket(own, mix, random) for _ in range(BASKETS)])
            cover[board] = float((np.abs(drawn[:, 0]) < INSIDE * drawn[:, 1]).mean())
            width[board], bias[board] = drawn[:, 1].mean(), drawn[:, 0].mean()
        print(
            f"{name:14s} {np.mean(list(cover.values())):6.1%} of baskets on {len(cover)} boards",
            end=": ",
        )
        print(
            ", ".join(
                f"{b} {c:.0%} (sigma {width[b]:.2f}, bias {bias[b]:+.2f})" for b, c in cover.items()
            )
        )


def components(biases: np.ndarray, within: np.ndarray) -> tuple[float, float, float]:
    """Variances of ln(time): shared by all kinds of a board, by one kind's rows beyond that, by a
    row alone.

    Args:
        biases: Mean error by board and kind, shape (boards, kinds); NaN where nothing was measured.
        within: Variance of the rows around it.
    """
    centred = biases - np.nanmean(biases, axis=0)
    boards = len(biases) / max(len(biases) - 1, 1)
    kinds = range(biases.shape[1])
    pairs = np.concatenate([centred[:, a] * centred[:, b] for a in kinds for b in kinds if a < b])
    device = max(boards * float(np.nanmean(pairs)), 0.0)
    return (
        device,
        max(boards * float(np.nanmean(centred**2)) - device, 0.0),
        float(np.nanmean(within)),
    )


def show_components(found: Mapping[tuple[str, int], Sample]) -> None:
    """Random effects of boards, kinds and shapes, and their range over boards drawn with
    replacement.
    """
    kinds = sorted({kind for _, kind in found})
    boards = sorted({board for board, _ in found})
    table = np.full((2, len(boards), len(kinds)), np.nan)
    for (board, kind), sample in found.items():
        place = boards.index(board), kinds.index(kind)
        table[0][place] = np.median(sample.error)
        table[1][place] = (
            np.quantile(np.abs(sample.error - np.median(sample.error)), 0.9) / INSIDE
        ) ** 2
    random = np.random.default_rng(1)
    drawn = [random.choice(len(boards), len(boards)) for _ in range(500)]
    trials = np.array(
        [components(table[0][rows], table[1][rows]) for rows in drawn if len(set(rows)) > 2]
    )
    for name, value, range_ in zip(
        ("board", "board and kind", "shape"), components(*table), trials.T, strict=True
    ):
        low, high = np.sqrt(np.quantile(range_, [0.05, 0.95]))
        print(f"{name:14s} standard deviation {np.sqrt(value):.3f} ({low:.3f} to {high:.3f})")
    device, own, _ = components(*table)
    print(f"correlation of two kinds on a board: {device / (device + own):.2f}")


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of measured tables")
    parser.add_argument("--tier", choices=["spec", "fitted"], default="spec")
    options = parser.parse_args()
    if options.data is None:
        print("measured tables are needed: --data DIR")
        return
    found = samples(options.data, options.tier)
    show_coverage(found)
    show_components(found)


if __name__ == "__main__":
    main()
