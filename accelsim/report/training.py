"""A training estimate as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import RenderableType

from accelsim.catalog import device
from accelsim.plain import Document, Values
from accelsim.quantity import amount, say, size, usd, written
from accelsim.report.listing import Listing, filled, panel
from accelsim.report.offers import offer_words
from accelsim.report.stacks import stack_words

if TYPE_CHECKING:
    from accelsim.training.estimate import TrainingEstimate

_SHOWN_PLANS = 6
_JOULE_PER_WH = 3600.0
_SHOWN_SHARE = 0.0005
#: A probability of fit nearer to 0 or 1 than this goes without saying.
_SURE = 0.01
#: What a panel says of a result, line by line.
_LINES = {
    "takes": "{decision}",
    "plan": "{inputs.plan}",
    "MFU": "{mfu_fraction}, {model_flop_per_s_per_device} a device[; {again:fraction} more with "
    "what runs again]",
    "memory": "{memory_bytes} ({memory_low_bytes} to {memory_high_bytes}) of {device_memory_bytes}"
    "[; fits with probability {doubtful:decimal}]; worst rank {worst_rank}: {held}",
    "iteration": "{plan.global_batch} samples[ of {inputs.seq_len} tokens], "
    "{plan.microbatch_count} {microbatches}, {precision}, {ran_by}",
    "time": "{iteration_s} ({interval_level} between {iteration_low_s} and {iteration_high_s})",
    "goes to": "{spent}",
    "throughput": "[{tokens_per_s} tokens/s, ]{samples_per_s} samples/s",
    "energy": "{energy_j}[ an iteration ({low.energy_j} to {high.energy_j}), {average_power_w} in "
    "the mean, {hosts}]",
    "cost": "{cost_usd}[ an iteration ({low.cost_usd} to {high.cost_usd}; {paid})]",
    "whole run": "[{time_to_train_s} ({time_to_train_low_s} to {time_to_train_high_s})]"
    "[, {total_cost_usd} ({low.total_cost_usd} to {high.total_cost_usd})]"
    "[, {total_wh} ({low_wh} to {high_wh})]",
    "failures": "[{expected_failures:number} expected, goodput {goodput_fraction}]",
    "trainers": "[{raced}]",
    "search": "[{considered} plans in {search_s}, {refused:count} of them cannot run]",
}


def training_view(result: TrainingEstimate) -> RenderableType:
    """One training estimate: its figures in a panel, and the plans of a search.

    Args:
        result: The result.
    """
    where = result.cluster or result.device
    plans = (
        "~plan | >iteration=iteration_s | >memory=memory_bytes | "
        ">within 5 %=near_best_probability | ~loses=why"
    )
    return panel(
        f"{result.workload} on {result.device_count:,} devices of {where}",
        list(_lines(result)),
        Listing.of(plans, (result.plans or ())[:_SHOWN_PLANS]),
    )


def decision_words(d: Values) -> str:
    """What a run takes, or an iteration where no length is given: devices, time, price, energy and
    whether hosts are counted, carbon.

    Args:
        d: Figures of a `TrainingEstimate`.
    """
    total = "total_" if d.get("time_to_train_s") is not None else ""
    cost_usd = d.get(f"{total}cost_usd")
    values = {
        **d,
        "title": device(d["device"]).title,
        "nodes": "node" if d.get("node_count") == 1 else "nodes",
        "cost": "price unknown" if cost_usd is None else usd(cost_usd),
        "energy": _watt_hours(d.get(f"{total}energy_j")),
        "hosts": _hosts(d),
        "carbon": d.get(f"{total}carbon_kgco2e"),
    }
    takes = "{time_to_train_s}" if total else "{iteration_s} an iteration"
    start = say(f"{{device_count}} × {{title}}[ ({{node_count}} {{nodes}})]: {takes}", values)
    energy = say("[{energy} {hosts}]", values) or "energy unknown"
    carbon = say("[{carbon:decimal} kgCO2e]", values) or "carbon unknown"
    return f"{start}, {values['cost']}, {energy}, {carbon}"


def _watt_hours(energy_j: float | None) -> str | None:
    return None if energy_j is None else amount(energy_j / _JOULE_PER_WH, "Wh")


def _raced(r: TrainingEstimate) -> str | None:
    """Trainers of a search and the time of an iteration on each, fastest first; which cannot be
    told from the fastest, and why one of them was chosen.
    """
    rows = r.trainers or ()
    times = ", ".join(
        f"{row['trainer']} {written('iteration_s', row['iteration_s'])}" for row in rows
    )
    tied = [str(row["trainer"]) for row in rows if row["is_tied"]]
    if len(tied) < 2:
        return times or None
    chosen = next(row for row in rows if row["is_chosen"])
    among = "all tied" if len(tied) == len(rows) else f"tied: {', '.join(tied)}"
    measured = f"{chosen['measured_rows']:,}" if chosen["measured_rows"] else "no"
    return f"{times}; {among}; taken: {chosen['trainer']}, {measured} runs of its kind measured"


def _hosts(d: Values) -> str:
    return "with hosts" if d["counts_hosts"] else "without hosts"


def _lines(r: TrainingEstimate) -> Iterator[tuple[str, str]]:
    yield from filled(_LINES, _values(r))
    yield from (("", f"{count:,}: {reason}") for reason, count in (r.rejected or {}).items())
    yield "based on", f"{r.evidence.sentence} (tier {r.tier})"
    yield from (("caution", warning) for warning in r.warnings)


def _values(r: TrainingEstimate) -> Document:
    """Figures of a result, the ends of their intervals, and what is said of them in words."""
    values = r.with_intervals()
    low, high = values["low"], values["high"]
    chance = r.fit_probability_fraction
    again = r.hardware_flop_per_s_per_device / r.model_flop_per_s_per_device - 1.0
    return {
        **values,
        "total_wh": _watt_hours(r.total_energy_j),
        "low_wh": _watt_hours(low.get("total_energy_j")),
        "high_wh": _watt_hours(high.get("total_energy_j")),
        "decision": decision_words(values),
        "hosts": _hosts(values),
        "inputs": r.inputs,
        "microbatches": "microbatch" if r.plan["microbatch_count"] == 1 else "microbatches",
        "ran_by": stack_words(str(r.inputs["stack"]), str(r.inputs["execution"])),
        "spent": _spent(r),
        "held": _held(r),
        "again": again if again > 0.0 else None,
        "doubtful": chance if _SURE < chance < 1.0 - _SURE else None,
        "paid": r.cost_usd is not None and offer_words(r.offer),
        "raced": _raced(r),
        "refused": float(sum((r.rejected or {}).values())),
        "expected_failures": r.expected_failures or None,
    }


def _spent(r: TrainingEstimate) -> str:
    """Shares of an iteration's time, largest first."""
    parts = sorted(r.time_s.items(), key=lambda entry: -entry[1])
    shares = {name: s / r.iteration_s for name, s in parts if s > _SHOWN_SHARE * r.iteration_s}
    return written("time_fraction", shares)


def _held(r: TrainingEstimate) -> str:
    """What a device's memory holds, largest first."""
    parts = sorted(r.memory.items(), key=lambda entry: -entry[1])
    return ", ".join(
        f"{name.removesuffix('_bytes')} {size(held_bytes)}"
        for name, held_bytes in parts
        if held_bytes
    )
