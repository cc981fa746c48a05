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
from typing import TYPE_CHECKING, ClassVar, Unpack

import numpy as np

from accelsim.arguments import checked
from accelsim.confidence.quantiles import Z90
from accelsim.confidence.residual import run_log_sigma
from accelsim.cost.memory import MemoryFootprint, memory_short
from accelsim.cost.registry import Parameters
from accelsim.cost.table import CostTable, ParameterTier
from accelsim.estimation.evidence import least_log_sigma
from accelsim.estimation.likeness import Setting, setting_of
from accelsim.estimation.offload import shared_passes, waiting_passes
from accelsim.estimation.options import RunKeywords, RunOptions
from accelsim.estimation.passes import RunPasses, run_passes
from accelsim.estimation.prompt_issue import prompt_issue_s
from accelsim.estimation.resolution import resolve
from accelsim.estimation.run import ResolvedRun, RunKey
from accelsim.estimation.schedule import (
    PassResult,
    device_settings,
    host_link_bytes_per_s,
    pass_result,
)
from accelsim.estimation.sharded_costs import rank_costs
from accelsim.estimation.simulated_pass import OperatorShare, SimulatedPass, largest_operators
from accelsim.frozen import frozen
from accelsim.hardware.profile import DeviceProfile, Identity
from accelsim.plain import Document
from accelsim.result import Metric, Provenance, Result
from accelsim.simulation.timeline import StepFunction, Timeline, merge
from accelsim.workloads.graph import OperatorGraph
from accelsim.workloads.model import Workload
from accelsim.workloads.operator import OperatorKind
from accelsim.workloads.sharding import WHOLE, Shard

if TYPE_CHECKING:
    import pandas as pd
    from torch.nn import Module

    from accelsim.confidence.hierarchy import Correction
    from accelsim.estimation.learned import Learned, System
    from accelsim.hardware.cluster import Cluster

_INTERVAL_LEVEL = 0.9
_TOP_OPERATORS = 10


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
        return self._front_end_s + sum(p.latency_s for p in self.passes)

    @cached_property
    def _front_end_s(self) -> float:
        """Time of a request before a serving engine's first pass, and of the device that waits for
        its operators.
        """
        if not self.run.output_len:
            return 0.0
        prompt = self.passes[0]
        waits_s = prompt_issue_s(self.run, prompt.graph) - prompt.result.latency_s
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
        prompts = (p for p in self.passes if p.name == self.passes[0].name)
        return self._front_end_s + sum(p.latency_s for p in prompts)

    @cached_property
    def time_per_output_token_s(self) -> float | None:
        """Mean decode step; None where there is none."""
        decodes = [p for p in self.passes if p.name == "decode"]
        if not decodes:
            return None
        return sum(p.latency_s for p in decodes) / sum(p.repeats for p in decodes)

    @cached_property
    def energy_j(self) -> float | None:
        """Device energy per iteration in steady state; None where unknown."""
        energy_j = 0.0
        for p in self.passes:
            if p.result.energy_j is None:
                return None
            energy_j += p.result.energy_j * p.repeats
        return energy_j

    @property
    def average_power_w(self) -> float | None:
        """Mean power in steady state; None where unknown."""
        energy_j, period_s = self.energy_j, self.period_s
        return energy_j / period_s if energy_j is not None and period_s else None

    @property
    def bound(self) -> str:
        """Bottleneck of the pass that takes the most time."""
        return max(self.passes, key=lambda p: p.latency_s).result.bottleneck

    @property
    def tier(self) -> ParameterTier:
        """Where the parameters come from."""
        return self.passes[0].table.tier

    @cached_property
    def setting(self) -> Setting:
        """Mode, format and kind of model."""
        run, graph = self.run, self.passes[0].graph
        return setting_of(run.mode, run.precision, graph, generates=run.output_len > 0)

    @cached_property
    def log_sigma(self) -> float:
        """Standard deviation of ln(true / predicted) of the whole run: that of its operators and
        its stack, and no less than that of measured runs like it.
        """
        run, corrections = self.run, self.corrections
        if corrections:
            spreads_s = (p.latency_s * corrections[p.phase(run)].log_sigma for p in self.passes)
            return sum(spreads_s) / sum(p.latency_s for p in self.passes)
        least = least_log_sigma(run.device, self.tier, self.setting, run.spreads)
        return max(self.operator_log_sigma, least, self.host_log_sigma)

    @cached_property
    def operator_log_sigma(self) -> float:
        """Standard deviation of ln(true / predicted) by the run's operators and stack:
        `run_log_sigma` and what a pass's rows share, in quadrature (JCGM 100:2008, section 5.1).
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
        totals_s = [float(time_s.sum()) for time_s in times]
        costs = zip(tables, times, totals_s, strict=True)
        context = sum(table.context_of(time_s) * total_s for table, time_s, total_s in costs)
        return math.hypot(rows, context / sum(totals_s) if sum(totals_s) else 0.0)

    @property
    def spread_ratio(self) -> float:
        """Factor between the latency and either end of its interval."""
        return math.exp(Z90 * self.log_sigma)

    @property
    def extrapolated_fraction(self) -> float | None:
        """Share of device time in rows outside the measured range; None where no table knows a
        range.
        """
        total_s = outside_s = 0.0
        for p in self.passes:
            if p.table.extrapolation_decades is not None:
                is_outside = p.table.extrapolation_decades > 0
                total_s += p.table.total_time_s * p.repeats
                outside_s += float(p.table.time_s[is_outside].sum()) * p.repeats
        return outside_s / total_s if total_s else None

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
        return largest_operators(self.passes, self.latency_s, count)

    @cached_property
    def timeline(self) -> Timeline:
        """One repeat of each pass, one after the other, row by row, and the activations in use."""
        lines, usage, start_s = [], [], 0.0
        for p in self.passes:
            line = p.timeline(self.run).shifted(start_s)
            lines.append(line)
            usage.append(p.activations_in_use(line))
            start_s = line.makespan_s
        memory_bytes = StepFunction(
            np.concatenate([use.time_s for use in usage]),
            np.concatenate([use.value for use in usage]),
        )
        return replace(merge(lines), counters={"memory_bytes": memory_bytes})

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
    graphs = tuple((p.graph, p.name == "decode") for p in passes.passes)
    moved_bytes = passes.input_bytes
    costs = _costs_and_results(graphs, RunKey(run), Identity(parameters), moved_bytes)
    simulation = Simulation(
        run=run,
        passes=tuple(
            SimulatedPass(p.name, p.repeats, p.graph, table, result, moved_bytes)
            for p, (table, result) in zip(passes.passes, costs, strict=True)
        ),
        memory=passes.memory,
        parameter_count=passes.parameter_count,
        flop=passes.model_flop,
        bytes=passes.total_bytes,
        relatives=getattr(parameters, "relatives", ()),
        warnings=(*run.workload.notices, *(run.cluster.warnings if run.cluster else ())),
    )
    if run.learned is not None:
        simulation = _corrected(simulation, run.learned)
    if run.offload is None or not passes.host_layers:
        return simulation
    host_run = run.offload.host
    host = None if host_run is None else simulated(host_run, run_passes(host_run))
    return _with_host(simulation, host, passes.host_layers, run.offload.of)


def _with_host(
    device: Simulation, host: Simulation | None, host_layers: int, layers: int
) -> Simulation:
    """The simulation with what the layers in host memory take; the device reads and runs them where
    no CPU does.
    """
    share_fraction, board = host_layers / layers, device.run.device
    placement = f"{host_layers} of {layers} layers lie in host memory"
    if host is None:
        passes = waiting_passes(device.passes, share_fraction, board)
        offloaded = replace(device, passes=passes)
        link = f"{host_link_bytes_per_s(board) / 1e9:.3g} GB/s"
        warning = f"{placement}; each pass reads them at {link}, and waits for them"
    else:
        offloaded = shared(device, host, share_fraction)
        warning = f"{placement}, and a {host.run.device.title} runs them"
    return replace(offloaded, warnings=(*device.warnings, warning))


def shared(device: Simulation, host: Simulation, share_fraction: float) -> Simulation:
    """A simulation of a model that two devices run, one after the other, as llama.cpp does.

    Args:
        device: On the device alone.
        host: On the CPU alone.
        share_fraction: Of the layers on the CPU, 0 to 1.
    """
    passes = shared_passes(device.run, device.passes, host.passes, share_fraction)
    return replace(device, passes=passes, host_log_sigma=host.log_sigma)


def system_of(simulation: Simulation, phase: str) -> System:
    """What a phase of a run is of, as runs that were measured are told apart."""
    from accelsim.estimation.learned import System, pass_sizes

    run = simulation.run
    names = (run.device.whole_name, run.stack.name, run.stack.version.version)
    sizes = {"seq_len": run.seq_len, "output_len": run.output_len, "image_size": run.image_size}
    return System(
        phase,
        *names,
        simulation.setting.precision,
        run.workload.architecture,
        str(run.device.device_class),
        pass_sizes(batch=run.batch // run.accumulation, tp=run.shard.tp, **sizes),
    )


def _corrected(simulation: Simulation, learned: Learned) -> Simulation:
    """A simulation whose passes take what the user's own runs make of them, at the same power."""
    run, log_sigma = simulation.run, simulation.log_sigma
    phases = dict.fromkeys(p.phase(run) for p in simulation.passes)
    systems = {phase: system_of(simulation, phase) for phase in phases}
    corrections = {
        phase: learned.correction(system, log_sigma) for phase, system in systems.items()
    }
    passes = tuple(
        replace(p, result=p.result.longer(math.exp(corrections[p.phase(run)].shift)))
        for p in simulation.passes
    )
    warnings = (*simulation.warnings, *learned.notes(systems.values()))
    return replace(simulation, passes=passes, corrections=corrections, warnings=warnings)


@lru_cache(maxsize=64)
def _costs_and_results(
    passes: tuple[tuple[OperatorGraph, bool], ...],
    key: RunKey,
    parameters: Identity[Parameters],
    input_bytes: float,
) -> list[tuple[CostTable, PassResult]]:
    """Costs and simulation of passes, each a graph and whether it is a decode step; the same graphs
    on the same device again (a sweep over prices) are looked up.
    """
    graphs, decodes = zip(*passes, strict=True)
    tables = rank_costs(graphs, [key.run] * len(graphs), parameters.value, decodes)
    settings = [device_settings(key.run, input_bytes, is_decode=step) for step in decodes]
    return [
        (table, pass_result(table, setting))
        for table, setting in zip(tables, settings, strict=True)
    ]
