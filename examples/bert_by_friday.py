"""BERT-large by Friday: the cheapest fleet, the runners-up, and what another deadline costs."""

from pathlib import Path

import accelsim
from accelsim.capacity.scenario import scenario_content

SCENARIO = Path(__file__).with_suffix(".yaml")


def main() -> None:
    """Print the fleet for deadlines of one to four days."""
    content = scenario_content(SCENARIO)
    print(f"{'deadline':>8} {'fleet':44} {'takes':>7} {'cost':>9} {'in time':>7}")
    for days in (1, 2, 4):
        content["training_jobs"][0]["deadline_s"] = days * 86_400.0
        plan = accelsim.plan(content)
        best = plan.recommended
        if best is None:
            print(f"{days:6} d  no fleet: {', '.join(plan.conflicts)}")
            continue
        placed, offer = best.placement[0], best.offers[0]
        fleet = f"{offer.count} x {offer.offer}"
        hours = placed["time_s"] / 3600
        sure = f"{best.deadline_probability:.0%}"
        print(f"{days:6} d {fleet:44} {hours:5.1f} h {placed['cost_usd']:7.0f} $ {sure:>7}")


if __name__ == "__main__":
    main()
