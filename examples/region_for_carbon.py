"""A region for carbon: where a vision service emits the least, and what that costs."""

from pathlib import Path

import accelsim
from accelsim.capacity.scenario import scenario_content

SCENARIO = Path(__file__).with_suffix(".yaml")


def main() -> None:
    """Print the fleets of least cost and least carbon, by both ways of counting carbon."""
    content = scenario_content(SCENARIO)
    print(f"{'least':8} {'basis':9} {'fleet':46} {'cost':>10} {'carbon':>11}")
    for objective in ("cost", "carbon"):
        for basis in ("location", "market"):
            content |= {"objective": objective, "constraints": {"carbon_basis": basis}}
            best = accelsim.plan(content).recommended
            if best is None:
                print(f"{objective:8} {basis:9} no fleet")
                continue
            fleet = " + ".join(f"{one.count} x {one.offer}" for one in best.offers)
            carbon = best.carbon_kgco2e_per_month
            emitted = "unknown" if carbon is None else f"{carbon:6.1f} kg"
            cost = f"{best.cost_usd_per_month:8.0f} $"
            print(f"{objective:8} {basis:9} {fleet:46} {cost:>10} {emitted:>11}")


if __name__ == "__main__":
    main()
