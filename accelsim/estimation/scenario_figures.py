"""Figures of many sizes of one run at once: passes lowered and priced together, with the same
figures as `accelsim.estimation.simulate` gives one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from accelsim.confidence.quantiles import Z90
from accelsim.confidence.residual import run_log_sigmas
from accelsim.cost.registry import Parameters, operator_costs
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
from accelsim.simulation.device_settings import device_time_s
from accelsim.workloads.fusion import fuse_batch
from accelsim.workloads.graph import FloatArray, IntArray, is_kind
from accelsim.workloads.lowering import LoweredBatch, ShapeColumns, lower
from accelsim.workloads.operator import CONTRACTION_KINDS, Phase
from accelsim.workloads.options import ModelOptions

if TYPE_CHECKING:
    from accelsim.cost.cpu import CpuParameters
    from accelsim.cost.systolic import SystolicParameters

Column: TypeAlias = NDArray[Any]
Columns: TypeAlias = dict[str, Column]
#: Steps of a sequence that are costed.
_CONTEXTS = 3


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
    rows: tuple[Column, ...]


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
    prompt, generates = passes[0], bool(tokens[0])
    front_end_s = _front_end_s(run, sizes, prompt) if generates else np.zeros(len(batch))
    latency = front_end_s + _weighted(passes, "latency_s")
    period = np.minimum(_weighted(passes, "period_s"), latency)
    energy = _weighted(passes, "energy_j")
    alike_log_sigma = _alike_log_sigma(run, prompt, generates=generates)
    spread = np.exp(Z90 * np.maximum(_log_sigma(passes), alike_log_sigma))
    rate = batch / period
    figures: Columns = {
        "latency_s": latency,
        "latency_low_s": latency / spread,
        "latency_high_s": latency * spread,
        "throughput_per_s": rate,
        "energy_j": energy,
        "average_power_w": energy / period,
        "energy_per_sample_j": energy / batch,
        "memory_bytes": _memory_bytes(sizes, prompt),
        "flop": _weighted(passes, "flop"),
        "bytes": _weighted(passes, "bytes"),
        "tier": prompt.columns["tier"],
        "bound": _longest_bound(passes),
    }
    if generates:
        decode = passes[1]
        steps = decode.repeats.reshape(decode.contexts, -1).sum(axis=0)
        decode_s, unknown = _weighted([decode], "latency_s"), np.full(len(batch), np.nan)
        figures["time_to_first_token_s"] = front_end_s + prompt.columns["latency_s"]
        figures["time_per_output_token_s"] = np.divide(
            decode_s, steps, out=unknown, where=steps > 0
        )
        figures["tokens_per_s"] = rate * tokens
    return figures


def _front_end_s(run: ResolvedRun, sizes: Mapping[str, IntArray], prompt: _Pass) -> FloatArray:
    """Time of requests before a serving engine's first pass, and of the device that waits for its
    operators; see `Simulation.latency_s`.
    """
    issue_s = np.zeros(len(prompt.repeats))
    for lowered in prompt.batches:
        alike = lowered.take(np.arange(len(lowered.scenario)) == 0)
        launches = lowered.repeat_count
        issue_s[lowered.scenario] = prompt_issue_s(run, alike.distinct_rows(), launches)
    waits_s = np.maximum(issue_s - prompt.columns["latency_s"], 0.0)
    return np.asarray(run.front_end_s(sizes["seq_len"].astype(float)) + waits_s)


def _passes(run: ResolvedRun, sizes: Mapping[str, IntArray]) -> list[_Pass]:
    """The passes of all scenarios, which generate tokens or do not."""
    prompt, tokens = sizes["seq_len"], sizes["output_len"]
    target_len, once = run.workload.default.target_len, np.ones(len(prompt))
    sides: Columns = {"batch": sizes["batch"], "image_size": sizes["image_size"]}
    sides["target_len"] = np.full_like(prompt, target_len)
    shapes = ShapeColumns.of(**sides, seq_len=prompt)
    if not tokens[0]:
        return [_priced(run, once, shapes, Phase.FORWARD)]
    contexts, repeats = _decode_columns(np.ones_like(prompt) if target_len else prompt, tokens - 1)
    tiled = {name: np.tile(column, _CONTEXTS) for name, column in sides.items()}
    source_len = np.tile(prompt, _CONTEXTS)
    steps = ShapeColumns.of(**tiled, seq_len=1, context_len=contexts, source_len=source_len)
    return [
        _priced(run, once, shapes, Phase.PREFILL),
        _priced(run, repeats, steps, Phase.DECODE, _CONTEXTS),
    ]


def _decode_columns(begin: IntArray, steps: IntArray) -> tuple[IntArray, FloatArray]:
    """Contexts of the first, middle and last step of s scenarios, and how many steps each stands
    for, shape (3 s,) each: Simpson's rule, see `accelsim.estimation.passes.decode_contexts` (Press
    et al., 2007). One that stands for none has a context of 1, which every model can hold.
    """
    last, is_long = np.maximum(begin + steps - 1, begin), steps > 2
    stands_for = np.concatenate(
        [
            np.where(is_long, steps / 6, 1.0 * (steps > 0)),
            np.where(is_long, 4 * steps / 6, 0.0),
            np.where(is_long, steps / 6, 1.0 * (steps == 2)),
        ]
    )
    contexts = np.concatenate([begin, (begin + last) // 2, last])
    return np.where(stands_for > 0, contexts, 1), stands_for


def _priced(
    run: ResolvedRun, repeats: FloatArray, shapes: ShapeColumns, phase: Phase, contexts: int = 1
) -> _Pass:
    """A pass lowered and priced."""
    model = ModelOptions(precision=run.precision, fused_attention=run.fused_attention)
    batches = lower(run.workload, model, shapes, phase=phase, merges=run.stack_path.merges)
    columns: Columns = {}
    rows = []
    alike = (pair for batch in batches for pair in _priced_alike(run, _fused(run, batch)))
    for lowered, parameters in alike:
        graph = lowered.distinct_rows()
        kernels = operator_costs(graph, run.device, run.execution, parameters)
        table = on_stack(kernels, graph, run.stack_effect, is_decode=phase is Phase.DECODE)
        for name, column in _columns(run, lowered, table).items():
            figures = columns.setdefault(name, np.empty(len(repeats), dtype=column.dtype))
            figures[lowered.scenario] = column
        rows.append(_rows(lowered, table))
    joined = tuple(np.concatenate(parts) for parts in zip(*rows, strict=True))
    return _Pass(contexts, repeats, batches, columns, joined)


def _fused(run: ResolvedRun, lowered: LoweredBatch) -> LoweredBatch:
    """The scenarios as the run's stack fuses them."""
    fuses = run.stack_path.fuses
    return lowered if fuses == "nothing" else fuse_batch(lowered, fuses)


def _priced_alike(
    run: ResolvedRun, lowered: LoweredBatch
) -> Iterator[tuple[LoweredBatch, Parameters | None]]:
    """Scenarios with the parameters of their costs: a CPU's depend on whether all weights of a
    graph stay in its last cache, those of an ASIC on the samples of its batch and on how many of
    its cores have one.
    """
    parameters = run.parameters
    if isinstance(run.device, AsicProfile):
        from accelsim.cost.systolic import systolic_parameters
        from accelsim.cost.systolic.machine import sample_counts

        systolic = cast("SystolicParameters", parameters or systolic_parameters())
        counts = sample_counts(lowered.kind, lowered.dims)
        busy = np.minimum(counts, value_of(run.device.core_count, 1))
        for cores in np.unique(busy).tolist():
            alike = busy == cores
            samples = np.repeat(counts[alike], lowered.flop.shape[1])
            yield lowered.take(alike), replace(systolic, samples=samples)
        return
    if not isinstance(run.device, CpuProfile):
        yield lowered, parameters
        return
    from accelsim.cost.cpu import cpu_parameters
    from accelsim.cost.cpu.machine import cpu_machine

    cpu = cast("CpuParameters", parameters or cpu_parameters())
    machine = cpu_machine(lowered.distinct_rows(), run.device, run.execution, cpu)
    cache_bytes = [0.0, *machine.level_capacity_bytes][-1]
    is_cold = lowered.weight_bytes @ lowered.repeat_count > cache_bytes
    for cold in np.unique(is_cold).tolist():
        yield lowered.take(is_cold == cold), replace(cpu, weights_cold=bool(cold))


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


def _rows(lowered: LoweredBatch, table: CostTable) -> tuple[Column, ...]:
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


def _by_context(passes: Sequence[_Pass], columns: Sequence[Column]) -> Column:
    """Columns of passes, a row for each context of each, shape (contexts, s)."""
    pairs = zip(passes, columns, strict=True)
    return np.concatenate([column.reshape(p.contexts, -1) for p, column in pairs])


def _longest_bound(passes: Sequence[_Pass]) -> Column:
    """Bound of the pass that takes the most time."""
    times_s = [p.columns["latency_s"] * p.repeats for p in passes]
    longest = _by_context(passes, times_s).argmax(axis=0)
    bounds = _by_context(passes, [p.columns["bound"] for p in passes])
    return np.asarray(bounds[longest, np.arange(len(longest))])


def _memory_bytes(sizes: Mapping[str, IntArray], prompt: _Pass) -> FloatArray:
    """Weights, live activations and cache; see `accelsim.cost.memory.inference_footprint`."""
    memory = np.empty(len(sizes["batch"]))
    generates = bool(sizes["output_len"][0])
    lengths = sizes["seq_len"] + sizes["output_len"]
    for lowered in prompt.batches:
        memory[lowered.scenario] = lowered.parameter_bytes + lowered.peak_live_bytes()
        if generates:
            cache = lowered.cache.bytes_of(lengths[lowered.scenario])
            memory[lowered.scenario] += sizes["batch"][lowered.scenario] * cache
    return memory


def _alike_log_sigma(run: ResolvedRun, prompt: _Pass, *, generates: bool) -> FloatArray:
    """Spread of measured runs like each; see `Simulation.log_sigma`."""
    sigma = np.zeros(len(prompt.repeats))
    tier = ParameterTier(prompt.columns["tier"][0])
    for lowered in prompt.batches:
        kinds = model_kinds(lowered.kind, lowered.flop * lowered.repeat_count, generates=generates)
        for model in np.unique(kinds).tolist():
            setting = Setting.of(run.mode, run.precision, model)
            is_alike = lowered.scenario[kinds == model]
            sigma[is_alike] = least_log_sigma(run.device, tier, setting)
    return sigma


def _log_sigma(passes: Sequence[_Pass]) -> FloatArray:
    """Spread of ln(true / predicted) of each scenario; see `Simulation.operator_log_sigma`.

    Independent errors add in quadrature (JCGM 100:2008, section 5.1).
    """
    columns = []
    for p in passes:
        scenario, kind, time_s, *others = p.rows
        scenario_of_all = scenario % len(passes[0].repeats)
        columns.append((scenario_of_all, kind, time_s * p.repeats[scenario], *others))
    rows = run_log_sigmas(*map(np.concatenate, zip(*columns, strict=True)))
    context = _weighted(passes, "context_s") / _weighted(passes, "device_s")
    return np.asarray(np.hypot(rows, context))
