"""A training estimate as tables for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.text import Text

from accelsim.report.listing import Listing, pairs
from accelsim.report.offers import offer_words
from accelsim.report.quantity import UNKNOWN, amount, duration, number, percent, usd
from accelsim.report.tables import stack_words

if TYPE_CHECKING:
    from accelsim.training.estimate import TrainingEstimate

_SHOWN_PLANS = 6
_SHOWN_SHARE = 0.0005
#: A probability of fit nearer to 0 or 1 than this goes without saying.
_SURE = 0.01


def training_view(result: TrainingEstimate, plan: str) -> RenderableType:
    """One training estimate: its figures in a panel, and the plans of a search.

    Args:
        result: The result.
        plan: Its plan in words.
    """
    where = result.cluster or result.device
    panel = Panel(
        pairs(_figures(result, plan), style="bold"),
        title=Text(f"{result.workload} on {result.device_count:,} devices of {where}"),
        title_align="left",
        border_style="dim",
    )
    if not result.plans:
        return panel
    return Group(panel, Padding(_plans(result.plans), (1, 0, 0, 0)))


def _figures(result: TrainingEstimate, plan: str) -> list[tuple[str, str]]:
    shown = result.plan
    tokens = f" of {result.inputs['seq_len']:,} tokens" if result.inputs.get("seq_len") else ""
    microbatches = shown["microbatch_count"]
    count = f"{microbatches:,} microbatch" + ("" if microbatches == 1 else "es")
    parts = f"{shown['global_batch']:,} samples{tokens}, {count}"
    stack, execution = (str(result.inputs[name]) for name in ("stack", "execution"))
    low, high = duration(result.iteration_low_s), duration(result.iteration_high_s)
    level = percent(result.interval_level)
    lines = [
        ("plan", plan),
        ("iteration", f"{parts}, {result.precision}, {stack_words(stack, execution)}"),
        ("time", f"{duration(result.iteration_s)} ({level} between {low} and {high})"),
        ("goes to", _parts(result.time_s, result.iteration_s)),
        ("throughput", _throughput(result)),
        ("MFU", _mfu(result)),
        ("memory", _memory(result)),
        ("energy", _energy(result)),
        ("cost", _cost(result)),
    ]
    if result.time_to_train_s is not None:
        lines += _run(result)
    if result.considered is not None and result.rejected is not None:
        rejected = sum(result.rejected.values())
        words = f"{result.considered:,} plans in {duration(result.search_s or 0.0)}"
        lines.append(("search", f"{words}, {rejected:,} of them cannot run"))
        lines += [("", f"{count:,}: {reason}") for reason, count in result.rejected.items()]
    lines.append(("based on", f"{result.evidence.sentence} (tier {result.tier})"))
    return lines + [("caution", warning) for warning in result.warnings]


def _parts(times: Mapping[str, float], total: float) -> str:
    words = [
        f"{name.replace('_', ' ')} {percent(seconds / total)}"
        for name, seconds in sorted(times.items(), key=lambda item: -item[1])
        if seconds > _SHOWN_SHARE * total
    ]
    return ", ".join(words)


def _throughput(result: TrainingEstimate) -> str:
    words = f"{number(result.samples_per_s)} samples/s"
    return words if not result.tokens_per_s else f"{number(result.tokens_per_s)} tokens/s, {words}"


def _mfu(result: TrainingEstimate) -> str:
    rate = amount(result.model_flop_per_s_per_device, "FLOP/s", small=False)
    share = UNKNOWN if result.mfu_fraction is None else percent(result.mfu_fraction)
    ratio = result.hardware_flop_per_s_per_device / result.model_flop_per_s_per_device
    again = f"; {percent(ratio - 1.0)} more with what runs again" if ratio > 1.0 else ""
    return f"{share}, {rate} a device{again}"


def _memory(result: TrainingEstimate) -> str:
    parts = sorted(result.memory.items(), key=lambda item: -item[1])
    words = [
        f"{name.removesuffix('_bytes')} {amount(size, 'B')}" for name, size in parts if size > 0
    ]
    low, high = (amount(x, "B") for x in (result.memory_low_bytes, result.memory_high_bytes))
    device = amount(result.device_memory_bytes, "B")
    total = f"{amount(result.memory_bytes, 'B')} ({low} to {high}) of {device}"
    chance = result.fit_probability_fraction
    fits = f"fits with probability {chance:.2f}; " if _SURE < chance < 1.0 - _SURE else ""
    return f"{total}; {fits}worst rank {result.worst_rank}: {', '.join(words)}"


def _energy(result: TrainingEstimate) -> str:
    if result.energy_j is None or result.average_power_w is None:
        return UNKNOWN
    power = amount(result.average_power_w, "W")
    return f"{amount(result.energy_j, 'J')} an iteration, {power} in the mean"


def _cost(result: TrainingEstimate) -> str:
    if result.cost_usd is None:
        return UNKNOWN
    return f"{usd(result.cost_usd)} an iteration ({offer_words(result.offer)})"


def _run(result: TrainingEstimate) -> list[tuple[str, str]]:
    total = result.time_to_train_s or 0.0
    ends = [result.time_to_train_low_s, result.time_to_train_high_s]
    low, high = (UNKNOWN if end is None else duration(end) for end in ends)
    energy = UNKNOWN if result.total_energy_j is None else amount(result.total_energy_j, "J")
    cost = UNKNOWN if result.total_cost_usd is None else usd(result.total_cost_usd)
    lines = [("whole run", f"{duration(total)} (between {low} and {high}), {energy}, {cost}")]
    if result.expected_failures:
        kept = percent(result.goodput_fraction or 0.0)
        lines.append(("failures", f"{number(result.expected_failures)} expected, goodput {kept}"))
    return lines


def _plans(plans: tuple[Mapping[str, Any], ...]) -> RenderableType:
    rows = [
        (
            plan["plan"],
            duration(plan["iteration_s"]),
            amount(plan["memory_bytes"], "B"),
            plan["why"],
        )
        for plan in plans[:_SHOWN_PLANS]
    ]
    return Listing.of("~plan | >iteration | >memory | ~loses", rows)
