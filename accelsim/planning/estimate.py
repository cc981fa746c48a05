"""Estimate one run: time, energy, memory and cost of a model on a device, with an interval and what
limits it.

The scenario is lowered to passes, each pass costed by the device's model and run through the device
simulator; passes add. The interval widens with each operator kind's share of the time: the part of
the error that one kind shares on one device does not average out (a bias of all its GEMMs), the
part of each shape does, and different kinds are independent.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from accelsim.cost.idle import idle_power_w
from accelsim.cost.registry import operator_costs, tier_parameters
from accelsim.cost.residual import run_log_sigma
from accelsim.cost.table import Bound, CostTable, Execution, Tier
from accelsim.economics.result import usd_per_1000_inferences, usd_per_epoch, usd_per_million_tokens
from accelsim.hardware.profile import DeviceProfile
from accelsim.planning.evidence import Evidence, evidence
from accelsim.planning.passes import Pass, Plan, plan_passes
from accelsim.planning.price import DevicePrice, device_price
from accelsim.planning.scenario import Scenario
from accelsim.simulation.device import SimulationResult, simulate_device
from accelsim.workloads.dtype import Precision
from accelsim.workloads.graph import IntArray, OperatorGraph
from accelsim.workloads.model import Workload
from accelsim.workloads.operator import CONV_KINDS, OperatorKind

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

__all__ = ["NESTED", "Estimate", "OperatorShare", "estimate"]

#: Two-sided standard normal quantile of the 90 % interval.
_Z90: Final = 1.6448536269514722
_INTERVAL_LEVEL: Final = 0.9
#: Host link where a profile names none: PCIe 3.0 x16, 15.75 GB/s per direction (PCI-SIG), the
#: slowest common slot.
_DEFAULT_HOST_LINK_BYTES_PER_S: Final = 15.75e9
_TOP_OPERATORS: Final = 10
#: Figures of an estimate that are no scalars.
NESTED: Final = frozenset({"memory", "operators", "energy_parts_j", "relatives", "evidence"})
#: Share of the arithmetic from which on a model is one of convolutions.
_CONVOLUTIONAL: Final = 0.5
#: Host time to launch a captured graph: NVIDIA, "Constant-time launch for straight-line CUDA
#: graphs" (2024), CUDA 12.6.
_GRAPH_LAUNCH_S: Final = 2.5e-6


@dataclass(frozen=True, slots=True)
class OperatorShare:
    """One operator's part of the device time of an iteration."""

    name: str
    kind: str
    time_s: float
    bound: str
    share_fraction: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a run takes; unknown figures are None, and all times are None where the model does not
    fit.

    Attributes:
        workload: Workload name.
        device: Device name.
        batch: Samples or sequences per iteration.
        precision: Precision policy.
        mode: "inference" or "training".
        execution: "eager", "graph" or "compiled".
        latency_s: One batch alone, from its copy to the device to its result: a training step, a
            forward pass, or prefill and all generated tokens.
        throughput_per_s: Samples (sequences) per second, batches back to back.
        latency_low_s: Lower end of the interval.
        latency_high_s: Upper end.
        interval_level: Probability the interval is meant to hold.
        tier: "spec", "fitted" or "measured".
        bound: What limits the run: compute, memory, launch, host_copy.
        energy_j: Device energy per iteration in steady state.
        average_power_w: Its mean power.
        memory_bytes: Peak memory of the run.
        fits: Whether that is within the device's memory.
        memory_short_bytes: Bytes missing where it does not fit, else 0.
        flop: Model FLOP of an iteration (matrix arithmetic, multiply-add = 2).
        bytes: Bytes the operators read and write, each counted alone.
        cost_usd_per_1000: USD per 1,000 samples (sequences).
        offer: Price used, provider/region/instance[:kind].
        usd_per_hour: That price for this device.
        cost_usd_per_million_tokens: USD per million generated tokens.
        time_to_first_token_s: Prefill latency of an autoregressive run.
        time_per_output_token_s: Mean decode step.
        tokens_per_s: Generated tokens per second, whole batch.
        energy_per_sample_j: Energy over batch.
        parameter_count: Parameters of the model.
        memory: Memory by use, in bytes.
        seq_len: Input tokens per sequence; 0 where there are none.
        output_len: Generated tokens per sequence.
        operators: Largest operators, by device time.
        host: Device that ran what this one cannot; None where all ran here.
        relatives: Measured boards whose kernel surfaces stand for the device's own, nearest first.
        evidence: What the estimate rests on and what its like was validated on; None where the
            model does not fit.
        extrapolated_fraction: Share of the device time outside the sizes that were measured; None
            where none were.
        energy_tier: "parts" where the energy is the sum of the chip's parts, each at a sourced
            coefficient of its node and width; "class" where it comes from the class's rates per
            operation and byte.
        energy_parts_j: Energy per iteration by part, idle power as "static"; they add up to
            `energy_j`. None without parts.
        energy_note: The coefficient that is missing where a chip of a class with parts has none.
        sparse_weights: Whether weights were taken to have the chip's structured sparsity.
        heap: "default", or "kept" where the memory allocator was taken to keep what is freed.
        trained_positions: Tokens of a sequence the model was trained on; None where that is not
            known.
    """

    workload: str
    device: str
    batch: int
    precision: str
    mode: str
    execution: str
    latency_s: float | None
    throughput_per_s: float | None
    latency_low_s: float | None
    latency_high_s: float | None
    interval_level: float
    tier: str
    bound: str | None
    energy_j: float | None
    average_power_w: float | None
    memory_bytes: float
    fits: bool
    memory_short_bytes: float
    flop: float
    bytes: float
    cost_usd_per_1000: float | None
    offer: str | None
    usd_per_hour: float | None
    cost_usd_per_million_tokens: float | None
    time_to_first_token_s: float | None
    time_per_output_token_s: float | None
    tokens_per_s: float | None
    energy_per_sample_j: float | None
    parameter_count: int
    memory: Mapping[str, float]
    seq_len: int
    output_len: int
    operators: tuple[OperatorShare, ...]
    host: str | None = None
    extrapolated_fraction: float | None = None
    relatives: tuple[str, ...] = ()
    evidence: Evidence | None = None
    energy_tier: str = "class"
    energy_parts_j: Mapping[str, float] | None = None
    energy_note: str = ""
    sparse_weights: bool = False
    heap: str = "default"
    trained_positions: int | None = None

    def cost_of_samples_usd(self, sample_count: float) -> float | None:
        """What so many samples (sequences) cost: an epoch is its training set's, a training run
        that times its epochs.

        Args:
            sample_count: Samples, > 0.

        Returns:
            USD; None where the price is unknown or the model does not fit.

        Raises:
            InvalidValueError: If the count is out of range.
        """
        if self.usd_per_hour is None or self.throughput_per_s is None:
            return None
        return usd_per_epoch(self.usd_per_hour, self.throughput_per_s, sample_count)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON; unknown figures are None."""
        values = {name: getattr(self, name) for name in self.__slots__}
        values["memory"], values["relatives"] = dict(self.memory), list(self.relatives)
        values["evidence"] = None if self.evidence is None else self.evidence.to_dict()
        values["energy_parts_j"] = (
            None if self.energy_parts_j is None else dict(self.energy_parts_j)
        )
        values["operators"] = [
            {name: getattr(o, name) for name in o.__slots__} for o in self.operators
        ]
        return values

    def to_json(self) -> str:
        """`to_dict` as JSON text."""
        return json.dumps(self.to_dict(), indent=2, allow_nan=False)

    def to_frame(self) -> pd.DataFrame:
        """One row with every scalar figure."""
        import pandas as pd

        return pd.DataFrame([{k: v for k, v in self.to_dict().items() if k not in NESTED}])


@dataclass(frozen=True, slots=True, eq=False)
class _Run:
    """A pass with its costs and its simulation."""

    run_pass: Pass
    table: CostTable
    result: SimulationResult


def estimate(
    workload: str | Path | Workload,
    device: str | DeviceProfile,
    *,
    batch: int | None = None,
    precision: str | Precision | None = None,
    mode: str = "inference",
    execution: str | Execution | None = None,
    seq_len: int | None = None,
    output_len: int | None = None,
    image_size: int | None = None,
    optimizer: str = "adamw",
    fused_attention: bool = True,
    host: str | DeviceProfile | None = None,
    offer: str | None = None,
    usd_per_hour: float | None = None,
    tier: str = "best",
    sparse_weights: bool = False,
    heap: str = "default",
) -> Estimate:
    """Estimate one run of a model on a device.

    Args:
        workload: Name, path of a workload file, or a `Workload`.
        device: Name (slices like ``epyc-7763@8vcpu`` too) or a profile.
        batch: Samples or sequences per iteration, >= 1; the workload's default where None.
        precision: fp64, fp32, tf32, fp16, bf16, fp8, fp4, int16, int8 or int4; the device's usual
            one where None.
        mode: "inference" or "training".
        execution: "eager", "graph" or "compiled"; eager on CPUs and GPUs, compiled elsewhere where
            None.
        seq_len: Input tokens per sequence.
        output_len: Tokens generated per sequence; 0 runs one forward pass.
        image_size: Side of the image, pixels.
        optimizer: sgd, momentum, adam, adamw or lamb.
        fused_attention: False writes attention scores to memory, as eager code without a fused
            kernel does.
        host: Device that runs operators this one cannot, with transfers charged; None refuses them.
        offer: Price to use, ``provider/region/instance[:kind]``; the cheapest on-demand offer where
            None.
        usd_per_hour: Own price of this device, instead of an offer.
        tier: "best" takes the device's fitted parameters where it has any, "fitted" insists on
            them, "spec" never does.
        sparse_weights: Weights are pruned to the structured sparsity the chip has a rate for;
            memory is that of dense ones.
        heap: "default", or "kept" where the memory allocator keeps what is freed (jemalloc,
            tcmalloc, glibc told so) and nothing page-faults; for CPUs with a calibration.

    Raises:
        InputError: If a name, size or choice is wrong, or the device cannot run an operator; its
            subclasses say which.
    """
    scenario = Scenario.resolve(
        workload,
        device,
        batch=batch,
        precision=precision,
        mode=mode,
        execution=execution,
        seq_len=seq_len,
        output_len=output_len,
        image_size=image_size,
        optimizer=optimizer,
        fused_attention=fused_attention,
        host=host,
        tier=tier,
        sparse_weights=sparse_weights,
        heap=heap,
    )
    price = device_price(scenario.device, offer, usd_per_hour)
    plan = plan_passes(scenario)
    capacity = scenario.device.memory.capacity_bytes.value
    if plan.memory.short_bytes(capacity) > 0:
        return _estimate(scenario, plan, (), price)
    parameters = tier_parameters(
        scenario.device, scenario.tier, sparse_weights=scenario.sparse_weights, heap=scenario.heap
    )
    runs = tuple(_run(scenario, plan, p, parameters) for p in plan.passes)
    return _estimate(scenario, plan, runs, price, getattr(parameters, "relatives", ()))


def _run(scenario: Scenario, plan: Plan, run_pass: Pass, parameters: Any | None) -> _Run:
    same = (_Same(scenario.device), _Same(parameters), _Same(scenario.host))
    is_decode = run_pass.name == "decode"
    table, result = _simulated(
        run_pass.graph, *same, scenario.execution, plan.input_bytes, is_decode=is_decode
    )
    return _Run(run_pass, table, result)


@dataclass(frozen=True, slots=True, eq=False)
class _Same:
    """A value compared by identity, as a key of results that depend on it."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


@lru_cache(maxsize=64)
def _simulated(
    graph: OperatorGraph,
    device_key: _Same,
    parameters: _Same,
    host: _Same,
    execution: Execution,
    input_bytes: float,
    *,
    is_decode: bool,
) -> tuple[CostTable, SimulationResult]:
    """Costs and simulation of one pass; the same graph on the same device again (a sweep over
    prices) is looked up.
    """
    device = device_key.value
    table = operator_costs(graph, device, execution, parameters.value, host=host.value)
    on_host, is_fpga = device.device_class == "cpu", device.device_class == "fpga"
    link, limit = device.host_link, device.power.limit_w
    shares_memory = on_host or (is_fpga and link is None)
    result = simulate_device(
        table,
        execution=Execution.EAGER if is_fpga else execution,  # the host works beside an overlay
        graph_launch_s=_GRAPH_LAUNCH_S if device.device_class == "gpu" else None,
        iterations=1,
        warmup_iterations=2,
        is_asynchronous=not on_host,
        synchronize=is_decode,
        input_bytes=0.0 if shares_memory or is_decode else input_bytes,
        host_bandwidth_bytes_per_s=_DEFAULT_HOST_LINK_BYTES_PER_S
        if link is None
        else link.bandwidth_bytes_per_s.value,
        idle_w=idle_power_w(device),
        power_limit_w=None if limit is None else limit.value,
    )
    return table, result


def _estimate(
    scenario: Scenario,
    plan: Plan,
    runs: tuple[_Run, ...],
    price: DevicePrice,
    relatives: tuple[str, ...] = (),
) -> Estimate:
    fits = bool(runs)
    latency, period = _times(runs) if fits else (None, None)
    energy = _energy_j(runs) if fits else None
    parts = None if energy is None else _energy_parts_j(runs)
    sigma = _log_sigma(runs) if fits else 0.0
    spread = math.exp(_Z90 * sigma)
    throughput = None if period is None else scenario.batch / period
    tokens = (
        None if throughput is None or not scenario.output_len else throughput * scenario.output_len
    )
    known = price.usd_per_hour is not None
    return Estimate(
        workload=scenario.workload.name,
        device=scenario.device.name,
        batch=scenario.batch,
        precision=scenario.precision.name,
        mode=scenario.mode,
        execution=scenario.execution.value,
        latency_s=latency,
        throughput_per_s=throughput,
        latency_low_s=None if latency is None else latency / spread,
        latency_high_s=None if latency is None else latency * spread,
        interval_level=_INTERVAL_LEVEL,
        tier=(runs[0].table.tier if fits else Tier.SPEC).value,
        bound=_bound(runs) if fits else "memory_capacity",
        energy_j=energy,
        average_power_w=None if energy is None or not period else energy / period,
        memory_bytes=plan.memory.total_bytes,
        fits=fits,
        memory_short_bytes=plan.memory.short_bytes(scenario.device.memory.capacity_bytes.value),
        flop=plan.model_flop,
        bytes=plan.total_bytes,
        cost_usd_per_1000=usd_per_1000_inferences(price.usd_per_hour, throughput)
        if known and throughput
        else None,  # type: ignore[type-var]
        offer=price.offer,
        usd_per_hour=price.usd_per_hour,
        cost_usd_per_million_tokens=usd_per_million_tokens(price.usd_per_hour, tokens)
        if known and tokens
        else None,  # type: ignore[type-var]
        time_to_first_token_s=runs[0].result.latency_s if fits and scenario.output_len else None,
        time_per_output_token_s=_time_per_output_token_s(runs),
        tokens_per_s=tokens,
        energy_per_sample_j=None if energy is None else energy / scenario.batch,
        parameter_count=plan.parameter_count,
        memory={name: getattr(plan.memory, name) for name in plan.memory.__slots__},
        seq_len=scenario.seq_len,
        output_len=scenario.output_len,
        operators=_largest(runs),
        host=None if scenario.host is None else scenario.host.name,
        extrapolated_fraction=_extrapolated_fraction(runs),
        relatives=relatives,
        evidence=_evidence(scenario, plan, relatives, runs[0].table.tier) if fits else None,
        energy_tier="class" if parts is None else "parts",
        energy_parts_j=parts,
        energy_note=runs[0].table.energy_note if fits else "",
        sparse_weights=scenario.sparse_weights,
        heap=scenario.heap,
        trained_positions=getattr(scenario.workload.parameters, "max_positions", 0) or None,
    )


def _evidence(scenario: Scenario, plan: Plan, relatives: tuple[str, ...], tier: Tier) -> Evidence:
    first = plan.passes[0].graph
    is_convolution = np.isin(first.kind, [int(kind) for kind in CONV_KINDS])
    share = float(first.flop[is_convolution].sum()) / max(float(first.flop.sum()), 1.0)
    device = scenario.device
    return evidence(
        device.whole_name,
        str(device.device_class),
        tier.value,
        relatives,
        is_convolutional=share > _CONVOLUTIONAL,
    )


def _times(runs: tuple[_Run, ...]) -> tuple[float, float]:
    """Latency of one batch alone, and time per batch in steady state."""
    latency = sum(run.result.latency_s * run.run_pass.repeats for run in runs)
    period = sum(run.result.steady_state_s * run.run_pass.repeats for run in runs)
    return latency, min(period, latency)


def _time_per_output_token_s(runs: tuple[_Run, ...]) -> float | None:
    decodes = [run for run in runs if run.run_pass.name == "decode"]
    if not decodes:
        return None
    steps = sum(run.run_pass.repeats for run in decodes)
    return sum(run.result.latency_s * run.run_pass.repeats for run in decodes) / steps


def _energy_j(runs: tuple[_Run, ...]) -> float | None:
    parts = [(run.result.energy_j, run.run_pass.repeats) for run in runs]
    return (
        None
        if any(e is None for e, _ in parts)
        else sum(e * repeats for e, repeats in parts if e is not None)
    )


def _energy_parts_j(runs: tuple[_Run, ...]) -> dict[str, float] | None:
    """Energy per iteration by part, over all passes; None where a pass has no parts."""
    total: dict[str, float] = {}
    for run in runs:
        parts, result = run.table.energy_parts_j, run.result
        if parts is None or result.energy_j is None or result.dynamic_energy_j is None:
            return None
        spent = {part: float(column.sum()) for part, column in parts.items()}
        spent["static"] = result.energy_j - result.dynamic_energy_j
        for part, energy in spent.items():
            total[part] = total.get(part, 0.0) + energy * run.run_pass.repeats
    return total


def _bound(runs: tuple[_Run, ...]) -> str:
    """Bottleneck of the pass that takes the most time."""
    longest = max(runs, key=lambda run: run.result.latency_s * run.run_pass.repeats)
    return longest.result.bottleneck


def _log_sigma(runs: tuple[_Run, ...]) -> float:
    """Standard deviation of ln(true / predicted) of the whole run: `run_log_sigma` and what a
    pass's rows share.
    """
    shared = [
        run.table.log_sigma if run.table.shared_log_sigma is None else run.table.shared_log_sigma
        for run in runs
    ]
    times = [run.table.time_s * run.run_pass.repeats for run in runs]
    rows = run_log_sigma(
        np.concatenate([run.run_pass.graph.kind for run in runs]),
        np.concatenate(times),
        np.concatenate([run.table.log_sigma for run in runs]),
        np.concatenate(shared),
    )
    total = sum(float(time.sum()) for time in times)
    context = sum(
        run.table.context_log_sigma * float(time.sum())
        for run, time in zip(runs, times, strict=True)
    )
    return math.hypot(rows, context / total if total else 0.0)


def _extrapolated_fraction(runs: tuple[_Run, ...]) -> float | None:
    """Share of device time in rows outside the measured range; None where no table knows a range."""
    known = [
        (run, run.table.extrapolation_decades)
        for run in runs
        if run.table.extrapolation_decades is not None
    ]
    total = sum(run.table.total_time_s * run.run_pass.repeats for run, _ in known)
    if not total:
        return None
    outside = sum(
        float(run.table.time_s[decades > 0].sum()) * run.run_pass.repeats for run, decades in known
    )
    return outside / total


def _largest(runs: tuple[_Run, ...]) -> tuple[OperatorShare, ...]:
    """Operators by device time, largest first; the same operator of repeated layers counts as one
    (``layers.*.mlp``).
    """
    total = sum(run.table.total_time_s * run.run_pass.repeats for run in runs)
    merged: dict[tuple[str, int, int], float] = {}
    for run in runs:
        labels, codes = _labels(run.run_pass.graph)
        times = np.bincount(
            codes * len(Bound) + run.table.bound, weights=run.table.time_s * run.run_pass.repeats
        )
        for code in np.argsort(-times)[:_TOP_OPERATORS].tolist():
            key = (*labels[code // len(Bound)], code % len(Bound))
            merged[key] = merged.get(key, 0.0) + float(times[code])
    top = sorted(merged.items(), key=lambda item: -item[1])[:_TOP_OPERATORS]
    return tuple(
        OperatorShare(
            name, OperatorKind(kind).label, t, Bound(bound).label, t / total if total else 0.0
        )
        for (name, kind, bound), t in top
    )


@lru_cache(maxsize=64)
def _labels(graph: OperatorGraph) -> tuple[tuple[tuple[str, int], ...], IntArray]:
    """Distinct (path and name with layer numbers as ``*``, kind) of a graph's rows, and each row's
    place among them.
    """
    places: dict[tuple[str, int], int] = {}
    rows = zip(graph.path, graph.name, graph.kind.tolist(), strict=True)
    codes = [
        places.setdefault((f"{_without_numbers(path)}.{name}" if path else name, kind), len(places))
        for path, name, kind in rows
    ]
    return tuple(places), np.array(codes, dtype=np.int64)


@lru_cache(maxsize=8192)
def _without_numbers(path: str) -> str:
    return ".".join("*" if part.isdigit() else part for part in path.split("."))
