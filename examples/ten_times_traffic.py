"""Ten times the traffic next year: the bill of each month, and what carries ten times the load."""

from pathlib import Path

import accelsim

SCENARIO = Path(__file__).with_suffix(".yaml")


def main() -> None:
    """Print cost by month and the fleets of today and at ten times the load."""
    plan = accelsim.plan(SCENARIO)
    for month, cost in enumerate(plan.cost_by_month):
        print(f"month {month:2}: " + ("no fleet" if cost is None else f"{cost:6.0f} $"))
    if plan.recommended is not None:
        words = " + ".join(f"{one.count} x {one.offer}" for one in plan.recommended.offers)
        print(f"today: {words}")
    for row in plan.sensitivity:
        if row["parameter"] == "load_ratio" and row["value"] == 10.0:
            print(
                "x 10:  " + " + ".join(f"{one['count']} x {one['offer']}" for one in row["offers"])
            )


if __name__ == "__main__":
    main()
