"""Simulate one run: every pass costed on the device and scheduled on it.

A run is lowered to passes (a forward pass, a training step, a prefill and decode steps), each
costed by the device's model and scheduled in closed form; passes add, each as often as it runs. The
timeline alone is made by the device simulator, whose times are the same. The interval widens with
each operator kind's share of the time: the part of the error that one kind shares on one device
does not average out (a bias of all its GEMMs), the part of each shape does, and different kinds are
independent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

import numpy as np

from accelsim.arguments import checked
from accelsim.confidence.quantiles import Z90
from accelsim.confidence.residual import run_log_sigma
from accelsim.cost.memory import MemoryFootprint, memory_short
from accelsim.cost.registry import Parameters
from accelsim.cost.table import Bound, CostTable, ParameterTier
from accelsim.estimation.evidence import least_log_sigma
from accelsim.estimation.likeness import Setting, setting_of
from accelsim.estimation.options import RunKeywords, RunOptions
from accelsim.estimation.passes import RunPasses, run_passes
from accelsim.estimation.prompt_issue import prompt_issue_s
from accelsim.estimation.resolution import resolve
from accelsim.estimation.run import Offload, ResolvedRun, RunKey
from accelsim.estimation.schedule import (
    PassResult,
    device_settings,
    host_link_bytes_per_s,
    pass_result,
)
from accelsim.estimation.sharded_costs import rank_costs
from accelsim.frozen import frozen
from accelsim.hardware.profile import DeviceProfile
from accelsim.plain import Document
from accelsim.result import Metric, Provenance, Result
from accelsim.simulation.liveness import activation_live_bytes
from accelsim.simulation.timeline import StepFunction, Timeline, merge
from accelsim.workloads.graph import IntArray, OperatorGraph
from accelsim.workloads.model import Workload
from accelsim.workloads.operator import OperatorKind
from accelsim.workloads.sharding import WHOLE, Shard

#: Tokens from which llama.cpp has the device run a layer of the host's, and those it runs at once.
_LEAST_TOKENS, _MICROBATCH_TOKENS = 32, 512

if TYPE_CHECKING:
    import pandas as pd
    from torch.nn import Module

    from accelsim.confidence.hierarchy import Correction
    from accelsim.estimation.learned import Learned, System
    from accelsim.hardware.cluster import Cluster

_INTERVAL_LEVEL = 0.9
_TOP_OPERATORS = 10
_STEPS = ("time_s", "value")


@frozen
class OperatorShare:
    """One operator's device time in an iteration, and its share of the iteration's time."""

    name: str
    kind: str
    time_s: float
    bound: str
    share_fraction: float


@frozen(eq=False)
class SimulatedPass:
    """A pass with its costs and its simulation.

    Attributes:
        name: "forward", "training step", "prefill", "decode", ...
        repeats: Times it runs; need not be whole.
        graph: Its operators.
        table: What each costs, in graph order.
        result: What the device takes for it.
        input_bytes: Bytes of one batch as it comes from the host.
    """

    name: str
    repeats: float
    graph: OperatorGraph
    table: CostTable
    result: PassResult
    input_bytes: float


@frozen(slots=False, eq=False, repr=False)
class Simulation(Result):
    """What one run does on one device, operator by operator.

    Attributes:
        run: What was asked, resolved.
        passes: Simulated passes in the order they run.
        memory: Memory at the run's peak, by use.
        parameter_count: Parameters of the model.
        flop: Model FLOP of an iteration (matrix arithmetic, multiply-add = 2).
        bytes: Bytes the operators read and write, each counted alone.
        relatives: Measured boards whose kernel surfaces stand for the device's own, nearest first.
        warnings: What to know before trusting the figures.
        corrections: What the user's own runs say of each phase, by its name; empty without them.
        host_log_sigma: That of ln(true / predicted) of what runs on a host; 0 where nothing does.
    """

    kind: ClassVar[str] = "simulation"

    run: ResolvedRun
    passes: tuple[SimulatedPass, ...]
    memory: MemoryFootprint
    parameter_count: int
    flop: float
    bytes: float
    relatives: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    corrections: Mapping[str, Correction] = field(default_factory=dict)
    host_log_sigma: float = 0.0

    def __repr__(self) -> str:
        names = ", ".join(f"{p.repeats:g} x {p.name}" for p in self.passes)
        run = self.run
        return (
            f"<Simulation: {run.workload.name} on {run.device.name}, {names}, "
            f"{self.latency_s:.4g} s>"
        )

    @property
    def inputs(self) -> Document:
        """What was asked, resolved."""
        return self.run.to_dict()

    @property
    def provenance(self) -> Provenance:
        """Version of accelsim and content of the device and the workload."""
        return self.run.provenance

    @cached_property
    def latency_s(self) -> float:
        """One batch alone, from its copy to the device to its result; with the way of a request to
        a serving engine.
        """
        return self._front_end_s + sum(p.result.latency_s * p.repeats for p in self.passes)

    @cached_property
    def _front_end_s(self) -> float:
        """Time of a request before a serving engine's first pass, and of the device that waits for
        its operators.
        """
        if not self.run.output_len:
            return 0.0
        first = self.passes[0]
        waits_s = prompt_issue_s(self.run, first.graph) - first.result.latency_s
        return float(self.run.front_end_s(self.run.seq_len)) + max(waits_s, 0.0)

    @cached_property
    def period_s(self) -> float:
        """Time per batch, batches back to back."""
        period = sum(p.result.steady_state_s * p.repeats for p in self.passes)
        return min(period, self.latency_s)

    @cached_property
    def time_to_first_token_s(self) -> float | None:
        """Prefill latency of an autoregressive run, and the way of its request."""
        if not self.run.output_len:
            return None
        prompt = (p for p in self.passes if p.name == self.passes[0].name)
        return self._front_end_s + sum(p.result.latency_s * p.repeats for p in prompt)

    @cached_property
    def time_per_output_token_s(self) -> float | None:
        """Mean decode step; None where there is none."""
        decodes = [p for p in self.passes if p.name == "decode"]
        if not decodes:
            return None
        steps = sum(p.repeats for p in decodes)
        return sum(p.result.latency_s * p.repeats for p in decodes) / steps

    @cached_property
    def energy_j(self) -> float | None:
        """Device energy per iteration in steady state; None where unknown."""
        parts = [(p.result.energy_j, p.repeats) for p in self.passes]
        if any(energy is None for energy, _ in parts):
            return None
        return sum(energy * repeats for energy, repeats in parts if energy is not None)

    @property
    def average_power_w(self) -> float | None:
        """Mean power in steady state; None where unknown."""
        energy_j, period_s = self.energy_j, self.period_s
        return energy_j / period_s if energy_j is not None and period_s else None

    @property
    def bound(self) -> str:
        """Bottleneck of the pass that takes the most time."""
        longest = max(self.passes, key=lambda p: p.result.latency_s * p.repeats)
        return longest.result.bottleneck

    @property
    def tier(self) -> ParameterTier:
        """Where the parameters come from."""
        return self.passes[0].table.tier

    @cached_property
    def setting(self) -> Setting:
        """Mode, format and kind of model."""
        run, first = self.run, self.passes[0].graph
        return setting_of(run.mode, run.precision, first, generates=run.output_len > 0)

    @cached_property
    def log_sigma(self) -> float:
        """Standard deviation of ln(true / predicted) of the whole run: that of its operators and
        its stack, and no less than that of measured runs like it.
        """
        run, known = self.run, self.corrections
        if known:
            times = [(phase_of(run, p), p.result.latency_s * p.repeats) for p in self.passes]
            parts = sum(time_s * known[phase].log_sigma for phase, time_s in times)
            return parts / sum(time_s for _, time_s in times)
        least = least_log_sigma(run.device, self.tier, self.setting, run.spreads)
        return max(self.operator_log_sigma, least, self.host_log_sigma)

    @cached_property
    def operator_log_sigma(self) -> float:
        """Standard deviation of ln(true / predicted) by the run's operators and stack:
        `run_log_sigma` and what a pass's rows share.
        """
        tables = [p.table for p in self.passes]
        shared = [t.log_sigma if t.shared_log_sigma is None else t.shared_log_sigma for t in tables]
        times = [p.table.time_s * p.repeats for p in self.passes]
        rows = run_log_sigma(
            np.concatenate([p.graph.kind for p in self.passes]),
            np.concatenate(times),
            np.concatenate([t.log_sigma for t in tables]),
            np.concatenate(shared),
        )
        sums = [float(time.sum()) for time in times]
        parts = zip(tables, times, sums, strict=True)
        context = sum(table.context_of(time_s) * total_s for table, time_s, total_s in parts)
        return math.hypot(rows, context / sum(sums) if sum(sums) else 0.0)

    @property
    def spread_ratio(self) -> float:
        """Factor between the latency and either end of its interval."""
        return math.exp(Z90 * self.log_sigma)

    @property
    def extrapolated_fraction(self) -> float | None:
        """Share of device time in rows outside the measured range; None where no table knows a
        range.
        """
        known = [p for p in self.passes if p.table.extrapolation_decades is not None]
        total = sum(p.table.total_time_s * p.repeats for p in known)
        if not total:
            return None
        outside = 0.0
        for p in known:
            is_outside = np.asarray(p.table.extrapolation_decades) > 0
            outside += float(p.table.time_s[is_outside].sum()) * p.repeats
        return outside / total

    @cached_property
    def operators(self) -> tuple[OperatorShare, ...]:
        """The largest operators by device time; see `largest_operators`."""
        return self.largest_operators(_TOP_OPERATORS)

    def largest_operators(self, count: int | None) -> tuple[OperatorShare, ...]:
        """Operators by device time, largest first; the same operator of repeated layers counts as
        one (``layers.*.mlp``).

        Args:
            count: How many; all where None.
        """
        return _largest(self.passes, self.latency_s, count)

    @cached_property
    def timeline(self) -> Timeline:
        """One repeat of each pass, one after the other, row by row, and the activations in use."""
        lines, usage, start_s = [], [], 0.0
        for p in self.passes:
            line = _one_iteration(self.run, p).shifted(start_s)
            lines.append(line)
            usage.append(_activations_in_use(line, p.graph))
            start_s = line.makespan_s
        columns = (np.concatenate([getattr(one, name) for one in usage]) for name in _STEPS)
        return replace(merge(lines), counters={"memory_bytes": StepFunction(*columns)})

    @property
    def metrics(self) -> dict[str, Metric]:
        """Latency with its interval, and figures without one."""
        interval = (self.latency_s / self.spread_ratio, self.latency_s * self.spread_ratio)
        return {
            "latency_s": Metric(self.latency_s, *interval, _INTERVAL_LEVEL),
            "period_s": Metric(self.period_s),
            "energy_j": Metric(self.energy_j),
            "average_power_w": Metric(self.average_power_w),
            "memory_bytes": Metric(self.memory.total_bytes),
        }

    def figures(self) -> Document:
        """Figures of the run and of each pass."""
        flat = {name: metric.value for name, metric in self.metrics.items()}
        passes = [
            {
                "name": p.name,
                "repeat_count": p.repeats,
                "operator_count": len(p.graph),
                "latency_s": p.result.latency_s,
                "period_s": p.result.steady_state_s,
                "energy_j": p.result.energy_j,
            }
            for p in self.passes
        ]
        return flat | {"tier": self.tier.value, "bound": self.bound, "passes": passes}

    def to_frame(self) -> pd.DataFrame:
        """One row per operator of each pass: pass, repeats, path, name, kind, times, energy."""
        import pandas as pd

        frames = []
        for p in self.passes:
            frame = p.table.to_frame()
            frame.insert(0, "kind", [OperatorKind(kind).label for kind in p.graph.kind.tolist()])
            frame.insert(0, "name", p.graph.name)
            frame.insert(0, "path", p.graph.path)
            frame.insert(0, "repeat_count", p.repeats)
            frame.insert(0, "pass", p.name)
            frames.append(frame)
        return pd.concat(frames, ignore_index=True)


@checked
def simulate(
    workload: str | Path | Workload | Module,
    device: str | DeviceProfile,
    options: RunOptions | None = None,
    *,
    shard: Shard | None = None,
    cluster: str | Cluster | None = None,
    **keywords: Unpack[RunKeywords],
) -> Simulation:
    """Simulate one run of a model on a device, or of one rank's part of it.

    Args:
        workload: Name, path of a workload file, or a `Workload`.
        device: Name (slices like ``epyc-7763@8vcpu`` too) or a profile.
        options: What runs; defaults where None.
        shard: The rank's part of the model; that of one of the devices, if several share it, and
            all of it on one, where None.
        cluster: Name of the cluster that joins the ranks, or the cluster.
        keywords: Fields of `RunOptions` and of the options it holds, in place of theirs.

    Raises:
        DoesNotFitError: If the run needs more memory than the device has.
        InputError: If a name, size or choice is wrong, or the device cannot run an operator; its
            subclasses say which.
    """
    run = resolve(workload, device, options, **keywords)
    if isinstance(cluster, str):
        from accelsim.catalog.clusters import cluster as find_cluster

        cluster = find_cluster(cluster)
    if shard is not None or cluster is not None:
        run = replace(run, shard=shard or WHOLE, cluster=cluster)
    passes = run_passes(run)
    check_memory(run, passes)
    return simulated(run, passes)


def check_memory(run: ResolvedRun, passes: RunPasses) -> None:
    """Refuse a run that needs more memory than its device has.

    Raises:
        DoesNotFitError: If it does not fit.
    """
    capacity = run.available_bytes
    short = passes.memory.short_bytes(capacity)
    if short > 0:
        remedy = "Choose a smaller batch or format, or a device with more memory."
        raise memory_short(run.device, passes.memory.total_bytes, capacity, remedy)


def simulated(
    run: ResolvedRun, passes: RunPasses, parameters: Parameters | None = None
) -> Simulation:
    """Simulate the passes of a run, whether it fits or not.

    Args:
        run: The run.
        passes: Its passes.
        parameters: Of the device's class, in place of those of the run's tier.
    """
    if parameters is None:
        parameters = run.parameters
    every, moved_bytes = passes.passes, passes.input_bytes
    asked = tuple((p.graph, p.name == "decode") for p in every)
    costs = _costs_and_results(asked, RunKey(run), _Same(parameters), moved_bytes)
    found = Simulation(
        run=run,
        passes=tuple(
            SimulatedPass(p.name, p.repeats, p.graph, table, result, moved_bytes)
            for p, (table, result) in zip(every, costs, strict=True)
        ),
        memory=passes.memory,
        parameter_count=passes.parameter_count,
        flop=passes.model_flop,
        bytes=passes.total_bytes,
        relatives=getattr(parameters, "relatives", ()),
        warnings=(*run.workload.notices, *(run.cluster.warnings if run.cluster else ())),
    )
    found = found if run.learned is None else _corrected(found, run.learned)
    return found if run.offload is None else _with_host(found, passes, run.offload)


def phase_of(run: ResolvedRun, a_pass: SimulatedPass) -> str:
    """What a pass is of, as runs that were measured are told apart."""
    return {"prefill": "prompt", "decode": "decode"}.get(a_pass.name, run.mode)


def system_of(found: Simulation, phase: str) -> System:
    """What a phase of a run is of, as runs that were measured are told apart."""
    from accelsim.estimation.learned import System, pass_sizes

    run = found.run
    names = (run.device.whole_name, run.stack.name, run.stack.version.version)
    sizes = {"seq_len": run.seq_len, "output_len": run.output_len, "image_size": run.image_size}
    return System(
        phase,
        *names,
        found.setting.precision,
        run.workload.architecture,
        str(run.device.device_class),
        pass_sizes(batch=run.batch // run.accumulation, tp=run.shard.tp, **sizes),
    )


def _corrected(found: Simulation, learned: Learned) -> Simulation:
    """A simulation whose passes take what the user's own runs make of them, at the same power."""
    run = found.run
    phases = dict.fromkeys(phase_of(run, p) for p in found.passes)
    systems = {phase: system_of(found, phase) for phase in phases}
    known = {phase: learned.correction(of, found.log_sigma) for phase, of in systems.items()}
    passes = [
        replace(p, result=p.result.longer(math.exp(known[phase_of(run, p)].shift)))
        for p in found.passes
    ]
    warnings = (*found.warnings, *learned.notes(systems.values()))
    return replace(found, passes=tuple(passes), corrections=known, warnings=warnings)


@frozen(eq=False)
class _Same:
    """A value compared by identity, as a key of results that depend on it."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


@lru_cache(maxsize=64)
def _costs_and_results(
    passes: tuple[tuple[OperatorGraph, bool], ...],
    key: RunKey,
    parameters: _Same,
    input_bytes: float,
) -> list[tuple[CostTable, PassResult]]:
    """Costs and simulation of passes, each a graph and whether it is a decode step; the same graphs
    on the same device again (a sweep over prices) are looked up.
    """
    graphs, decodes = zip(*passes, strict=True)
    tables = rank_costs(graphs, [key.run] * len(graphs), parameters.value, decodes)
    settings = [device_settings(key.run, input_bytes, is_decode=step) for step in decodes]
    return [(table, pass_result(table, own)) for table, own in zip(tables, settings, strict=True)]


def _one_iteration(run: ResolvedRun, simulated_pass: SimulatedPass) -> Timeline:
    """One iteration of a pass alone, its rows by name."""
    from accelsim.simulation.device import simulate_device

    p = simulated_pass
    settings = device_settings(run, p.input_bytes, is_decode=p.name == "decode")
    once = replace(settings, iterations=1, warmup_iterations=1)
    line = simulate_device(p.table, once, p.graph.name).timeline
    iterations = int((line.resource == line.code_of("compute")).sum()) // len(p.graph)
    order = np.lexsort((line.end_s, line.start_s, line.resource))
    count = np.bincount(line.resource, minlength=len(line.resources))
    first = np.cumsum(count) - count
    place = np.arange(len(line)) - first[line.resource[order]]  # of a row on its resource
    return line.take(order[place < count[line.resource[order]] // iterations])


def _activations_in_use(line: Timeline, graph: OperatorGraph) -> StepFunction:
    """Bytes of activations from the start of each operator on; 0 after the last one."""
    start_s = np.sort(line.select(resource="compute").start_s)
    level = np.append(activation_live_bytes(graph), 0.0)
    return StepFunction(np.append(start_s, line.makespan_s), level)


def _largest(
    passes: tuple[SimulatedPass, ...], latency_s: float, count: int | None
) -> tuple[OperatorShare, ...]:
    merged: dict[tuple[str, int, int], float] = {}
    for p in passes:
        labels, codes = _labels(p.graph)
        times = np.bincount(codes * len(Bound) + p.table.bound, weights=p.table.time_s * p.repeats)
        for code in np.argsort(-times)[:count].tolist():
            if not times[code]:
                break
            key = (*labels[code // len(Bound)], code % len(Bound))
            merged[key] = merged.get(key, 0.0) + float(times[code])
    top = sorted(merged.items(), key=lambda item: -item[1])[:count]
    return tuple(
        OperatorShare(
            name,
            OperatorKind(kind).label,
            t,
            Bound(bound).label,
            t / latency_s if latency_s else 0.0,
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


def _with_host(simulation: Simulation, passes: RunPasses, offload: Offload) -> Simulation:
    """The simulation with what the layers in host memory take.

    Engines read their weights over the link in each pass (vLLM's ``--cpu-offload-gb``; accelerate's
    ``device_map``); llama.cpp has the CPU run them token by token, with their part of the cache
    (``-ngl``, src/llama-model.cpp). Estimate: layers are equal, embeddings spread over them; a pass
    waits for its weights, which come at the link's datasheet bandwidth; what goes between layers on
    two devices (kilobytes a token) is nothing beside them.
    """
    if not passes.host_layers:
        return simulation
    share, board = passes.host_layers / offload.of, simulation.run.device
    said = f"{passes.host_layers} of {offload.of} layers lie in host memory"
    if offload.host is not None:
        there = simulated(offload.host, run_passes(offload.host))
        said = f"{said}, and a {offload.host.device.title} runs them"
        return replace(shared(simulation, there, share), warnings=(*simulation.warnings, said))
    waiting = tuple(_after(p, share, board) for p in simulation.passes)
    link = f"{host_link_bytes_per_s(board) / 1e9:.3g} GB/s"
    said = f"{said}; each pass reads them at {link}, and waits for them"
    return replace(simulation, passes=waiting, warnings=(*simulation.warnings, said))


def shared(device: Simulation, host: Simulation, share: float) -> Simulation:
    """A simulation of a model that llama.cpp has two devices run, one after the other.

    Of 32 tokens and more the device runs all layers, and reads those of the host for each
    microbatch (llama.cpp, pull request 6083, "offload large batches to GPU"; `-ub`, 512 by
    default).

    Args:
        device: On the device alone.
        host: On the CPU alone.
        share: Of the layers on the CPU, 0 to 1.
    """
    parts: list[SimulatedPass] = []
    for here, there in zip(device.passes, host.passes, strict=True):
        run = device.run
        tokens = run.batch * (1 if here.name == "decode" else run.seq_len)
        if tokens >= _LEAST_TOKENS:
            times = math.ceil(tokens / _MICROBATCH_TOKENS)
            parts.append(_after(here, share * times, run.device))
            continue
        result = there.result.beside(here.result)
        parts.append(replace(here, repeats=here.repeats * (1.0 - share)))
        parts.append(replace(there, repeats=there.repeats * share, result=result))
    passes = tuple(p for p in parts if p.repeats > 0)
    return replace(device, passes=passes, host_log_sigma=host.log_sigma)


def _after(a_pass: SimulatedPass, share: float, device: DeviceProfile) -> SimulatedPass:
    """A pass that waits for its share of weights."""
    wait_s = share * float(a_pass.graph.weight_bytes.sum()) / host_link_bytes_per_s(device)
    return replace(a_pass, result=a_pass.result.after(wait_s))
