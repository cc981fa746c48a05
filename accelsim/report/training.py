"""A training estimate as tables for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import RenderableType

from accelsim.catalog import device
from accelsim.plain import Values
from accelsim.quantity import amount, say, size, usd, written
from accelsim.report.listing import Listing, panel
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
    is_run = d.get("time_to_train_s") is not None
    cost, energy, carbon = (
        d.get(f"total_{name}" if is_run else name)
        for name in ("cost_usd", "energy_j", "carbon_kgco2e")
    )
    values = {
        **d,
        "title": device(d["device"]).title,
        "nodes": "node" if d.get("node_count") == 1 else "nodes",
        "spent": "{time_to_train_s}" if is_run else "{iteration_s} an iteration",
        "cost": "price unknown" if cost is None else usd(cost),
        "energy": _watt_hours(energy),
        "hosts": _hosts(d),
        "carbon": carbon,
    }
    time = say(str(values["spent"]), values)
    start = say("{device_count} × {title}[ ({node_count} {nodes})]", values)
    spent = say("[{energy} {hosts}]", values) or "energy unknown"
    emitted = say("[{carbon:decimal} kgCO2e]", values) or "carbon unknown"
    return f"{start}: {time}, {values['cost']}, {spent}, {emitted}"


def _watt_hours(energy_j: float | None) -> str | None:
    return None if energy_j is None else amount(energy_j / _JOULE_PER_WH, "Wh")


def _raced(r: TrainingEstimate) -> str | None:
    """Trainers of a search and the time of an iteration on each, fastest first; which cannot be
    told from the fastest, and why one of them was chosen.
    """
    rows = r.trainers or ()
    said = ", ".join(
        f"{row['trainer']} {written('iteration_s', row['iteration_s'])}" for row in rows
    )
    tied = [str(row["trainer"]) for row in rows if row["is_tied"]]
    if len(tied) < 2:
        return said or None
    chosen = next(row for row in rows if row["is_chosen"])
    among = "all tied" if len(tied) == len(rows) else f"tied: {', '.join(tied)}"
    measured = f"{chosen['measured_rows']:,}" if chosen["measured_rows"] else "no"
    return f"{said}; {among}; taken: {chosen['trainer']}, {measured} runs of its kind measured"


def _hosts(d: Values) -> str:
    return "with hosts" if d["counts_hosts"] else "without hosts"


def _lines(r: TrainingEstimate) -> Iterator[tuple[str, str]]:
    rejected = r.rejected or {}
    stack, execution = (str(r.inputs[name]) for name in ("stack", "execution"))
    parts = sorted(r.time_s.items(), key=lambda item: -item[1])
    shares = {name: s / r.iteration_s for name, s in parts if s > _SHOWN_SHARE * r.iteration_s}
    held = sorted(r.memory.items(), key=lambda item: -item[1])
    again = r.hardware_flop_per_s_per_device / r.model_flop_per_s_per_device - 1.0
    chance = r.fit_probability_fraction
    intervals = r.with_intervals()
    values = {
        **intervals,
        "total_wh": _watt_hours(r.total_energy_j),
        "low_wh": _watt_hours(intervals["low"].get("total_energy_j")),
        "high_wh": _watt_hours(intervals["high"].get("total_energy_j")),
        "decision": decision_words(r.figures()),
        "hosts": _hosts(r.figures()),
        "inputs": r.inputs,
        "microbatches": "microbatch" if r.plan["microbatch_count"] == 1 else "microbatches",
        "ran_by": stack_words(stack, execution),
        "spent": written("time_fraction", shares),
        "held": ", ".join(
            f"{name.removesuffix('_bytes')} {size(one)}" for name, one in held if one
        ),
        "again": again if again > 0.0 else None,
        "doubtful": chance if _SURE < chance < 1.0 - _SURE else None,
        "paid": r.cost_usd is not None and offer_words(r.offer),
        "raced": _raced(r),
        "refused": float(sum(rejected.values())),
        "expected_failures": r.expected_failures or None,
    }
    yield from ((name, said) for name, text in _LINES.items() if (said := say(text, values)))
    yield from (("", f"{count:,}: {reason}") for reason, count in rejected.items())
    yield "based on", f"{r.evidence.sentence} (tier {r.tier})"
    yield from (("caution", warning) for warning in r.warnings)
