"""How the peer's rounding of cached tokens shows in the times of its requests.

``python benchmarks/serving_equivalence.py [FOLDER]``: mean and percentiles of TTFT, time per token
and whole requests beside Vidur's, per cent, with cached tokens exact, rounded up to a multiple of
64 as the peer does (microsoft/vidur, sklearn_execution_time_predictor.py), and rounded down.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from pathlib import Path

from accelsim.scoreboard.data_folder import data_folder
from accelsim.serving.steps.combined_steps import StepsAround
from tools.scoreboard.serving_vidur import (
    ATTENTION,
    LAYERS,
    RUNS,
    figures,
    kernel_steps,
    requests,
    simulated,
)

FOLDER = Path("../shared/reference")
GRAIN = 64


@dataclass(frozen=True, slots=True)
class RoundedSteps(StepsAround):
    """Steps at cached tokens rounded by `rounding`, a function of their number over the grain."""

    rounding: object

    def _rounded(self, cached: float) -> float:
        return GRAIN * self.rounding(int(cached) / GRAIN)

    def step(self, tokens, keys, count, context):
        """One step."""
        if tokens:
            own = 0.5 * (tokens + 1)
            cached = keys / tokens - own
            keys = tokens * (self._rounded(cached) + own) if cached >= 0 else keys
        context = count * self._rounded(context / count) if count else context
        return self.inner.step(tokens, keys, count, context)

    def decode_run(self, count, context, n):
        """Steps one by one."""
        each = (self.step(0, 0, count, context + count * place) for place in range(n))
        return tuple(map(sum, zip(*each, strict=True)))


def main() -> None:
    folder = data_folder(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
    steps = kernel_steps(folder.table(LAYERS), folder.table(ATTENTION))
    kinds = {
        "exact": steps,
        "up": RoundedSteps(steps, math.ceil),
        "down": RoundedSteps(steps, math.floor),
    }
    for count, table in RUNS.items():
        run = folder.table(table)
        truth = figures({name: run[name] for name in ("ttft", "tpot", "e2e")})
        for kind, own in kinds.items():
            found = figures(simulated(requests(run), own))
            off = [f"{name} {100 * (found[name] / truth[name] - 1):+.2f}" for name in truth]
            print(f"{count:,} requests, {kind}: " + ", ".join(off))


if __name__ == "__main__":
    main()
