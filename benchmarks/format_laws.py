"""Which products and decode steps take longer in a narrower format than in a wider one.

At equal shape and stack, a format whose rate a GPU has in hardware for weights and activations is
never more than 2 % slower than a wider one of a lower rate: in products of 16 MB of weights or
more, and in whole decode steps of language models. Formats of weights alone, whose arithmetic is
that of BF16: in products and steps of 16 rows or fewer.

Run: python benchmarks/format_laws.py [--devices NAME ...] [--measured]. Prints each break and what
was asked; with --measured, the measured kernels (extra `silicon`) that break it, which no law can
mend. Exits 1 if an estimate breaks the law.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from itertools import combinations, product
from typing import NamedTuple

import numpy as np

from accelsim import catalog
from accelsim.catalog.stacks import stack
from accelsim.cost import registry
from accelsim.cost.table import Execution
from accelsim.dtype import PRECISIONS, Dtype, Precision
from accelsim.errors import AccelsimError
from accelsim.estimation.options import RunOptions
from accelsim.estimation.resolution import resolve
from accelsim.hardware.profile import GpuProfile
from accelsim.serving.options import ServingOptions
from accelsim.serving.steps.step_tables import pass_costs
from accelsim.workloads.graph import FloatArray
from accelsim.workloads.lowering import ShapeColumns
from accelsim.workloads.operator import Phase
from accelsim.workloads.options import ModelOptions
from tools.scoreboard.operator_columns import gemm_graph

MOST = 1.02
LEAST_BYTES, FEW_ROWS = 16e6, 16
FORMATS = ("bf16", "w8a8", "fp8", "mxfp4", "nvfp4", "w8a16", "w4a16")
ROWS = (1, 4, 16, 64, 256, 1024, 4096)
#: Columns and contraction of layers of language models.
LAYERS = ((4096, 4096), (14336, 4096), (4096, 14336), (8192, 8192), (28672, 8192), (8192, 28672))
STACKS, MODELS = ("pytorch", "vllm", "sglang", "tensorrt-llm"), ("llama-3.1-8b", "qwen3-30b-a3b")
CONTEXT = 1024


class Asked(NamedTuple):
    """Times of one format over those of a wider one, and the sizes of each."""

    what: str
    ratio: FloatArray
    sizes: list[str]


def pairs(device: GpuProfile, known: Collection[str]) -> Iterator[tuple[str, str]]:
    """Formats of which the law says that the first is no slower than the second."""
    rates = {dtype: float(rate.value) for dtype, rate in device.matrix_flop_per_s.items()}
    for first, second in combinations(known, 2):
        one, other = sorted((first, second), key=lambda name: PRECISIONS[name].weight.bytes)
        narrow, wide = PRECISIONS[one], PRECISIONS[other]
        if narrow.compute is Dtype.BF16:
            if other == "bf16":
                yield one, other
        elif narrow.weight.bytes < 0.9 * wide.weight.bytes and (
            rates.get(narrow.compute, 0.0) > rates.get(wide.compute, np.inf)
        ):
            yield one, other


def is_of_weights(name: str) -> bool:
    """Whether a format is one of weights alone."""
    return name != "bf16" and PRECISIONS[name].compute is Dtype.BF16


def products(device: GpuProfile) -> Iterator[Asked]:
    """The law of products."""
    m, n, k = (
        np.array(column, dtype=np.float64)
        for column in zip(*((m, *layer) for m, layer in product(ROWS, LAYERS)), strict=True)
    )
    plain = np.zeros(len(m), dtype=bool)

    def time_s(policy: Precision) -> FloatArray:
        graph = gemm_graph(
            np.ones(len(m)), m, n, k, policy.compute, batched=plain, output=Dtype.BF16
        )
        graph = replace(graph, weight_bytes=policy.weight.bytes * n * k)
        return registry.operator_costs(
            graph, device, Execution.GRAPH, registry.tier_parameters(device)
        ).time_s

    known = answered(time_s)
    for one, other in pairs(device, known):
        asked = PRECISIONS[one].weight.bytes * n * k >= LEAST_BYTES
        if is_of_weights(one):
            asked &= m <= FEW_ROWS
        sizes = [
            f"{a:g} x {b:g} x {c:g}" for a, b, c in zip(m[asked], n[asked], k[asked], strict=True)
        ]
        yield Asked(f"product {one} {other}", (known[one] / known[other])[asked], sizes)


def steps(device: GpuProfile, models: Collection[str] = MODELS) -> Iterator[Asked]:
    """The law of whole decode steps."""
    rows = np.array(ROWS[:5])
    shapes = ShapeColumns.of(batch=rows, seq_len=1, context_len=CONTEXT)
    for model, name in product(models, STACKS):

        def time_s(policy: Precision, model: str = model, name: str = name) -> FloatArray:
            options = ModelOptions(precision=policy.name, stack=name, kv_format="bf16")
            run = resolve(model, device, RunOptions(model=options))
            return pass_costs(run, ServingOptions(), shapes, Phase.DECODE)[:, 0]

        if not stack(name).runs(device):
            continue
        known = answered(time_s)
        for one, other in pairs(device, known):
            asked = rows <= (FEW_ROWS if is_of_weights(one) else rows.max())
            sizes = [str(count) for count in rows[asked]]
            what = f"step {one} {other} {model} {name}"
            yield Asked(what, (known[one] / known[other])[asked], sizes)


def answered(time_s: Callable[[Precision], FloatArray]) -> dict[str, FloatArray]:
    """Times of each format that a device and a stack run."""
    found = {}
    for name in FORMATS:
        try:
            found[name] = time_s(PRECISIONS[name])
        except AccelsimError:  # a format that the device or the stack lacks
            continue
    return found


def measured(system: str) -> None:
    """Print how many measured products take longer in NVFP4 than in FP8, by contraction."""
    from tools.scoreboard.aiconfigurator_rows import format_names, preferred_rows

    times: dict[str, dict[tuple[float, ...], float]] = {"fp8": {}, "nvfp4": {}}
    for rows in preferred_rows(system, "gemm"):
        sizes = np.stack([rows.sizes[side] for side in "mnk"], axis=1)
        for name, own in times.items():
            part = format_names(rows) == name
            own |= dict(zip(map(tuple, sizes[part].tolist()), rows.time_s[part], strict=True))
    narrow, wide = times["nvfp4"], times["fp8"]
    stored = PRECISIONS["nvfp4"].weight.bytes
    both = [s for s in narrow if s in wide and stored * s[1] * s[2] >= LEAST_BYTES]
    broken = [size for size in both if narrow[size] > MOST * wide[size]]
    by_k = {k: sum(size[2] == k for size in broken) for k in sorted({size[2] for size in broken})}
    found = ", ".join(f"k {k:g}: {count}" for k, count in by_k.items())
    print(f"measured, {system}: NVFP4 above FP8 in {len(broken)} of {len(both)} products ({found})")


def scan(device: GpuProfile) -> tuple[int, int]:
    """Print what a board breaks; pairs asked and broken."""
    count = broken = 0
    for asked in (*products(device), *steps(device)):
        over = asked.ratio > MOST
        count, broken = count + len(over), broken + int(over.sum())
        for place in np.flatnonzero(over).tolist():
            ratio = asked.ratio[place]
            print(f"{device.name}: {asked.what}, {asked.sizes[place]}: {ratio:.3f}", flush=True)
    return count, broken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", nargs="+", default=catalog.device_names())
    parser.add_argument("--measured", action="store_true")
    asked = parser.parse_args()
    totals = np.zeros(2, dtype=int)
    for name in asked.devices:
        device = catalog.device(name)
        if isinstance(device, GpuProfile) and "/" not in name:
            totals += scan(device)
    if asked.measured:
        for system in ("b200_sxm", "b300_sxm", "gb200", "gb300", "rtx_pro_6000_server"):
            measured(system)
    print(f"{totals[0]:,} pairs, {totals[1]} broken")
    sys.exit(bool(totals[1]))


if __name__ == "__main__":
    main()
