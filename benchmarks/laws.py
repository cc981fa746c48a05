"""Which laws of batches, compilers and larger devices the estimates break: pairs asked, breaks, the
worst.

A larger batch takes no less time, and loses at most a fifth of a smaller one's throughput; a
replayed network is never slower than an eager one, nor a compiled one than a replayed one; a device
with a fifth more peak, bandwidth, both, or cores is never slower. Every device of a class is asked
in each way that its class has, with each model that it runs so.

Run: python benchmarks/laws.py [gpu cpu fpga asic] [--models NAME ...|all] [--batches N ...]. Exits
1 if a law is broken. Prints breaks one by one, then a line for each law and way.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, pairwise, product
from typing import Any, NamedTuple

import numpy as np

from accelsim import catalog, estimate
from accelsim.catalog import workloads as workload_catalog
from accelsim.errors import AccelsimError
from accelsim.estimation.estimate_many import estimate_many
from accelsim.hardware.profile import FpgaProfile

#: Of floating-point sums.
NOISE = 1e-9
#: Least share of the best smaller batch's throughput.
KEPT = 0.8
BATCHES = (1, 2, 3, 4, 6, 8, 9, 12, 16, 17, 24, 32, 33, 48, 64, 65, 96, 97, 128, 129, 256, 300, 512)
MODELS = (
    "resnet-50",
    "mobilenet-v2",
    "bert-base",
    "gpt2",
    "fcn-5-26752",
    "ncf-ml-20m",
    "gbdt-higgs",
)
Way = Mapping[str, Any]
TRAINING = {"mode": "training"}
LAUNCHES = ({"execution": "eager"}, {"execution": "graph"}, {"execution": "compiled"})
CALLS = ({"execution": "eager"}, {"execution": "compiled-calls"})
#: Ways of a class, each with those that may be no slower than the one before.
WAYS: Mapping[str, tuple[tuple[Way, ...], ...]] = {
    "gpu": (
        LAUNCHES,
        CALLS,
        tuple(way | TRAINING for way in LAUNCHES),
        tuple(way | TRAINING for way in CALLS),
        ({"precision": "fp32"},),
        ({"precision": "w8a16"},),
        ({"stack": "tensorrt"},),
        ({"stack": "tensorrt", "precision": "int8"},),
        ({"stack": "onnxruntime"},),
        ({"stack": "xla"},),
        ({"stack": "vllm"},),
        ({"stack": "vllm", "precision": "w4a16"},),
        ({"stack": "vllm", "precision": "fp8"},),
        ({"stack": "tensorrt-llm"},),
        ({"stack": "llama-cpp", "precision": "q4_k_m"},),
    ),
    "cpu": (
        LAUNCHES,
        tuple(way | TRAINING for way in LAUNCHES),
        ({"precision": "fp32"},),
        ({"precision": "int8"},),
        ({"precision": "w8a16"},),
        ({"stack": "openvino"},),
        ({"stack": "openvino", "precision": "int8"},),
        ({"stack": "onnxruntime"},),
        ({"stack": "llama-cpp", "precision": "q4_k_m"},),
    ),
    "fpga": (({},),),
    "asic": (({},), (TRAINING,)),
}
RATES = ("matrix_flop_per_s", "matrix_sparse_flop_per_s", "vector_flop_per_s")
#: Rates of a part of the devices, and what a larger device has more of.
OTHER_RATES, MORE = ("matrix_fp32_accumulate_flop_per_s",), 1.2


class Tally(NamedTuple):
    """What was asked of a law: pairs, those that break it, and the worst of their ratios."""

    pairs: int
    broken: int
    worst: float


def scaled(number, ratio):
    return number.model_copy(update={"value": number.value * ratio})


def with_rates(device, ratio):
    """All peak rates of a profile times a ratio."""
    return device.model_copy(
        update={
            table: {dtype: scaled(rate, ratio) for dtype, rate in getattr(device, table).items()}
            for table in RATES
        }
    )


def larger_devices(device):
    """The device with a fifth more memory bandwidth, peak, and both; with words for it."""
    bandwidth = device.memory.bandwidth_bytes_per_s
    wider = device.memory.model_copy(
        update={"bandwidth_bytes_per_s": bandwidth and scaled(bandwidth, MORE)}
    )
    faster = with_peak(device, MORE)
    yield "memory bandwidth 20 % more", device.model_copy(update={"memory": wider})
    yield "peak 20 % more", faster
    yield "efficiency 20 % more", faster.model_copy(update={"memory": wider})


def with_peak(device, ratio):
    """All peak rates times a ratio; of an FPGA, whose rates are its clocks times what is built, the
    clocks, too.
    """
    rates = [name for name in (*RATES, *OTHER_RATES) if hasattr(device, name)]
    changed = {
        name: {dtype: scaled(rate, ratio) for dtype, rate in getattr(device, name).items()}
        for name in rates
    }
    if isinstance(device, FpgaProfile):
        changed["fabric_clock_hz"] = device.fabric_clock_hz and scaled(
            device.fabric_clock_hz, ratio
        )
        if device.overlay is not None:
            clock = scaled(device.overlay.clock_hz, ratio)
            changed["overlay"] = device.overlay.model_copy(update={"clock_hz": clock})
    return device.model_copy(update=changed)


def with_cores(device, ratio):
    """More of the same cores with their private caches; shared ones and memory as they are."""
    cores = device.core_count.value
    count = max(round(cores * ratio), cores + 1)
    ratio = count / cores
    levels = tuple(
        level
        if level.shared_by_core_count is None or level.bandwidth_bytes_per_s is None
        else level.model_copy(
            update={"bandwidth_bytes_per_s": scaled(level.bandwidth_bytes_per_s, ratio)}
        )
        for level in device.on_chip
    )
    number = device.core_count.model_copy(update={"value": count})
    return with_rates(device, ratio).model_copy(update={"core_count": number, "on_chip": levels})


def kept_by_batches(latency_s, throughput_per_s):
    """How each batch, ascending, keeps the laws: time over the one before's, throughput over the
    best so far; runs without figures are left out.
    """
    known = np.isfinite(latency_s)
    time_s, rate = latency_s[known], throughput_per_s[known]
    return {
        "latency falls with batch": time_s[1:] / time_s[:-1],
        "throughput falls with batch": rate[1:] / np.maximum.accumulate(rate)[1:] / KEPT,
    }


def falls(latency_s, throughput_per_s):
    """Laws that batches, ascending, break."""
    kept = kept_by_batches(latency_s, throughput_per_s)
    return [law for law, ratios in kept.items() if (ratios < 1 - NOISE).any()]


def columns(model, name, way, batches):
    """Latency and throughput by batch, NaN where there is none; None where none runs."""
    try:
        found = estimate_many(model, name, shapes={"batch": np.array(batches)}, **way)
    except AccelsimError:  # a format, an operator or a way that the device lacks
        return None
    return found["latency_s"], found["throughput_per_s"]


def by_way(
    model: str, name: str, ways: tuple[Way, ...], batches: Iterable[int]
) -> Iterator[tuple[str, str, np.ndarray]]:
    """Laws of the batches of each way, and of each way and the one before."""
    found = {" ".join(map(str, way.values())): columns(model, name, way, batches) for way in ways}
    answered = {label: pair for label, pair in found.items() if pair is not None}
    for label, pair in answered.items():
        for law, ratios in kept_by_batches(*pair).items():
            yield law, label or "default", ratios
    for (slow, one), (fast, other) in pairwise(answered.items()):
        ratios = one[0] / other[0]
        yield "slower than " + slow, fast, ratios[np.isfinite(ratios)]


def by_device(
    model: str, name: str, batches: Iterable[int]
) -> Iterator[tuple[str, str, np.ndarray]]:
    """Laws of a device and one with more of something."""
    device = catalog.device(name)
    larger = list(larger_devices(device))
    if device.device_class == "cpu":
        larger.append(("cores 25 % more", with_cores(device, 1.25)))
    for batch in batches:
        try:
            base = estimate(model, name, batch=batch)
        except AccelsimError:
            return
        if base.fits:
            for words, one in larger:
                ratio = base.latency_s / estimate(model, one, batch=batch).latency_s
                yield "slower with more", words, np.array([ratio])


def scan(device_class: str, models: Iterable[str], batches: tuple[int, ...]) -> bool:
    """Print what a class breaks; whether it breaks anything."""
    names = [name for name in catalog.device_names() if "/" not in name]
    tallies: dict[tuple[str, str], Tally] = {}
    for model, name in product(models, names):
        if catalog.device(name).device_class != device_class:
            continue
        ways = (by_way(model, name, way, batches) for way in WAYS[device_class])
        for law, way, ratios in chain(*ways, by_device(model, name, batches[::6])):
            broken, worst = int((ratios < 1 - NOISE).sum()), float(ratios.min(initial=np.inf))
            if broken:
                print(f"{law}, {way}: {model} on {name}, {broken} times, {worst:.4f}", flush=True)
            pairs, before, least = tallies.get((law, way), Tally(0, 0, np.inf))
            tallies[law, way] = Tally(pairs + len(ratios), before + broken, min(least, worst))
    for (law, way), tally in sorted(tallies.items()):
        counts = f"{tally.pairs:8,} pairs {tally.broken:5,} broken, worst {tally.worst:.4f}"
        print(f"{device_class:5}{law:28}{way:28}{counts}", flush=True)
    return any(tally.broken for tally in tallies.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("classes", nargs="*", default=list(WAYS))
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--batches", nargs="+", type=int, default=BATCHES)
    asked = parser.parse_args()
    models = workload_catalog.workload_names() if asked.models == ["all"] else asked.models
    found = [scan(name, models, tuple(asked.batches)) for name in asked.classes]
    sys.exit(any(found))


if __name__ == "__main__":
    main()
