"""3 GPU nodes or 5 CPU nodes for BERT: which carries the load when instances fail?"""

from pathlib import Path

import accelsim
from accelsim.capacity.scenario import scenario_content

SCENARIO = Path(__file__).with_suffix(".yaml")
NODES = (("t4", 3), ("graviton3", 5))


def main() -> None:
    """Print cost, headroom and how sure each is."""
    content = scenario_content(SCENARIO)
    for device, count in NODES:
        content["candidates"]["devices"] = [device]
        constraints = {**content["constraints"], "instance_count": count}
        plan = accelsim.plan({**content, "constraints": constraints})
        best = plan.recommended
        if best is None:
            print(f"up to {count} of {device}: no, {', '.join(plan.conflicts)}")
            continue
        words = " + ".join(f"{one.count} x {one.offer}" for one in best.offers)
        print(
            f"up to {count} of {device}: {words}, {best.cost_usd_per_month:.0f} $ a month, "
            f"headroom {best.headroom_fraction:.0%}, latency holds in {best.slo_probability:.0%}"
        )


if __name__ == "__main__":
    main()
