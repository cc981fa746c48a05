"""How far does a recommender scale? DLRM on 1 to 8 nodes, its tables spread over all ranks.

What is looked up crosses the network in every step, so that more nodes pay less and less.
"""

import accelsim

NODES = (1, 2, 4, 8)
PER_DEVICE = 8192


def main() -> None:
    """One line for each size of the cluster."""
    alone = 0.0
    for nodes in NODES:
        devices = 8 * nodes
        found = accelsim.train(
            "dlrm-v2-mlperf",
            cluster="dgx-superpod-a100",
            gpus=devices,
            global_batch=PER_DEVICE * devices,
            plan=f"microbatch={PER_DEVICE}",
        )
        alone = alone or found.samples_per_s / devices
        share = found.samples_per_s / devices / alone
        exchanged = found.time_s["expert"] / found.iteration_s
        print(
            f"{devices:3} devices: {found.samples_per_s / 1e6:5.1f} M samples/s, "
            f"{100 * share:3.0f} % of linear, tables exchanged {100 * exchanged:2.0f} % of it, "
            f"{found.memory_bytes / 1e9:4.1f} GB a device"
        )


if __name__ == "__main__":
    main()
