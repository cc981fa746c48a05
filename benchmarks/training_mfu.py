"""How much of its peak each device of the catalogue uses in training, at most.

No published run of a language model comes near 0.85 of the peak. Products run at the rate that a
board, or its class, sustains; whatever else a step has takes time besides.

Run: python benchmarks/training_mfu.py [--models NAME ...] [--devices NAME ...]. Prints the highest
shares and exits 1 where one is above 0.85.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from itertools import product

import accelsim
from accelsim.errors import InputError

MOST = 0.85
FORMATS = ("bf16", "fp16", "fp8", "tf32", "fp32")
#: Tokens of a sequence, and sequences of a microbatch.
SHAPES = ((4096, 16), (65_536, 1))


def shares(models: Iterable[str], devices: Iterable[str]) -> Iterator[tuple[float, str]]:
    """Share of the peak, and of which run, of each that a device can do."""
    for model, device, precision, shape in product(models, devices, FORMATS, SHAPES):
        plan = f"microbatch={shape[1]},recompute=none"
        asked = {"device": device, "precision": precision, "seq_len": shape[0], "plan": plan}
        try:
            found = accelsim.train(model, check_memory=False, **asked)
        except InputError:  # it does not train, or not in this format
            continue
        yield found.mfu_fraction or 0.0, f"{model} on {device}, {precision}, {shape[0]} tokens"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=["llama-3.1-8b", "llama-3.1-70b"])
    parser.add_argument("--devices", nargs="+", default=accelsim.device_names())
    asked = parser.parse_args()
    found = sorted(shares(asked.models, asked.devices), reverse=True)
    for share, run in found[:10]:
        print(f"{share:.3f} {run}")
    above = sum(share > MOST for share, _ in found)
    print(f"{len(found):,} runs, {above} above {MOST}")
    sys.exit(above > 0)


if __name__ == "__main__":
    main()
