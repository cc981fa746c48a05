"""Figures of many sizes of one run at once: passes lowered and priced together, with the same
figures as `accelsim.estimation.simulate` gives one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accelsim.confidence.quantiles import Z90
from accelsim.confidence.residual import run_log_sigmas
from accelsim.cost.registry import operator_costs
from accelsim.cost.stack import on_stack
from accelsim.cost.table import CostTable, ParameterTier
from accelsim.estimation.evidence import least_log_sigma
from accelsim.estimation.likeness import Setting, model_kinds
from accelsim.estimation.prompt_issue import prompt_issue_s
from accelsim.estimation.run import ResolvedRun
from accelsim.estimation.schedule import Schedule, device_settings
from accelsim.frozen import frozen
from accelsim.hardware.profile import AsicProfile, CpuProfile
from accelsim.hardware.sourced import value_of
from accelsim.plain import Document
from accelsim.simulation.device_settings import device_time_s
from accelsim.workloads.fusion import fuse_batch
from accelsim.workloads.graph import FloatArray, IntArray, is_kind
from accelsim.workloads.lowering import LoweredBatch, ShapeColumns, lower
from accelsim.workloads.operator import CONTRACTION_KINDS, Phase
from accelsim.workloads.options import ModelOptions

Columns = dict[str, NDArray[Any]]
_CACHED_SIZES = ("batch", "seq_len", "output_len")


@frozen(eq=False)
class _Pass:
    """One pass of p contexts in s scenarios: those of the first context, then of the next.

    Attributes:
        contexts: p.
        repeats: How often it runs in each, shape (p s,).
        batches: What was lowered together.
        columns: Figures of one run, shape (p s,) each; see `_columns`.
        rows: Scenario, kind, time, launches, spread and shared spread of each distinct row.
    """

    contexts: int
    repeats: FloatArray
    batches: tuple[LoweredBatch, ...]
    columns: Columns
    rows: tuple[NDArray[Any], ...]


def scenario_figures(run: ResolvedRun, sizes: Mapping[str, IntArray]) -> Columns:
    """Figures of s scenarios, whether they fit or not; see `Simulation` and `Estimate`.

    Args:
        run: The run but for its sizes.
        sizes: Batch, input and output tokens and image side, shape (s,) each; all generate tokens
            or none does.

    Raises:
        UnsupportedOperatorError: If the device cannot run an operator.
    """
    batch, tokens = sizes["batch"], sizes["output_len"]
    passes = _passes(run, sizes)
    generates = bool(tokens[0])
    before = _before(run, sizes, passes[0]) if generates else np.zeros(len(batch))
    latency = before + _weighted(passes, "latency_s")
    period = np.minimum(_weighted(passes, "period_s"), latency)
    energy = _weighted(passes, "energy_j")
    alike = _alike_log_sigma(run, passes[0], generates=generates)
    spread = np.exp(Z90 * np.maximum(_log_sigma(passes), alike))
    rate = batch / period
    figures: Columns = {
        "latency_s": latency,
        "latency_low_s": latency / spread,
        "latency_high_s": latency * spread,
        "throughput_per_s": rate,
        "energy_j": energy,
        "average_power_w": energy / period,
        "energy_per_sample_j": energy / batch,
        "memory_bytes": _memory_bytes(sizes, passes[0]),
        "flop": _weighted(passes, "flop"),
        "bytes": _weighted(passes, "bytes"),
        "tier": passes[0].columns["tier"],
        "bound": _longest_bound(passes),
    }
    if generates:
        steps = _by_context(passes[1:], [passes[1].repeats]).sum(axis=0)
        stepped, unknown = _weighted(passes[1:], "latency_s"), np.full(len(batch), np.nan)
        figures["time_to_first_token_s"] = before + passes[0].columns["latency_s"]
        figures["time_per_output_token_s"] = np.divide(
            stepped, steps, out=unknown, where=np.asarray(steps) > 0
        )
        figures["tokens_per_s"] = rate * tokens
    return figures


def _before(run: ResolvedRun, sizes: Mapping[str, IntArray], first: _Pass) -> FloatArray:
    """Time of requests before a serving engine's first pass, and of the device that waits for its
    operators; see `Simulation.latency_s`.
    """
    issue_s = np.zeros(len(first.repeats))
    for lowered in first.batches:
        alike = lowered.take(np.arange(len(lowered.scenario)) == 0)
        launches = lowered.repeat_count
        issue_s[lowered.scenario] = prompt_issue_s(run, alike.distinct_rows(), launches)
    waits_s = np.maximum(issue_s - first.columns["latency_s"], 0.0)
    return np.asarray(run.front_end_s(sizes["seq_len"]) + waits_s)


def _passes(run: ResolvedRun, sizes: Mapping[str, IntArray]) -> list[_Pass]:
    """The passes of all scenarios, which generate tokens or do not."""
    prompt, tokens = sizes["seq_len"], sizes["output_len"]
    target_len, once = run.workload.default.target_len, np.ones(len(prompt))
    always: Document = {"batch": sizes["batch"], "image_size": sizes["image_size"]}
    always["target_len"] = np.full_like(prompt, target_len)
    first = ShapeColumns.of(**always, seq_len=prompt)
    if not tokens[0]:
        return [_priced(run, once, first, Phase.FORWARD)]
    cached = np.ones_like(prompt) if target_len else prompt
    held, repeats = _decode_columns(cached, tokens - 1)
    each = len(held) // len(prompt)
    alike = {name: np.tile(column, each) for name, column in always.items()}
    step = ShapeColumns.of(**alike, seq_len=1, context_len=held, source_len=np.tile(prompt, each))
    return [
        _priced(run, once, first, Phase.PREFILL),
        _priced(run, repeats, step, Phase.DECODE, each),
    ]


def _decode_columns(first: IntArray, steps: IntArray) -> tuple[IntArray, FloatArray]:
    """Contexts of the first, middle and last step of s scenarios, and how many steps each stands
    for, shape (3 s,) each; see `accelsim.estimation.passes.decode_contexts`. One that stands for
    none has a context of 1, which every model can hold.
    """
    last = np.maximum(first + steps - 1, first)
    is_long, is_any, is_pair = steps > 2, steps > 0, steps == 2
    ends = np.where(is_long, steps / 6, 0.0)
    repeats = [
        np.where(is_long, ends, 1.0 * is_any),
        np.where(is_long, 4 * steps / 6, 0.0),
        np.where(is_long, ends, 1.0 * is_pair),
    ]
    stands = np.concatenate(repeats)
    return np.where(stands > 0, np.concatenate([first, (first + last) // 2, last]), 1), stands


def _priced(
    run: ResolvedRun, repeats: FloatArray, shapes: ShapeColumns, phase: Phase, contexts: int = 1
) -> _Pass:
    """A pass lowered and priced."""
    model = ModelOptions(precision=run.precision, fused_attention=run.fused_attention)
    batches = lower(run.workload, model, shapes, phase=phase, merges=run.stack_path.merges)
    columns: Columns = {}
    rows = []
    priced = (pair for each in batches for pair in _priced_alike(run, _fused(run, each)))
    for lowered, parameters in priced:
        graph = lowered.distinct_rows()
        kernels = operator_costs(graph, run.device, run.execution, parameters)
        table = on_stack(kernels, graph, run.stack_effect, is_decode=phase is Phase.DECODE)
        for name, column in _columns(run, lowered, table).items():
            whole = columns.setdefault(name, np.empty(len(repeats), dtype=column.dtype))
            whole[lowered.scenario] = column
        rows.append(_rows(lowered, table))
    joined = tuple(np.concatenate(parts) for parts in zip(*rows, strict=True))
    return _Pass(contexts, repeats, batches, columns, joined)


def _fused(run: ResolvedRun, lowered: LoweredBatch) -> LoweredBatch:
    """The scenarios as the run's stack fuses them."""
    fuses = run.stack_path.fuses
    return lowered if fuses == "nothing" else fuse_batch(lowered, fuses)


def _priced_alike(run: ResolvedRun, lowered: LoweredBatch) -> Iterator[tuple[LoweredBatch, Any]]:
    """Scenarios with the parameters of their costs: a CPU's depend on whether all weights of a
    graph stay in its last cache, those of an ASIC on the samples of its batch and on how many of
    its cores have one.
    """
    parameters = run.parameters
    if isinstance(run.device, AsicProfile):
        from accelsim.cost.systolic import systolic_parameters
        from accelsim.cost.systolic.machine import sample_counts

        values = parameters or systolic_parameters()
        counts = sample_counts(lowered.kind, lowered.dims)
        busy = np.minimum(counts, value_of(run.device.core_count, 1))
        for cores in np.unique(busy).tolist():
            alike = busy == cores
            samples = np.repeat(counts[alike], lowered.flop.shape[1])
            yield lowered.take(alike), replace(values, samples=samples)
        return
    if not isinstance(run.device, CpuProfile):
        yield lowered, parameters
        return
    from accelsim.cost.cpu import cpu_parameters
    from accelsim.cost.cpu.machine import cpu_machine

    values = parameters or cpu_parameters()
    capacity = cpu_machine(lowered.distinct_rows(), run.device, run.execution, values)
    last = capacity.level_capacity_bytes[-1] if len(capacity.level_capacity_bytes) else 0.0
    is_cold = lowered.weight_bytes @ lowered.repeat_count > last
    for cold in np.unique(is_cold).tolist():
        yield lowered.take(is_cold == cold), replace(values, weights_cold=bool(cold))


def _columns(run: ResolvedRun, lowered: LoweredBatch, table: CostTable) -> Columns:
    """Figures of a batch of scenarios from the costs of its distinct rows: time of one run alone
    and back to back, energy in steady state (NaN where unknown), FLOP and bytes; the time of all
    rows, and that weighted with the spread they share; what limits it, and the tier.
    """
    shape, launches = lowered.flop.shape, lowered.repeat_count
    settings = device_settings(run, 1.0, is_decode=lowered.phase is Phase.DECODE)
    time_s = device_time_s(table, settings).reshape(shape)
    schedule = Schedule.of(lowered, time_s, table.dispatch_s.reshape(shape), settings)
    latency_s, period_s = schedule.latency_and_period_s()
    rated = table.time_s.reshape(shape)
    idle_w = np.nan if settings.idle_w is None else settings.idle_w
    is_matrix = is_kind(lowered.kind, CONTRACTION_KINDS)
    moved = lowered.read_bytes + lowered.weight_bytes + lowered.write_bytes
    shared_s = np.asarray(table.time_s * table.context_log_sigma)
    return {
        "latency_s": latency_s,
        "period_s": period_s,
        "energy_j": table.energy_j.reshape(shape) @ launches + idle_w * period_s,
        "flop": lowered.flop @ (launches * is_matrix),
        "bytes": moved @ launches,
        "device_s": rated @ launches,
        "context_s": shared_s.reshape(shape) @ launches,
        "bound": schedule.bound(rated, table.bound.reshape(shape), launches),
        "tier": np.full(len(rated), table.tier.value, dtype=object),
    }


def _rows(lowered: LoweredBatch, table: CostTable) -> tuple[NDArray[Any], ...]:
    """Rows that the interval is made from; see `_Pass`."""
    scenarios, count = lowered.flop.shape
    shared = table.log_sigma if table.shared_log_sigma is None else table.shared_log_sigma
    return (
        np.repeat(lowered.scenario, count),
        np.tile(lowered.kind, scenarios),
        table.time_s,
        np.tile(lowered.repeat_count, scenarios),
        table.log_sigma,
        shared,
    )


def _weighted(passes: Sequence[_Pass], name: str) -> FloatArray:
    """Sum of a figure over passes, each as often as it runs, shape (s,)."""
    return np.asarray(
        _by_context(passes, [p.columns[name] * p.repeats for p in passes]).sum(axis=0)
    )


def _by_context(passes: Sequence[_Pass], columns: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Columns of passes, a row for each context of each, shape (contexts, s)."""
    pairs = zip(passes, columns, strict=True)
    return np.concatenate([column.reshape(p.contexts, -1) for p, column in pairs])


def _longest_bound(passes: Sequence[_Pass]) -> NDArray[Any]:
    """Bound of the pass that takes the most time."""
    taken = [p.columns["latency_s"] * p.repeats for p in passes]
    longest = _by_context(passes, taken).argmax(axis=0)
    bounds = _by_context(passes, [p.columns["bound"] for p in passes])
    return np.asarray(bounds[longest, np.arange(len(longest))])


def _memory_bytes(sizes: Mapping[str, IntArray], first: _Pass) -> FloatArray:
    """Weights, live activations and cache; see `accelsim.cost.memory.inference_footprint`."""
    memory = np.empty(len(sizes["batch"]))
    for lowered in first.batches:
        batch, prompt, output = (sizes[name][lowered.scenario] for name in _CACHED_SIZES)
        cache = batch * lowered.cache.bytes_of(prompt + output) * bool(output[0])
        memory[lowered.scenario] = lowered.parameter_bytes + lowered.peak_live_bytes() + cache
    return memory


def _alike_log_sigma(run: ResolvedRun, first: _Pass, *, generates: bool) -> FloatArray:
    """Spread of measured runs like each; see `Simulation.log_sigma`."""
    sigma = np.zeros(len(first.repeats))
    tier = ParameterTier(first.columns["tier"][0])
    for lowered in first.batches:
        kinds = model_kinds(lowered.kind, lowered.flop * lowered.repeat_count, generates=generates)
        for model in np.unique(kinds).tolist():
            setting = Setting.of(run.mode, run.precision, model)
            alike = least_log_sigma(run.device, tier, setting)
            sigma[lowered.scenario[kinds == model]] = alike
    return sigma


def _log_sigma(passes: Sequence[_Pass]) -> FloatArray:
    """Spread of ln(true / predicted) of each scenario; see `Simulation.operator_log_sigma`."""
    columns = []
    for p in passes:
        scenario, kind, time_s, *others = p.rows
        own = scenario % len(passes[0].repeats)
        columns.append((own, kind, time_s * p.repeats[scenario], *others))
    rows = run_log_sigmas(*map(np.concatenate, zip(*columns, strict=True)))
    context = _weighted(passes, "context_s") / _weighted(passes, "device_s")
    return np.asarray(np.hypot(rows, context))
