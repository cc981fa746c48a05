"""How often fleets recommended in the examples keep their limits, beside how often it is claimed.

Other arrivals and another error of the model are drawn by 20 fixed seeds.

    python benchmarks/plan_holds.py
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import accelsim
from accelsim.capacity.replica_answers import ReplicaLoad
from accelsim.capacity.scenario import load_scenario
from accelsim.capacity.token_service import TokenAnswer, service_answers

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
#: Examples of services that are soon simulated, and the others.
SOON = (
    *("gpu_or_cpu_nodes", "night_power_cap", "cpu_only_serving", "vision_api"),
    *("region_for_carbon", "ten_times_traffic"),
)
OTHERS = ("llm_day", "chat")
SEEDS = range(1, 21)


def outcomes(scenario: Any) -> tuple[list[bool], float]:
    """Whether a recommended service keeps its limits with other arrivals and another error of the
    model, drawn by each seed, and how often that is claimed.

    Args:
        scenario: A scenario of one service.
    """
    asked = load_scenario(scenario)
    plan = accelsim.plan(asked)
    (placed,), (service,) = plan.recommended.placement, asked.services
    answers = service_answers(service, placed["device"], asked.seed)
    answer = next(one for one in answers if one.about["tp"] == placed["tp"])
    held = []
    for seed in SEEDS:
        other = answer
        if isinstance(answer, TokenAnswer):
            layouts = replace(answer.layouts, seed=seed)
            other = TokenAnswer(layouts, layouts.of(answer.first.plan.options))
        else:
            other = replace(answer, seed=seed, known={})
        z = float(np.random.default_rng([seed, 7]).standard_normal())
        rate = ReplicaLoad(service.peak_per_s, z)
        held.append(other.holds(placed["replicas"], rate, ReplicaLoad(service.peak_per_s)))
    return held, plan.recommended.slo_probability


def binomial(found: Sequence[tuple[Sequence[bool], float]]) -> float:
    """p of as many or fewer, or more, that hold, of all outcomes together."""
    from scipy.stats import binomtest

    held = sum(sum(each) for each, _ in found)
    whole = sum(len(each) for each, _ in found)
    claimed = sum(len(each) * sure for each, sure in found) / whole
    return float(binomtest(held, whole, claimed).pvalue)


def main() -> None:
    """Print a line for each example, and p of all together."""
    found = []
    for name in (*SOON, *OTHERS):
        found.append(outcomes(EXAMPLES / f"{name}.yaml"))
        held, claimed = found[-1]
        print(f"{name}: {sum(held)} of {len(held)} hold, {100 * claimed:.0f} % claimed")
    print(f"p = {binomial(found):.3f} of all together")


if __name__ == "__main__":
    main()
