"""A day of chat: Llama-3.1-8B on a fleet for its peak, and on H100s that come and go with the load.

`llm_day.yaml` asks which fleet carries the peak; then the day is simulated with fixed numbers of
replicas and with autoscaling.
"""

from pathlib import Path

import accelsim
from accelsim.serving.replicas.autoscaling import ScalingPolicy

DAY = accelsim.Arrivals(
    rate_per_s=20.0,
    requests=12_000,
    process="diurnal",
    period_s=600.0,
    swing_fraction=0.9,
    prompt="lognormal:600:0.8",
    output="lognormal:160:0.6",
)


def main() -> None:
    """Print the fleet of the peak; latency, energy and cost of a day of 10 minutes, to be quick."""
    peak = accelsim.plan(Path(__file__).with_suffix(".yaml"))
    print(peak.reason)
    policy = ScalingPolicy("utilisation", 0.6, 1, 6, interval_s=5.0, hold_s=20.0)
    cases = (("1 replica", 1, None), ("3 replicas", 3, None), ("1 to 6", 2, policy))
    print(f"{'replicas':11} {'p99 TTFT':>9} {'p99 TPOT':>9} {'energy':>9} {'$/1M tokens':>11}")
    for name, replicas, autoscale in cases:
        found = accelsim.serve(
            "llama-3.1-8b",
            "h100-sxm-80gb",
            DAY,
            replicas=replicas,
            autoscale=autoscale,
            provisioning_s=5.0 if autoscale else None,
            intervals=False,
        )
        ttft, tpot = ((part["p99"] or 0.0) * 1e3 for part in (found.ttft_s, found.tpot_s))
        energy = "unknown" if found.energy_j is None else f"{found.energy_j / 3.6e6:5.2f} kWh"
        cost = found.cost_usd_per_million_tokens
        paid = "unknown" if cost is None else f"{cost:.3f}"
        print(f"{name:11} {ttft:6.0f} ms {tpot:6.1f} ms {energy:>9} {paid:>11}")


if __name__ == "__main__":
    main()
