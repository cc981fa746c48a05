"""Checks of claims on the catalogue and on runs of it: counts, sums, ratios and measured loops."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from itertools import pairwise

import numpy as np

import accelsim
from accelsim import catalog
from accelsim.claims.claim import Reading
from accelsim.claims.closed_forms import CLOSED_FORMS
from accelsim.claims.peaks import asic_peaks
from accelsim.claims.scenarios import scenario_figure
from accelsim.claims.taxonomy import DISTRIBUTED, SHARED, TAXONOMY
from accelsim.hardware.profile import CpuProfile, GpuProfile
from accelsim.workloads.operator import OperatorKind

Check = Callable[[], list[Reading]]
_SEED = 20_250


def lane_counts() -> list[Reading]:
    """Cores of CPUs and lanes of GPUs over the catalogue."""
    profiles = [catalog.device(name) for name in catalog.device_names()]
    cores = [p.core_count.value for p in profiles if isinstance(p, CpuProfile)]
    lanes = [
        p.sm_count.value * p.lanes_per_sm.value
        for p in profiles
        if isinstance(p, GpuProfile) and p.vendor == "NVIDIA"
    ]
    return [
        Reading("least cores of a CPU", float(min(cores)), 4.0),
        Reading("most cores of a CPU", float(max(cores)), 192.0),
        Reading("fewest lanes of an NVIDIA GPU", float(min(lanes)), at_least=100),
        Reading("devices in the catalogue", float(len(profiles)), at_least=140),
    ]


def device_list() -> list[Reading]:
    """Profiles that say class, peak, memory and the source of both."""
    profiles = [catalog.device(name) for name in catalog.device_names()]
    complete = [
        p
        for p in profiles
        if p.device_class and p.peak_flop_per_s and p.memory.capacity_bytes.source
    ]
    return [
        Reading("profiles", float(len(profiles)), at_least=140),
        Reading("share with class, peak, memory and source", len(complete) / len(profiles), 1.0),
    ]


def clock_or_width() -> list[Reading]:
    """Lanes times clock of a V100 over cores times clock of 64 cores.

    Estimate: each lane and each core does one operation a cycle.
    """
    gpu, cpu = catalog.device("v100-sxm2-16gb"), catalog.device("epyc-7763")
    if not isinstance(gpu, GpuProfile) or not isinstance(cpu, CpuProfile):
        return []
    lanes = gpu.sm_count.value * gpu.lanes_per_sm.value
    work = lanes * gpu.boost_clock_hz.value / (cpu.core_count.value * cpu.base_clock_hz.value)
    return [Reading("aggregate lanes times clock over cores times clock", work, at_least=10.0)]


def quoted_peaks() -> list[Reading]:
    """Peaks that Nervana quotes, and those of its arrays."""
    peaks = {p.device: p for p in asic_peaks(["nnp-t-1300", "nnp-t-1400"]) if p.dtype == "bf16"}
    expected = {"nnp-t-1300": (93.39e12, 85.6e12), "nnp-t-1400": (119e12, 108.1e12)}
    return [
        reading
        for name, (quoted, derived) in expected.items()
        for reading in (
            Reading(f"{name} quoted, FLOP/s", peaks[name].quoted_flop_per_s, quoted, 0.005),
            Reading(
                f"{name} derived, FLOP/s",
                peaks[name].derived_flop_per_s * peaks[name].rate,
                derived,
                0.005,
            ),
        )
    ]


def convolutions() -> list[Reading]:
    """Multiply-adds of convolutions as products of im2col matrices; F(2x2, 3x3) of Winograd needs
    16 multiplies in place of 36 (Lavin and Gray, CVPR 2016).
    """
    readings = []
    for name in ("alexnet", "vgg-16", "resnet-50", "googlenet", "mobilenet-v2"):
        graph = accelsim.simulate(name, "t4", batch=1, precision="fp32").passes[0].graph
        rows = np.flatnonzero(graph.kind == OperatorKind.CONV)
        sizes = [
            graph.dimension(dimension, rows, OperatorKind.CONV)
            for dimension in (
                *("batch", "out_d", "out_h", "out_w", "channels_out"),
                *("channels_in", "kernel_d", "kernel_h", "kernel_w"),
            )
        ]
        groups = graph.dimension("groups", rows, OperatorKind.CONV)
        product = np.prod(sizes, axis=0) / groups
        ratio = float(graph.flop[rows].sum() / (2.0 * product.sum()))
        readings.append(Reading(f"FLOP over 2 m n k of im2col, {name}", ratio, 1.0))
    return readings


def activations() -> list[Reading]:
    """Large elementwise operators move 8 bytes an element at the memory's bandwidth."""
    readings = []
    for device in ("t4", "v100-sxm2-16gb", "a100-sxm-80gb", "h200-sxm-141gb"):
        run = accelsim.simulate("vgg-16", device, batch=64, precision="fp32")
        table, graph = run.passes[0].table, run.passes[0].graph
        is_relu = graph.kind == OperatorKind.ELEMENTWISE
        row = int(np.flatnonzero(is_relu)[np.argmax(table.bytes[is_relu])])
        bandwidth = run.run.device.memory_bandwidth_bytes_per_s or math.nan
        ratio = float(table.time_s[row] * bandwidth / table.bytes[row])
        readings.append(Reading(f"time over bytes at full bandwidth, {device}", ratio, 1.0, 0.15))
    return readings


def epochs() -> list[Reading]:
    """Time of an epoch is linear in its samples: correlation of time with samples."""
    samples = np.logspace(4, 8, 9)
    run = accelsim.estimate(
        "resnet-50", "v100-sxm2-16gb", batch=64, mode="training", usd_per_hour=1
    )
    costs = [run.cost_of_samples_usd(float(count)) for count in samples]
    r2 = float(np.corrcoef(samples, np.array(costs, dtype=float))[0, 1] ** 2)
    return [Reading("R2 of time against samples", r2, at_least=0.999)]


def more_data() -> list[Reading]:
    """For the same money, samples go as speedup times the ratio of prices."""
    fast, slow = (
        accelsim.estimate("resnet-50", name, batch=64, mode="training", usd_per_hour=price)
        for name, price in (("v100-sxm2-16gb", 2.48), ("xeon-e5-2690-v4", 0.38))
    )
    spent = [run.cost_of_samples_usd(1e6) or math.nan for run in (fast, slow)]
    speedup = (fast.throughput_per_s or math.nan) / (slow.throughput_per_s or math.nan)
    ratio = spent[1] / spent[0]
    return [Reading("samples per USD over speedup x price", ratio / (speedup * 0.38 / 2.48), 1.0)]


def generations() -> list[Reading]:
    """The same training step on each generation of data centre GPUs."""
    names = (
        "k40",
        "p100-pcie-16gb",
        "v100-sxm2-16gb",
        "a100-sxm-80gb",
        "h100-sxm-80gb",
        "b200-sxm",
    )
    compared = accelsim.compare("resnet-50", names, modes="training", batch=64)
    rates = {row.device: row.estimate.throughput_per_s for row in compared if row.estimate}
    return [
        Reading(
            f"{new} over {old}", (rates[new] or math.nan) / (rates[old] or math.nan), at_least=1.0
        )
        for old, new in pairwise(names)
    ]


def families() -> list[Reading]:
    """One model of each family on a GPU and a CPU: times are finite, energies above 0."""
    models = (
        "resnet-50",
        "mobilenet-v2",
        "vgg-16",
        "densenet-121",
        "efficientnet-b0",
        "inception-v3",
        "bert-base",
        "gpt2",
        "t5-small",
        "vit-b-16",
        "lstm-lm-medium",
        "gru-shakespeare",
        "gnmt",
        "unet",
        "ncf-ml-20m",
        "whisper-small",
        "wav2vec2-base",
        "ssd300-vgg16",
        "yolo-v8n",
        "stable-diffusion-vae-decoder",
        "text-cnn",
    )
    compared = accelsim.compare(models, ["t4", "xeon-platinum-8380"], batch=1)
    estimates = [row.estimate for row in compared if row.estimate and row.estimate.latency_s]
    sound = [
        e for e in estimates if math.isfinite(e.latency_s or math.nan) and (e.energy_j or 0.0) > 0.0
    ]
    return [Reading(f"share of {len(compared)} runs that finish", len(sound) / len(compared), 1.0)]


def loops() -> list[Reading]:
    """Python's loop over numpy's for a million products, measured here and now."""
    left, right = np.random.default_rng(_SEED).random((2, 1_000_000))
    left_list, right_list, result = left.tolist(), right.tolist(), np.empty_like(left)

    def scalar() -> None:
        products = [0.0] * len(left_list)
        for index in range(len(left_list)):
            products[index] = left_list[index] * right_list[index]

    ratio = _least_s(scalar) / _least_s(lambda: np.multiply(left, right, out=result))
    return [Reading("loop over numpy, 1e6 products", ratio, at_least=30.0)]


def layer_loops() -> list[Reading]:
    """A dense layer as loops over numpy's BLAS, measured here and now."""
    weights, inputs = np.random.default_rng(_SEED).random((2, 64, 64))
    rows, columns = weights.tolist(), inputs.T.tolist()

    def scalar() -> list[list[float]]:
        return [[sum(map(float.__mul__, row, column)) for column in columns] for row in rows]

    ratio = _least_s(scalar) / _least_s(lambda: weights @ inputs)
    return [Reading("loops over BLAS, 64 x 64 x 64", ratio, at_least=100.0)]


def bandwidth() -> list[Reading]:
    """TPU v1 with more and less memory bandwidth: MLP0, which it binds, follows."""
    device = catalog.device("tpu-v1")
    readings = []
    for factor in (0.25, 0.5, 1.5):
        rate = device.memory.bandwidth_bytes_per_s
        if rate is None:
            return []
        changed = rate.model_copy(update={"value": factor * rate.value})
        memory = device.memory.model_copy(update={"bandwidth_bytes_per_s": changed})
        changed_device = device.model_copy(update={"memory": memory})
        rates = [
            accelsim.estimate("tpu-v1-mlp0", variant, batch=100).throughput_per_s or math.nan
            for variant in (device, changed_device)
        ]
        name = f"throughput of MLP0 at {factor:g} of the bandwidth"
        readings.append(Reading(name, rates[1] / rates[0], factor, 0.1))
    return readings


def bert_on_cpu() -> list[Reading]:
    """Years of both phases of BERT-large's pretraining on one socket: batches of LAMB (You et al.
    2020, arXiv:1904.00962), steps of NVIDIA's run of it (DeepLearningExamples, BERT).
    """
    total_s = 0.0
    for samples, tokens in ((7038 * 65536, 128), (1563 * 32768, 512)):
        run = accelsim.estimate(
            "bert-large",
            "xeon-platinum-8280",
            batch=32,
            seq_len=tokens,
            precision="fp32",
            mode="training",
            optimizer="lamb",
        )
        total_s += samples / (run.throughput_per_s or math.nan)
    return [Reading("years on a Xeon 8280", total_s / (365 * 86_400), at_least=1.0)]


def six_flop() -> list[Reading]:
    """FLOP of a training step over 6 N T, of language models (Kaplan et al. 2020, arXiv:2001.08361,
    section 2.1).
    """
    readings = []
    for name in ("gpt3-small", "gpt3-xl", "gpt3-6.7b", "gpt3-13b"):
        run = accelsim.estimate(name, "b300-sxm", batch=1, seq_len=2048, mode="training")
        ratio = run.flop / (6.0 * run.parameter_count * 2048)
        readings.append(Reading(f"FLOP over 6 N T, {name}", ratio, 1.0, 0.15))
    return readings


def replicas() -> list[Reading]:
    """Weights and optimizer state of each of four replicas, and its part of the batch."""
    alone, four = (
        accelsim.train(
            "bert-large",
            device="a100-sxm-80gb",
            gpus=count,
            global_batch=8 * count,
            plan="microbatch=8",
            seq_len=128,
        )
        for count in (1, 4)
    )
    parts = ("weight_bytes", "gradient_bytes", "optimizer_bytes", "activation_bytes")
    return [
        Reading(f"{name} of a replica over alone", four.memory[name] / alone.memory[name], 1.0)
        for name in parts
    ]


def tree() -> list[Reading]:
    """Leaves of the tree of devices and ways to part a model; each one's scenario takes time."""
    leaves = {
        branch: ", ".join(way.name for way in TAXONOMY if way.branch == branch)
        for branch in dict.fromkeys(way.branch for way in TAXONOMY)
    }
    times = [scenario_figure(way.scenario) for way in TAXONOMY]
    runs = sum(isinstance(time_s, float) and time_s > 0 for time_s in times)
    return [
        Reading("devices whose lanes share a memory", leaves[SHARED], "CPU, GPU, FPGA, ASIC"),
        Reading("ways over several memories", leaves[DISTRIBUTED], "data, model, pipeline"),
        Reading("share of scenarios that run", runs / len(TAXONOMY), 1.0),
    ]


def _least_s(work: Callable[[], object]) -> float:
    """Least of five times, in seconds."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


_ALL: tuple[Check, ...] = (
    *CLOSED_FORMS,
    lane_counts,
    device_list,
    clock_or_width,
    quoted_peaks,
    convolutions,
    activations,
    epochs,
    more_data,
    generations,
    families,
    loops,
    layer_loops,
    bandwidth,
    bert_on_cpu,
    six_flop,
    replicas,
    tree,
)
#: Checks by the names that scenarios give them.
CHECKS: Mapping[str, Check] = {check.__name__: check for check in _ALL}
