"""A chat service on one H100 as its load grows: waiting, energy and cost."""

import accelsim
from accelsim.serving.loads.arrivals import Arrivals


def main() -> None:
    """Print one line per rate."""
    print(f"{'requests/s':>10} {'TTFT p99':>10} {'TPOT p50':>10} {'utilised':>9} {'J/token':>8}")
    for rate in (2.0, 8.0, 16.0):
        load = Arrivals(rate_per_s=rate, requests=400)
        found = accelsim.serve("llama-3.1-8b", "h100-sxm-80gb", load, intervals=False)
        ttft = f"{1e3 * (found.ttft_s['p99'] or 0):.1f} ms"
        tpot = f"{1e3 * (found.tpot_s['p50'] or 0):.2f} ms"
        energy = (
            "unknown" if found.energy_j_per_token is None else f"{found.energy_j_per_token:.2f}"
        )
        print(f"{rate:10.0f} {ttft:>10} {tpot:>10} {found.utilisation_fraction:9.1%} {energy:>8}")


if __name__ == "__main__":
    main()
