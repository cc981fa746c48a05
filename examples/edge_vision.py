"""Joules per image at the edge: FPGA, GPU or CPU, one image at a time.

Small boards run MobileNet-v2 and ResNet-50 at batch 1, each in the precision it runs best.
"""

import accelsim

DEVICES = ("zcu104", "kv260", "jetson-agx-orin-64gb", "t4", "edge-tpu", "core-i9-13900k")
MODELS = ("mobilenet-v2", "resnet-50")


def main() -> None:
    """Print latency, power and energy per image."""
    print(f"{'model':14} {'device':22} {'precision':9} {'latency':>10} {'power':>9} {'energy':>10}")
    for model in MODELS:
        for device in DEVICES:
            run = accelsim.estimate(model, device, batch=1, execution="compiled")
            latency = "does not fit" if run.latency_s is None else f"{1e3 * run.latency_s:.2f} ms"
            power = "unknown" if run.average_power_w is None else f"{run.average_power_w:.1f} W"
            energy = (
                "unknown"
                if run.energy_per_sample_j is None
                else f"{1e3 * run.energy_per_sample_j:.0f} mJ"
            )
            print(f"{model:14} {device:22} {run.precision:9} {latency:>10} {power:>9} {energy:>10}")


if __name__ == "__main__":
    main()
