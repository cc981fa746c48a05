"""Cost and energy of fine-tuning BERT-large on SQuAD for two epochs, per device.

SQuAD 1.1 has 87,599 training questions (Rajpurkar et al., EMNLP 2016); sequences are cut to 384
tokens as in the BERT paper. Each device trains at the largest power-of-two batch that fits its
memory, up to 32.
"""

import accelsim

SAMPLES = 87_599
EPOCHS = 2
DEVICES = (
    "v100-sxm2-16gb",
    "a10g",
    "l40s",
    "a100-sxm-80gb",
    "h100-sxm-80gb",
    "mi300x",
    "tpu-v4",
    "gaudi2",
    "trainium1",
)


def largest_batch(device: str) -> accelsim.Estimate | None:
    """The training step at the largest batch that fits."""
    for batch in (32, 16, 8, 4, 2, 1):
        run = accelsim.estimate("bert-large", device, mode="training", batch=batch, seq_len=384)
        if run.fits:
            return run
    return None


def main() -> None:
    """Print one line per device."""
    print(f"{'device':16} batch precision    hours      kWh       USD")
    for device in DEVICES:
        run = largest_batch(device)
        if run is None or run.throughput_per_s is None:
            print(f"{device:16} does not fit")
            continue
        seconds = EPOCHS * SAMPLES / run.throughput_per_s
        kwh = (
            "unknown"
            if run.average_power_w is None
            else f"{run.average_power_w * seconds / 3.6e6:.2f}"
        )
        usd = "unknown" if run.usd_per_hour is None else f"{run.usd_per_hour * seconds / 3600:.2f}"
        print(
            f"{device:16} {run.batch:5} {run.precision:9} {seconds / 3600:8.2f} {kwh:>8} {usd:>9}"
        )


if __name__ == "__main__":
    main()
