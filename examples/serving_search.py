"""The cheapest ways to serve Llama-3.1-70B with a token every 40 ms, scored and simulated."""

import accelsim
from accelsim.serving.search import SearchSpace, search


def main() -> None:
    """Print the simulated layouts, cheapest first."""
    load = accelsim.Arrivals(users=1, requests=300, prompt="1000", output="300")
    targets = accelsim.ServingOptions(slo=accelsim.SloTargets(tpot_s=0.04))
    space = SearchSpace(
        devices=("h100-sxm-80gb", "h200-sxm-141gb"),
        precisions=("bf16", "fp8"),
        max_seqs=(16, 32, 64, 128),
        max_batch_tokens=(8192,),
    )
    found = search("llama-3.1-70b", load, targets, space, simulate=3)
    tried = f"{found.considered_count} configurations, {len(found.pareto)} on the front"
    print(f"{tried}, {sum(found.rejected.values())} without room")
    for row in found.simulated:
        layout = f"{row['device']} {row['precision']} tp {row['tp']}, {row['max_seqs']} sequences"
        cost = row["simulated_usd_per_million_tokens"]
        print(
            f"{layout:<42} {1e3 * row['simulated_tpot_s']:5.1f} ms  ${cost:.2f} per million tokens"
        )


if __name__ == "__main__":
    main()
