"""BERT-large by Friday: the cheapest fleet, the runners-up, and what another deadline costs."""

from pathlib import Path

import accelsim
from accelsim.capacity.scenario import scenario_content

SCENARIO = Path(__file__).with_suffix(".yaml")


def main() -> None:
    """Print the fleet for deadlines of one hour to two days."""
    content = scenario_content(SCENARIO)
    print(f"{'deadline':>8} {'fleet':44} {'takes':>7} {'cost':>9} {'in time':>7}")
    for hours in (1, 2, 48):
        content["training_jobs"][0]["deadline_s"] = hours * 3600.0
        plan = accelsim.plan(content)
        best = plan.recommended
        if best is None:
            print(f"{hours:6} h  no fleet: {', '.join(plan.conflicts)}")
            continue
        placed, offer = best.placement[0], best.offers[0]
        fleet = f"{offer.count} x {offer.offer}"
        taken = placed["time_s"] / 3600
        sure = f"{best.deadline_probability:.0%}"
        print(f"{hours:6} h {fleet:44} {taken:5.1f} h {placed['cost_usd']:7.0f} $ {sure:>7}")


if __name__ == "__main__":
    main()
