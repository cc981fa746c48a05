"""Estimates and comparisons as tables for a terminal.

Built on rich, without colour where the terminal has none: the best of a column carries a star
beside its colour. Tables are made to fit 80 columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from accelsim.economics.offer import first_day
from accelsim.frozen import frozen
from accelsim.report.listing import Listing, pairs, plain_table
from accelsim.report.offers import offer_words
from accelsim.report.quantity import UNKNOWN, amount, dated_words, duration, number, percent, usd
from accelsim.report.stacks import format_words, interval_words, widened_words

if TYPE_CHECKING:
    from accelsim.estimation.batch_winners import BatchWinners, Win
    from accelsim.estimation.batches import BatchCurve
    from accelsim.estimation.compare import Comparison, ComparisonRow
    from accelsim.estimation.estimate import Estimate
    from accelsim.hardware.profile import DeviceProfile

__all__ = [
    "BEST_FIELDS",
    "COMPARISON_NOTE",
    "batches_view",
    "comparison_view",
    "estimate_lines",
    "estimate_view",
    "plain_table",
    "stack_words",
    "tier_words",
]

#: Share of the time outside the measured range from which on an estimate says so.
_SHOWN_EXTRAPOLATION = 0.02
_SHOWN_SHARE = 0.005

COMPARISON_NOTE = (
    "* wins its column beyond all 90 % intervals, ~ may be its best; time is that of one batch "
    "alone, all else is per sample or sequence in steady state"
)
_LIMITS = {
    "compute": "arithmetic",
    "memory": "memory bandwidth",
    "data_loading": "data loading",
    "overhead": "fixed time per operator",
    "dispatch": "the host issuing operators",
    "link": "the link: copies from the host or between devices",
    "memory_capacity": "memory capacity: it does not fit",
}
_SHORT_LIMITS = {
    "data_loading": "loading",
    "memory_capacity": "capacity",
}
_TIERS = {
    "spec": "datasheet figures and class-wide efficiencies; not fitted to this device",
    "fitted": "parameters fitted to measurements of this device",
    "measured": "interpolated from measurements of this device",
}
_MEMORY_PARTS = {
    "weight_bytes": "weights",
    "activation_bytes": "activations",
    "gradient_bytes": "gradients",
    "optimizer_bytes": "optimizer",
    "kv_cache_bytes": "KV cache",
}


_joules = partial(amount, unit="J")
#: Devices that may be the best of a column, the predicted best first, by column.
Leaders: TypeAlias = Mapping[str, tuple[str, ...]]


def tier_words(tier: str) -> str:
    """What a tier of truth means."""
    return _TIERS.get(tier, tier)


def estimate_view(estimate: Estimate, device: DeviceProfile) -> RenderableType:
    """One estimate: its figures in a panel, and its largest operators.

    Args:
        estimate: The result.
        device: Profile it was made for.
    """
    panel = Panel(
        pairs(estimate_lines(estimate, device), style="bold"),
        title=Text(f"{estimate.workload} on {estimate.device}"),
        title_align="left",
        border_style="dim",
    )
    if not estimate.operators:
        return panel
    return Group(panel, Padding(_operators(estimate), (1, 0, 0, 0)))


def estimate_lines(e: Estimate, device: DeviceProfile) -> list[tuple[str, str]]:
    """Names and texts of an estimate's figures; of arguments as `estimate_view`."""
    lines = [("run", _run_words(e))]
    if e.fits:
        item = _items(e)
        tokens = f", {number(e.tokens_per_s)} tokens/s" if e.tokens_per_s else ""
        lines += [
            ("time", _time_words(e)),
            ("throughput", f"{number(e.throughput_per_s)} {item}/s{tokens}"),
        ]
        lines += _generation(e)
        lines += _energy(e, device, item[:-1])
    lines += [("memory", _memory_words(e))]
    if e.would_fit:
        lines += [("would fit", "; or ".join(str(change) for change in e.would_fit))]
    if e.bound is not None:
        lines += [("limited by", _limit_words(e, e.bound))]
    work = f"{amount(e.flop, 'FLOP', small=False)}, {amount(e.bytes, 'B', small=False)} moved"
    lines += [("work", work), ("parameters", number(e.parameter_count))]
    basis = tier_words(e.tier) if e.evidence is None else e.evidence.sentence
    lines += [("based on", f"{basis} (tier {e.tier})")]
    lines += [("caution", warning) for warning in e.warnings]
    if e.extrapolated_fraction is not None and e.extrapolated_fraction > _SHOWN_EXTRAPOLATION:
        share = (
            f"{100 * e.extrapolated_fraction:.0f} % of the time in operators outside the "
            "sizes that were measured: the interval is wider for them"
        )
        lines.append(("caution", share))
    if e.trained_positions is not None and e.seq_len + e.output_len > e.trained_positions:
        asked = (
            f"{e.seq_len + e.output_len:,} tokens per sequence, but the model was trained on "
            f"{e.trained_positions:,}: its answers may be poor"
        )
        lines.append(("caution", asked))
    return [*lines, ("cost", _cost_words(e, device))]


def batches_view(curve: BatchCurve) -> RenderableType:
    """Estimates of one model on one device by batch; the knee is marked."""
    first = curve.estimates[0]
    rows = [
        (
            f"{e.batch:,}{'*' if e.batch == curve.knee else ''}",
            duration(e.latency_s),
            number(e.throughput_per_s),
            amount(e.energy_per_sample_j, "J"),
            usd(e.cost_usd_per_1000),
            amount(e.memory_bytes, "B", small=False),
            _SHORT_LIMITS.get(e.bound or "", e.bound or UNKNOWN),
        )
        for e in curve.estimates
    ]
    titles = ">batch | >time | >per s | >energy | >$/1,000 | >memory | limit"
    notes = ["* the knee: nine tenths of the highest throughput"] if curve.knee is not None else []
    if any(not e.fits for e in curve.estimates):
        notes.append("capacity: it does not fit")
    title = f"{first.workload} on {first.device} · {first.mode} · {first.precision}"
    return Group(
        Text(title, style="bold cyan"),
        Listing.of(titles, rows, "memory | limit"),
        *(Text(words, style="dim") for words in notes),
    )


def _limit_words(e: Estimate, bound: str) -> str:
    """What limits a run; of one that waits for its operators to be issued also what helps."""
    words = _LIMITS.get(bound, bound.replace("_", " "))
    if bound not in {"dispatch", "overhead"}:
        return words
    can_replay = e.stack == "pytorch" and e.execution == "eager"
    return f"{words} (larger batches{' or --execution graph' if can_replay else ''} help)"


def _training_words(e: Estimate) -> dict[str, Any]:
    """Options of training that are not the usual ones."""
    asked = e.inputs if e.mode == "training" else {}
    parts, again = asked.get("accumulation", 1), asked.get("recompute", "none")
    return {
        "optimizer": asked.get("optimizer"),
        "accumulation": parts if parts > 1 else None,
        "recompute": again if again != "none" else None,
        "LoRA rank": asked.get("lora_rank"),
    }


def _items(e: Estimate) -> str:
    """What a batch has: sequences, images of diffusion, or samples."""
    if e.seq_len:
        return "sequences"
    return {0: "samples", 1: "denoising steps"}.get(e.steps, "images")


def _run_words(e: Estimate) -> str:
    stack = " ".join(filter(None, [stack_words(e.stack, e.execution), e.layout]))
    words = [e.mode, f"batch {e.batch:,}", e.precision, *format_words(e), stack]
    if e.seq_len:
        words.append(
            f"{e.seq_len:,} tokens in" + (f", {e.output_len:,} out" if e.output_len else "")
        )
    if e.steps > 1:
        words.append(f"{e.steps:,} denoising steps")
    words += [f"{name} {value}" for name, value in _training_words(e).items() if value]
    if e.sparse_weights:
        words.append("sparse weights")
    if e.heap == "kept":
        words.append("heap kept")
    if e.host is not None:
        words.append(f"host {e.host}")
    return ", ".join(words)


def _energy(e: Estimate, device: DeviceProfile, item: str) -> list[tuple[str, str]]:
    if e.energy_j is None:
        return [("energy", f"unknown: no power limit and no idle power of {e.device} are known")]
    interval = _interval_words(e, "energy_j", _joules)
    batch = f"{amount(e.energy_j, 'J')} per batch{interval}"
    lines = [
        (
            "energy",
            f"{batch}, {amount(e.energy_per_sample_j, 'J')} per {item}",
        ),
        ("power", f"{amount(e.average_power_w, 'W')} on average{_power_limit_words(device)}"),
    ]
    return lines + ([("energy by part", words)] if (words := _energy_words(e)) else [])


def _interval_words(e: Estimate, name: str, words: Callable[[float | None], str]) -> str:
    low, high, _ = e.interval(name)
    return "" if low is None else f" ({words(low)} to {words(high)})"


def _energy_words(e: Estimate) -> str:
    """Shares of the parts, or the coefficient that keeps them unknown."""
    if e.energy_parts_j is None or not e.energy_j:
        return f"class-wide rates: no {e.energy_note}" if e.energy_note else ""
    ordered = sorted(e.energy_parts_j.items(), key=lambda part: -part[1])
    shares = [(name, energy / e.energy_j) for name, energy in ordered]
    return ", ".join(
        f"{name} {100 * share:.0f} %" for name, share in shares if share >= _SHOWN_SHARE
    )


def _time_words(e: Estimate) -> str:
    unit = "training step" if e.mode == "training" else "batch"
    interval = f"{duration(e.latency_low_s)} to {duration(e.latency_high_s)}"
    return f"{duration(e.latency_s)} per {unit} ({percent(e.interval_level)} interval {interval})"


def _generation(e: Estimate) -> list[tuple[str, str]]:
    if not e.output_len:
        return []
    step = f"{duration(e.time_per_output_token_s)} each (TPOT)"
    return [
        ("first token", f"{duration(e.time_to_first_token_s)} (TTFT)"),
        (
            "next tokens",
            f"{step}, {number(e.decode_tokens_per_s)} tokens/s while decoding",
        ),
    ]


def _power_limit_words(device: DeviceProfile) -> str:
    limit = device.power.limit_w
    return "" if limit is None else f", limit {amount(limit.value, 'W')} ({device.scope})"


def _memory_words(e: Estimate) -> str:
    device, available, short = (
        amount(size, "B", small=False)
        for size in (e.device_memory_bytes, e.memory_available_bytes, e.memory_short_bytes)
    )
    verdict = "fits" if e.fits else f"DOES NOT FIT, {short} short of the {available} a run can have"
    parts = [
        f"{words} {amount(e.memory[part], 'B', small=False)}"
        for part, words in _MEMORY_PARTS.items()
        if e.memory.get(part)
    ]
    total = amount(e.memory_bytes, "B", small=False)
    listed = f" ({', '.join(parts)})" if parts else ""
    return f"{total} of {device}: {verdict}{listed}"


def _cost_words(e: Estimate, device: DeviceProfile) -> str:
    if e.usd_per_hour is None:
        return f"{UNKNOWN}: no price for {e.device}; give --offer or --usd-per-hour"
    price = f"{usd(e.usd_per_hour)} per hour ({offer_words(e.offer, device.whole_name)})"
    if not e.fits:
        return price
    item = _items(e)
    tokens = (
        f", {usd(e.cost_usd_per_million_tokens)} per million output tokens" if e.output_len else ""
    )
    interval = _interval_words(e, "cost_usd_per_1000", usd)
    return f"{usd(e.cost_usd_per_1000)} per 1,000 {item}{interval}{tokens}, at {price}"


def _operators(e: Estimate) -> Listing:
    rows = [
        (o.name, o.kind, duration(o.time_s), f"{100 * o.share_fraction:.1f} %", o.bound)
        for o in e.operators
    ]
    return Listing.of("~largest operators | kind | >time | >share | limited by", rows, gap=2)


@frozen
class _Column:
    """A figure of a comparison; `best` names the field whose best is marked."""

    title: str
    text: Callable[[Estimate], str]
    best: str | None = None


_COMMON = (
    _Column("type", lambda e: e.precision),
    _Column(">time", lambda e: duration(e.latency_s), "latency_s"),
)
_SAMPLES = (
    _Column(">per s", lambda e: number(e.throughput_per_s), "throughput_per_s"),
    _Column(">energy", lambda e: amount(e.energy_per_sample_j, "J"), "energy_per_sample_j"),
    _Column(">$/1,000", lambda e: usd(e.cost_usd_per_1000), "cost_usd_per_1000"),
)
_TOKENS = (
    _Column(">TTFT", lambda e: duration(e.time_to_first_token_s)),
    _Column(">token/s", lambda e: number(e.tokens_per_s), "throughput_per_s"),
    _Column(">energy", lambda e: amount(e.energy_per_sample_j, "J"), "energy_per_sample_j"),
    _Column(">$/M out", lambda e: usd(e.cost_usd_per_million_tokens), "cost_usd_per_1000"),
)
_LAST = (
    _Column(">memory", lambda e: amount(e.memory_bytes, "B", small=False)),
    _Column("limit", lambda e: _SHORT_LIMITS.get(e.bound or "", e.bound or UNKNOWN)),
)


def comparison_view(
    comparison: Comparison, winners: Sequence[Sequence[BatchWinners]] = ()
) -> RenderableType:
    """One table per model and mode, pairs that cannot run with their reason, and the winners of
    each model by batch.
    """
    groups: dict[tuple[str, str], list[ComparisonRow]] = {}
    for row in comparison.rows:
        groups.setdefault((row.workload, row.mode), []).append(row)
    best = {field: comparison.leaders(field) for field in BEST_FIELDS}
    views: list[RenderableType] = []
    for key, rows in groups.items():
        marked = {field: found.get(key, ()) for field, found in best.items()}
        views += [_group_view(rows, marked), Text("")]
    for found in winners:
        views += [
            Text(f"{found[0].workload} · who wins at which batch", style="bold cyan"),
            _winners(found),
            Text(""),
        ]
    return Group(*views[:-1], *map(Text, _price_note(comparison)))


def _price_note(comparison: Comparison) -> list[str]:
    """Where the prices are from: provider, region and kind by device."""
    found = {row.device: e.offer for row in comparison.rows if (e := row.estimate) and e.offer}
    dates = {e.price_as_of for row in comparison.rows if (e := row.estimate) and e.price_as_of}
    if not found:
        return []
    places: dict[str, list[str]] = {}
    for device, offer in found.items():
        place, _, kind = offer.partition(":")
        named = f"{place.rpartition('/')[0]}{f' {kind}' if kind else ''}".replace("_", " ")
        places.setdefault(named, []).append(device)
    listed = "; ".join(f"{place} ({', '.join(devices)})" for place, devices in places.items())
    oldest = min(dates, key=lambda text: (first_day(text) or date.max, text), default="")
    dated = dated_words(oldest, first_day(oldest)).replace(", as of", "; the oldest as of")
    return ["", f"prices at {listed}{dated}"]


def _winners(winners: Sequence[BatchWinners]) -> Listing:
    rows = [
        (
            f"{w.batch:,}",
            _win(w.throughput, number),
            _win(w.energy, _joules),
            _win(w.cost, usd),
        )
        for w in winners
    ]
    titles = ">batch | most per s | least energy | cheapest per 1,000"
    return Listing.of(titles, rows, gap=2)


def _win(win: Win | None, words: Callable[[float | None], str]) -> str:
    if win is None:
        return UNKNOWN
    return f"{win.device} {words(win.value)}" + ("~" if win.is_tied else "")


#: Columns of which a table marks the best.
BEST_FIELDS = ("latency_s", "throughput_per_s", "energy_per_sample_j", "cost_usd_per_1000")


_MIXED_PRECISION = (
    "types differ: each device in the one people use on it; --precision holds them alike"
)


_COMPILED_NOTE = (
    "eager runs wait for their operators to be issued: compiled is the time of the same run under "
    "torch.compile; --execution chooses one"
)


def _group_view(rows: Sequence[ComparisonRow], winners: Leaders) -> RenderableType:
    estimates = [row.estimate for row in rows if row.estimate is not None and row.reason is None]
    width = max(len("device"), *(len(row.device) for row in rows))
    parts: list[RenderableType] = [
        _title(rows[0], [row.estimate for row in rows if row.estimate is not None])
    ]
    if estimates:
        generates = any(e.output_len for e in estimates)
        columns = (*_COMMON, *_compiled(rows), *(_TOKENS if generates else _SAMPLES), *_LAST)
        parts.append(_running(estimates, columns, winners, width))
    parts += [Text(words, style="dim") for words in _notes(estimates, winners)]
    failed = [row for row in rows if row.reason is not None]
    if failed:
        parts.append(_failed(failed, width))
    if any(row.compiled is not None for row in rows):
        parts.append(Text(_COMPILED_NOTE, style="dim"))
    if len({e.precision for e in estimates}) > 1:
        parts.append(Text(_MIXED_PRECISION, style="dim"))
    hosted = [e for e in estimates if e.host is not None]
    parts += [
        Text(f"{e.device}: {e.host} is its host and runs what it cannot", style="dim")
        for e in hosted
    ]
    return Group(*parts)


def _compiled(rows: Sequence[ComparisonRow]) -> list[_Column]:
    """A column of times compiled, where there are any."""
    found = {row.device: row.compiled for row in rows if row.compiled is not None}

    def text(e: Estimate) -> str:
        return duration(found[e.device].latency_s) if e.device in found else ""

    return [_Column(">compiled", text)] if found else []


def _title(row: ComparisonRow, estimates: Sequence[Estimate]) -> Text:
    title = Text(f"{row.workload} · {row.mode}", style="bold cyan")
    if estimates:
        e = estimates[0]
        tokens = f" · {e.seq_len:,} tokens in" if e.seq_len else ""
        tokens += f", {e.output_len:,} out" if e.output_len else ""
        title.append(f" · batch {e.batch:,}{tokens}", style="default")
    return title


def _running(
    estimates: Sequence[Estimate],
    columns: Sequence[_Column],
    winners: Leaders,
    width: int,
) -> Listing:
    titles = " | ".join(("device", *(column.title for column in columns)))
    rows: list[list[str | Text]] = [
        [e.device, *(_marked(column, e, winners) for column in columns)] for e in estimates
    ]
    return Listing.of(titles, rows, "memory | type | limit", first_width=width)


def _notes(estimates: Sequence[Estimate], winners: Leaders) -> list[str]:
    """Which stacks ran, how wide intervals of times are, and which leaders' like are far off."""
    by_stack: dict[str, list[str]] = {}
    for e in estimates:
        by_stack.setdefault(stack_words(e.stack, e.execution), []).append(e.device)
    if not by_stack:
        return []
    names = [f"{stack} on {', '.join(devices)}" for stack, devices in by_stack.items()]
    lines = [f"run by {'; '.join(names) if len(names) > 1 else next(iter(by_stack))}"]
    lines.append(interval_words(estimates))
    leading = {device for devices in winners.values() for device in devices}
    far = [e for e in estimates if e.evidence and e.evidence.is_far and e.device in leading]
    lines += [f"{e.device}: {e.warnings[-1]}" for e in far]
    return lines + [
        f"{e.device}: {e.precision} {words}" for e in estimates if (words := widened_words(e))
    ]


def stack_words(stack: str, execution: str) -> str:
    """A stack, with its mode where it has several."""
    return f"{stack} {execution}" if stack.partition("@")[0] == "pytorch" else stack


def _marked(column: _Column, e: Estimate, winners: Leaders) -> Text:
    text = column.text(e)
    if column.best is None:
        return Text(text, style="dim" if text == UNKNOWN else "")
    leaders = winners.get(column.best, ())
    if e.device in leaders and text != UNKNOWN:
        mark = "*" if len(leaders) == 1 else "~"
        return Text(f"{text}{mark}", style="bold green" if mark == "*" else "green")
    return Text(f"{text} ", style="dim" if text == UNKNOWN else "")


def _failed(rows: Sequence[ComparisonRow], width: int) -> Table:
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(no_wrap=True, min_width=width)
    grid.add_column(overflow="fold", style="yellow")
    for row in rows:
        grid.add_row(row.device, Text(_brief(row)))
    return grid


def _brief(row: ComparisonRow) -> str:
    """The reason without the device's name, which stands in front of it."""
    reason = row.reason or ""
    return reason.removeprefix(f"{row.device} ")
