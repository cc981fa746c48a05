"""ResNet-50 on a T4 at 300 images/s: how long should a batch wait to be filled?"""

import accelsim
from accelsim.serving.loads.arrivals import Arrivals


def main() -> None:
    """Print one line per window."""
    load = Arrivals(rate_per_s=300.0, requests=3000, prompt="1", output="0")
    print(f"{'window':>7} {'p50':>9} {'p99':>9} {'utilised':>9} {'J/image':>8}")
    for window_s in (0.0, 0.005, 0.02, 0.05):
        found = accelsim.serve(
            "resnet-50", "t4", load, max_seqs=16, batch_window_s=window_s, intervals=False
        )
        p50, p99 = (f"{1e3 * (found.e2e_s[part] or 0):.1f} ms" for part in ("p50", "p99"))
        energy = (
            "unknown" if found.energy_j_per_token is None else f"{found.energy_j_per_token:.3f}"
        )
        window = f"{1e3 * window_s:.0f} ms"
        print(f"{window:>7} {p50:>9} {p99:>9} {found.utilisation_fraction:9.1%} {energy:>8}")


if __name__ == "__main__":
    main()
