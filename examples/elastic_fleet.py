"""A chat service whose load swings: replicas for its peak, or replicas that come and go?"""

import accelsim
from accelsim.serving.loads.arrivals import Arrivals
from accelsim.serving.replicas.autoscaling import ScalingPolicy

LOAD = Arrivals(
    rate_per_s=6.0,
    requests=5000,
    process="diurnal",
    period_s=800.0,
    swing_fraction=0.95,
    output="lognormal:40:0.6",
)


def main() -> None:
    """Print one line per way to run the fleet."""
    ways: dict[str, dict[str, object]] = {
        "three replicas": {"replicas": 3},
        "autoscaled, network storage": {"autoscale": ScalingPolicy("queue", 6.0, 1, 3)},
        "autoscaled, warm pool": {
            "autoscale": ScalingPolicy("queue", 6.0, 1, 3),
            "storage": "memory",
            "provisioning_s": 0.0,
        },
    }
    print(f"{'':30} {'replicas':>8} {'start':>6} {'TTFT p50':>9} {'TTFT p99':>9} {'$/1000':>7}")
    for name, options in ways.items():
        found = accelsim.serve("llama-3.1-8b", "l40s", LOAD, intervals=False, **options)
        (pool,) = found.pools
        start = "" if pool["cold_start_s"] is None else f"{pool['cold_start_s']:.0f} s"
        ttft = [f"{1e3 * (found.ttft_s[part] or 0):.0f} ms" for part in ("p50", "p99")]
        cost = found.cost_usd_per_1000_requests or 0.0
        count = pool["mean_replicas"]
        print(f"{name:30} {count:8.2f} {start:>6} {ttft[0]:>9} {ttft[1]:>9} {cost:7.3f}")


if __name__ == "__main__":
    main()
