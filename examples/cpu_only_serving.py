"""When CPU-only serving wins: the cheapest fleet by load."""

from pathlib import Path

import accelsim
from accelsim.capacity.scenario import scenario_content

SCENARIO = Path(__file__).with_suffix(".yaml")


def main() -> None:
    """Print the cheapest fleet and the runner-up by requests per second."""
    content = scenario_content(SCENARIO)
    for load in (1.0, 10.0, 100.0):
        content["services"][0]["requests_per_s"] = load
        plan = accelsim.plan(content)
        fleets = [fleet for fleet in (plan.recommended, *plan.alternatives[:1]) if fleet]
        words = [
            f"{' + '.join(f'{one.count} x {one.device}' for one in fleet.offers)}, "
            f"{fleet.cost_usd_per_month:.0f} $"
            for fleet in fleets
        ]
        print(f"{load:6.0f} requests/s: {'; then '.join(words)}")


if __name__ == "__main__":
    main()
