"""Cheapest device for an image classification API at 2,000 images per second.

ResNet-50 answers within 50 ms per batch. For each device the largest batch that keeps the latency
is taken, then as many devices as the load needs, at the cheapest on-demand price.
"""

import math

import accelsim

LOAD_IMAGES_PER_S = 2_000
LATENCY_LIMIT_S = 0.050
DEVICES = (
    "t4",
    "l4",
    "a10g",
    "v100-sxm2-16gb",
    "a100-sxm-40gb",
    "h100-sxm-80gb",
    "inferentia1",
    "tpu-v5e",
)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)


def best_batch(device: str) -> accelsim.Estimate | None:
    """The estimate with the highest throughput among the batches that meet the latency limit."""
    runs = [
        accelsim.estimate("resnet-50", device, batch=batch, execution="compiled")
        for batch in BATCHES
    ]
    in_time = [
        run
        for run in runs
        if run.latency_high_s is not None and run.latency_high_s <= LATENCY_LIMIT_S
    ]
    return max(in_time, key=lambda run: run.throughput_per_s or 0.0, default=None)


def main() -> None:
    """Print one line per device, cheapest fleet first."""
    rows = []
    for device in DEVICES:
        run = best_batch(device)
        if run is None or run.throughput_per_s is None or run.usd_per_hour is None:
            rows.append((math.inf, f"{device:16} no batch meets the limit, or no price is known"))
            continue
        count = math.ceil(LOAD_IMAGES_PER_S / run.throughput_per_s)
        fleet_usd = count * run.usd_per_hour
        speed = f"{run.throughput_per_s:8.0f} images/s"
        line = f"{device:16} batch {run.batch:3}  {speed}  x{count}  {fleet_usd:7.2f} USD/h"
        rows.append((fleet_usd, line))
    for _, line in sorted(rows):
        print(line)


if __name__ == "__main__":
    main()
