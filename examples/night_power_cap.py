"""A power cap at night: the fleet of the day, and one that keeps 400 W at a third of the load."""

from pathlib import Path

import accelsim
from accelsim.capacity.scenario import scenario_content

SCENARIO = Path(__file__).with_suffix(".yaml")
SECONDS_PER_MONTH = 8766 / 12 * 3600


def main() -> None:
    """Print cost and mean power without the cap, with it, and with it at a third of the load."""
    content = scenario_content(SCENARIO)
    load = content["services"][0]["requests_per_s"]
    cap = content.pop("constraints")
    cases = (("day", load, {}), ("day, capped", load, cap), ("night, capped", load / 3, cap))
    for name, rate, constraints in cases:
        content["services"][0]["requests_per_s"] = rate
        plan = accelsim.plan({**content, "constraints": constraints})
        best = plan.recommended
        if best is None:
            print(f"{name:14} no fleet: {', '.join(plan.conflicts)}")
            continue
        energy = best.energy_j_per_month
        watts = "unknown" if energy is None else f"{energy / SECONDS_PER_MONTH:5.0f} W"
        words = " + ".join(f"{one.count} x {one.device}" for one in best.offers)
        print(f"{name:14} {words:20} {best.cost_usd_per_month:6.0f} $ {watts}")


if __name__ == "__main__":
    main()
