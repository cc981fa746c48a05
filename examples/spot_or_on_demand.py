"""Spot or on-demand: the cheapest way to train BERT-large as preemptions become more frequent."""

from pathlib import Path

import accelsim
from accelsim.capacity.scenario import scenario_content

SCENARIO = Path(__file__).with_suffix(".yaml")


def main() -> None:
    """Print the fleet by mean time between preemptions."""
    content = scenario_content(SCENARIO)
    print(f"{'preempted every':>15} {'offer':40} {'takes':>7} {'cost':>7} {'in time':>7}")
    for minutes in (10_000, 60, 15, 2):
        content["reliability"] = {"spot_mtbf_s": minutes * 60.0}
        best = accelsim.plan(content).recommended
        if best is None:
            print(f"{minutes:11} min no fleet")
            continue
        placed = best.placement[0]
        hours, sure = placed["time_s"] / 3600, f"{best.deadline_probability:.0%}"
        words = f"{placed['count']} x {placed['offer']}"
        print(f"{minutes:11} min {words:40} {hours:5.1f} h {placed['cost_usd']:5.0f} $ {sure:>7}")


if __name__ == "__main__":
    main()
