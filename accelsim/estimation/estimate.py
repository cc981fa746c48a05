"""Estimate one run: time, energy, memory and cost of a model on a device, with an interval and what
limits it.

An estimate sums a simulation up (`accelsim.estimation.simulate`) and adds the price, the memory and
what the figures rest on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Unpack

from accelsim.arguments import checked
from accelsim.confidence.quantiles import Z90
from accelsim.economics.device_price import DevicePrice, device_price
from accelsim.economics.result import usd_per_1000_inferences, usd_per_epoch, usd_per_million_tokens
from accelsim.estimation.evidence import POWER_LOG_SIGMA, Evidence, evidence
from accelsim.estimation.options import EstimateKeywords, PriceChoice, RunOptions, options_and_price
from accelsim.estimation.passes import RunPasses, check_effect, run_passes
from accelsim.estimation.resolution import resolve
from accelsim.estimation.run import ResolvedRun
from accelsim.estimation.simulate import Simulation, simulated, system_of
from accelsim.estimation.simulated_pass import OperatorShare
from accelsim.frozen import frozen
from accelsim.hardware.profile import DeviceProfile
from accelsim.plain import Document, Values
from accelsim.result import Metric, Provenance, Result
from accelsim.workloads.model import Workload
from accelsim.workloads.operator import CONV_KINDS
from accelsim.workloads.sharding import WHOLE

if TYPE_CHECKING:
    from torch.nn import Module

    from accelsim.estimation.fitting import FittingChange

__all__ = ["FIGURES", "NESTED", "Estimate", "OperatorShare", "estimate"]

_INTERVAL_LEVEL = 0.9
#: Figures of an estimate that are no scalars.
NESTED = frozenset({"memory", "operators", "relatives", "evidence", "would_fit"})
#: Fields that describe an estimate and are no figures of it.
_ABOUT = frozenset({"inputs", "provenance", "warnings"})
#: Figures by what they are of.
_GROUPS: Mapping[str, str] = {
    "timing": """latency_s latency_low_s latency_high_s throughput_per_s time_to_first_token_s
        time_per_output_token_s tokens_per_s decode_tokens_per_s""",
    "energy_use": "energy_j average_power_w energy_per_sample_j",
    "memory_use": "memory_bytes memory_short_bytes",
    "price": "usd_per_hour cost_usd_per_1000 cost_usd_per_million_tokens",
}
_METRICS = tuple(
    name
    for name in " ".join(_GROUPS.values()).split()
    if name not in {"latency_low_s", "latency_high_s"}
)


@frozen(repr=False)
class Estimate(Result):
    """What a run takes; unknown figures are None, and all times are None where the model does not
    fit.

    Attributes:
        workload: Workload name.
        device: Device name.
        batch: Samples or sequences per iteration.
        precision: Precision policy.
        mode: "inference" or "training".
        stack: Software that runs it.
        execution: "eager", "graph", "compiled" or "compiled-calls".
        layout: Layout of its convolutions; empty where there are none, or the stack chooses.
        latency_s: One batch alone, from its copy to the device to its result: a training step, a
            forward pass, or prefill and all generated tokens.
        throughput_per_s: Samples (sequences) per second, batches back to back.
        latency_low_s: Lower end of the interval.
        latency_high_s: Upper end.
        interval_level: Probability the interval is meant to hold.
        tier: "spec", "fitted" or "measured".
        bound: What limits the run: compute, memory, overhead, dispatch, link, or memory_capacity.
        energy_j: Device energy per iteration in steady state.
        average_power_w: Its mean power.
        memory_bytes: Peak memory of the run.
        fits: Whether that is within what the device has available.
        memory_short_bytes: Bytes missing where it does not fit, else 0.
        flop: Model FLOP of an iteration (matrix arithmetic, multiply-add = 2).
        bytes: Bytes the operators read and write, each counted alone.
        cost_usd_per_1000: USD per 1,000 samples (sequences).
        offer: Price used, provider/region/instance[:kind].
        usd_per_hour: That price for this device.
        cost_usd_per_million_tokens: USD per million generated tokens.
        time_to_first_token_s: Prefill latency of an autoregressive run.
        time_per_output_token_s: Mean decode step.
        tokens_per_s: Generated tokens per second, whole batch, of the whole run.
        decode_tokens_per_s: The same while decoding alone.
        energy_per_sample_j: Energy over batch.
        parameter_count: Parameters of the model.
        memory: Memory by use, in bytes.
        seq_len: Input tokens per sequence; 0 where there are none.
        output_len: Generated tokens per sequence.
        operators: Largest operators, by device time, with their shares of the run.
        host: Device that ran what this one cannot; None where all ran here.
        relatives: Measured boards whose kernel surfaces stand for the device's own, nearest first.
        evidence: What the estimate rests on and what its like was validated on; None where the
            model does not fit.
        extrapolated_fraction: Share of the device time outside the sizes that were measured; None
            where none were.
        sparse_weights: Whether weights were taken to have the chip's structured sparsity.
        heap: "default", or "kept" where the memory allocator was taken to keep what is freed.
        device_memory_bytes: Memory of the device, as its driver reports it.
        memory_available_bytes: Memory a run can allocate there: the device's, less what error
            correction, the process and fragmentation take.
        would_fit: Where it does not fit, changes that would make it, each alone.
        host_layer_count: Layers that lie in host memory.
        host_memory_bytes: What they take there.
        trained_positions: Tokens of a sequence the model was trained on; None where that is not
            known.
        price_as_of: Date of the price; None where the caller gave it, or it has none.
        steps: Denoising steps of a sample of a diffusion model; 0 for other models.
        inputs: What was asked, resolved.
        provenance: Version of accelsim and content of what it was made with.
        warnings: What to know before trusting the figures.
    """

    kind: ClassVar[str] = "estimate"
    nested: ClassVar[frozenset[str]] = NESTED

    workload: str
    device: str
    batch: int
    precision: str
    mode: str
    stack: str
    execution: str
    layout: str
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
    sparse_weights: bool = False
    heap: str = "default"
    device_memory_bytes: float | None = None
    memory_available_bytes: float | None = None
    would_fit: tuple[FittingChange, ...] = ()
    host_layer_count: int = 0
    host_memory_bytes: float = 0.0
    trained_positions: int | None = None
    price_as_of: str | None = None
    decode_tokens_per_s: float | None = None
    steps: int = 0
    inputs: Values = field(default_factory=dict, compare=False)
    provenance: Provenance = field(default_factory=lambda: Provenance(""), compare=False)
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        latency = "does not fit" if self.latency_s is None else f"{self.latency_s:.4g} s"
        return f"<Estimate: {self.workload} on {self.device}, batch {self.batch}, {latency}>"

    @property
    def metrics(self) -> dict[str, Metric]:
        """Figures by name; times, rates, energies and costs with their intervals.

        What is paid per hour goes with the time. Energy is off by the time and by the power, each
        on its own.
        """
        return {name: Metric(getattr(self, name), *self.interval(name)) for name in _METRICS}

    def interval(self, name: str) -> tuple[float | None, float | None, float | None]:
        """Low end, high end and level of a figure's interval; None where it has none.

        Estimate: a figure's own error is independent of the time's.

        Args:
            name: A figure.
        """
        value, latency, high = getattr(self, name), self.latency_s, self.latency_high_s
        if not value or not latency or high is None or name not in _SPREADS:
            return None, None, None
        time = math.log(high / latency)
        spread = math.exp(math.hypot(*(time * _SPREADS[name][0], Z90 * _SPREADS[name][1])))
        return value / spread, value * spread, self.interval_level

    @property
    def timing(self) -> dict[str, float | None]:
        """Times and rates."""
        return self._group("timing")

    @property
    def energy_use(self) -> dict[str, float | None]:
        """Energy and power."""
        return self._group("energy_use")

    @property
    def memory_use(self) -> dict[str, float | None]:
        """Memory in all, what is missing, and by use."""
        return self._group("memory_use") | dict(self.memory)

    @property
    def price(self) -> dict[str, float | None]:
        """Price of the device and cost of what it does."""
        return self._group("price")

    def _group(self, name: str) -> dict[str, float | None]:
        return {figure: getattr(self, figure) for figure in _GROUPS[name].split()}

    def figures(self) -> Document:
        """Flat figures and lists, ready for JSON; unknown figures are None."""
        values = {name: getattr(self, name) for name in FIGURES}
        values["memory"], values["relatives"] = dict(self.memory), list(self.relatives)
        values["would_fit"] = [change.to_dict() for change in self.would_fit]
        values["evidence"] = None if self.evidence is None else self.evidence.to_dict()
        values["operators"] = [asdict(share) for share in self.operators]
        return values

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


#: Figures with an interval, with how much of the time's spread and which of their own they have.
_SPREADS: Mapping[str, tuple[float, float]] = {
    **dict.fromkeys((*_GROUPS["timing"].split(), *_GROUPS["price"].split()), (1.0, 0.0)),
    **dict.fromkeys(("energy_j", "energy_per_sample_j"), (1.0, POWER_LOG_SIGMA)),
    "average_power_w": (0.0, POWER_LOG_SIGMA),
    "usd_per_hour": (0.0, 0.0),
}
#: Names of an estimate's flat figures, in order.
FIGURES = tuple(f.name for f in fields(Estimate) if f.name not in _ABOUT)


@checked
def estimate(
    workload: str | Path | Workload | Module,
    device: str | DeviceProfile,
    options: RunOptions | None = None,
    price: PriceChoice | None = None,
    **keywords: Unpack[EstimateKeywords],
) -> Estimate:
    """Estimate one run of a model on a device.

    Args:
        workload: Name, path of a workload file, or a `Workload`.
        device: Name (slices like ``epyc-7763@8vcpu`` too) or a profile; ``2 x rtx-3090`` for
            devices that share the model (tensor parallelism).
        options: What runs; defaults where None.
        price: Which price; the cheapest on-demand offer where None.
        keywords: Fields of `RunOptions`, of the options it holds and of `PriceChoice`, in place of
            theirs: ``batch=64``, ``precision="fp16"``, ``usd_per_hour=1.2``.

    Raises:
        InputError: If a name, size or choice is wrong, or the device cannot run an operator; its
            subclasses say which.
    """
    chosen, paid = options_and_price(options, price, keywords)
    run = resolve(workload, device, chosen)
    cost = device_price(run.device, paid)
    passes = run_passes(run)
    check_effect(chosen.model, run)
    return _estimate(run, passes, cost)


def _estimate(run: ResolvedRun, passes: RunPasses, price: DevicePrice) -> Estimate:
    is_shared = run.shard != WHOLE
    model = run_passes(replace(run, shard=WHOLE, cluster=None)) if is_shared else passes
    available = run.available_bytes
    short = passes.memory.short_bytes(available)
    figures = _simulated_figures(run, simulated(run, passes), price)
    if short > 0:
        figures |= _UNFITTING
        from accelsim.estimation.fitting import fitting_changes

        figures["would_fit"] = fitting_changes(run, passes)
    return Estimate(
        workload=run.workload.name,
        device=run.device_label,
        batch=run.batch,
        precision=run.precision.name,
        mode=run.mode,
        stack=run.stack.label,
        execution=run.execution.value,
        layout=run.layout if passes.has(CONV_KINDS) else "",
        interval_level=_INTERVAL_LEVEL,
        memory_bytes=passes.memory.total_bytes,
        device_memory_bytes=run.device.memory_bytes,
        memory_available_bytes=available,
        fits=short <= 0,
        memory_short_bytes=short,
        flop=model.model_flop,
        bytes=passes.total_bytes * run.shard.tp,
        offer=price.offer,
        usd_per_hour=_of_all(run, price.usd_per_hour),
        price_as_of=price.as_of or None,
        parameter_count=model.parameter_count,
        memory=asdict(passes.memory),
        seq_len=run.seq_len,
        output_len=run.output_len,
        steps=run.steps if run.workload.family is not None and run.workload.family.steps else 0,
        host=_host_name(run),
        host_layer_count=passes.host_layers,
        host_memory_bytes=passes.host_bytes,
        sparse_weights=run.sparse_weights,
        heap=run.heap,
        trained_positions=getattr(run.workload.parameters, "max_positions", 0) or None,
        inputs=run.to_dict(),
        provenance=run.provenance,
        **figures,
    )


def _host_name(run: ResolvedRun) -> str | None:
    """The device beside the run's own."""
    host_run = None if run.offload is None else run.offload.host
    host = run.host if host_run is None else host_run.device
    return None if host is None else host.name


#: Figures that a run which does not fit has not.
_UNFITTING: Values = {
    **dict.fromkeys((*_GROUPS["timing"].split(), *_GROUPS["energy_use"].split())),
    **dict.fromkeys(("cost_usd_per_1000", "cost_usd_per_million_tokens", "extrapolated_fraction")),
    "bound": "memory_capacity",
    "operators": (),
}


def _simulated_figures(run: ResolvedRun, simulation: Simulation, price: DevicePrice) -> Document:
    """Figures that a simulation gives."""
    latency, energy = simulation.latency_s, _of_all(run, simulation.energy_j)
    names = (run.device.whole_name, str(run.device.device_class), simulation.tier.value)
    basis = evidence(*names, simulation.relatives, simulation.setting)
    if run.learned is not None:
        corrected = run.learned.basis(system_of(simulation, p) for p in simulation.corrections)
        basis = replace(basis, sentence=basis.sentence + corrected)
    step_s = simulation.time_per_output_token_s
    throughput = run.batch / simulation.period_s
    tokens = throughput * run.output_len if run.output_len else None
    cost, token_cost = _costs_usd(_of_all(run, price.usd_per_hour), throughput, tokens)
    return {
        "latency_s": latency,
        "latency_low_s": latency / simulation.spread_ratio,
        "latency_high_s": latency * simulation.spread_ratio,
        "throughput_per_s": throughput,
        "tier": simulation.tier.value,
        "bound": simulation.bound,
        "energy_j": energy,
        "average_power_w": _of_all(run, simulation.average_power_w),
        "cost_usd_per_1000": cost,
        "cost_usd_per_million_tokens": token_cost,
        "time_to_first_token_s": simulation.time_to_first_token_s,
        "time_per_output_token_s": step_s,
        "tokens_per_s": tokens,
        "decode_tokens_per_s": run.batch / step_s if step_s else None,
        "energy_per_sample_j": None if energy is None else energy / run.batch,
        "operators": simulation.operators,
        "extrapolated_fraction": simulation.extrapolated_fraction,
        "relatives": simulation.relatives,
        "evidence": basis,
        "warnings": simulation.warnings + basis.warnings + price.notes,
    }


def _of_all(run: ResolvedRun, amount: float | None) -> float | None:
    """What all devices of a run take, of what one takes."""
    return None if amount is None else amount * run.shard.tp


def _costs_usd(
    usd_per_hour: float | None, throughput_per_s: float, tokens_per_s: float | None
) -> tuple[float | None, float | None]:
    """USD per 1,000 samples and per million tokens; None where the price or the rate is unknown."""
    if usd_per_hour is None:
        return None, None
    cost = usd_per_1000_inferences(usd_per_hour, throughput_per_s)
    return cost, usd_per_million_tokens(usd_per_hour, tokens_per_s) if tokens_per_s else None
