"""Estimates and comparisons as tables for a terminal.

Built on rich, without colour where the terminal has none: the best of a column carries a star
beside its colour. Tables are made to fit 80 columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING, TypeAlias

from rich.console import Group, RenderableType
from rich.text import Text

from accelsim.economics.dates import dated_words
from accelsim.economics.offer import first_day
from accelsim.plain import Document, grouped
from accelsim.quantity import UNKNOWN, say, size
from accelsim.report.listing import Listing, pairs, panel
from accelsim.report.offers import offer_words
from accelsim.report.stacks import format_words, interval_words, stack_words, widened_words

if TYPE_CHECKING:
    from accelsim.estimation.batches import BatchCurve
    from accelsim.estimation.compare import Comparison, ComparisonRow
    from accelsim.estimation.estimate import Estimate
    from accelsim.hardware.profile import DeviceProfile

#: Share of the time outside the measured range from which on an estimate says so.
_SHOWN_EXTRAPOLATION = 0.02

#: Least probability that is said, and most devices that it is said of.
_LEAST_CHANCE = 0.01
_MOST_LIKELY = 4

COMPARISON_NOTE = (
    "* wins its column beyond the 90 % intervals of all differences, ~ may be its best; time is "
    "that of one batch alone, all else is per sample or sequence in steady state"
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


#: What is said of an estimate, line by line; of one that does not fit those before "memory" are
#: left out.
_LINES = {
    "time": "{latency_s} per {unit} ({interval_level} interval {latency_low_s} to "
    "{latency_high_s})",
    "throughput": "{throughput_per_s} {items}/s[, {tokens_per_s} tokens/s]",
    "first token": "[{time_to_first_token_s} (TTFT)]",
    "next tokens": "[{time_per_output_token_s} each (TPOT), {decode_tokens_per_s} tokens/s while "
    "decoding]",
    "energy": "{energy_j} per batch[ ({low.energy_j} to {high.energy_j})], {energy_per_sample_j} "
    "per {item}",
    "power": "[{average_power_w} on average][, limit {limit_w} ({scope})]",
    "memory": "{memory_bytes} of {device_memory_bytes}: {verdict}[ ({memory_parts})]"
    "[, {host_memory_bytes} of the host's]",
    "would fit": "{would_fit}",
    "limited by": "{limit}",
    "work": "{flop}, {bytes} moved",
    "parameters": "{parameter_count:number}",
    "based on": "{basis} (tier {tier})",
}
_PRICE = "{usd_per_hour} per hour ({paid})"
_COST = (
    "{cost_usd_per_1000} per 1,000 {items}[ ({low.cost_usd_per_1000} to {high.cost_usd_per_1000})]"
    f"[, {{cost_usd_per_million_tokens}} per million output tokens], at {_PRICE}"
)
_RUN = (
    "{mode}, batch {batch}, {precision}[, {formats}], {ran_by}[ {layout}][, {seq_len} tokens in]"
    "[, {output_len} out][, {images} picture(s)][, {steps} denoising steps]"
    "[, optimizer {optimizer}][, accumulation {accumulation}][, recompute {recompute}]"
    "[, LoRA rank {rank}][, {sparse}][, {threads} thread(s)][, {kept}][, host {host}]"
)
_GENERATION = (
    "time_to_first_token_s",
    "time_per_output_token_s",
    "cost_usd_per_million_tokens",
)
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
    columns = (
        "~largest operators=name | kind | >time=time_s | >share=share_fraction | limited by=bound"
    )
    return panel(
        f"{estimate.workload} on {estimate.device}",
        estimate_lines(estimate, device),
        Listing.of(columns, estimate.figures()["operators"], gap=2),
    )


def estimate_lines(e: Estimate, device: DeviceProfile) -> list[tuple[str, str]]:
    """Names and texts of an estimate's figures; of arguments as `estimate_view`."""
    values = _values(e, device)
    names = list(_LINES) if e.fits else list(_LINES)[list(_LINES).index("memory") :]
    lines = [("run", _run_words(e)), *((name, say(_LINES[name], values)) for name in names)]
    if e.fits and e.energy_j is None:
        said = f"unknown: no power limit and no idle power of {e.device} are known"
        lines = [line for line in lines if not line[0].startswith(("energy", "power"))]
        lines.append(("energy", said))
    cost = f"{UNKNOWN}: no price for {e.device}; give --offer or --usd-per-hour"
    if e.usd_per_hour is not None:
        cost = say(_COST if e.fits else _PRICE, values)
    cautions = (("caution", text) for text in (*e.warnings, *_cautions(e)))
    return [*(line for line in lines if line[1]), *cautions, ("cost", cost)]


def _values(e: Estimate, device: DeviceProfile) -> Document:
    """An estimate's figures, the ends of their intervals, and what is said of them in words."""
    limit = device.power.limit_w
    limit_w = e.inputs.get("power_limit_w", None if limit is None else limit.value)
    short = (
        "DOES NOT FIT, {memory_short_bytes} short of the {memory_available_bytes} a run can have"
    )
    parts = [(words, e.memory.get(part)) for part, words in _MEMORY_PARTS.items()]
    generated = {} if e.output_len else dict.fromkeys(_GENERATION)
    return {
        **e.with_intervals(),
        **generated,
        "unit": "training step" if e.mode == "training" else "batch",
        "items": _items(e),
        "item": _items(e)[:-1],
        "host_memory_bytes": e.host_memory_bytes or None,
        "limit_w": None if limit_w is None else limit_w * device.joined_count,
        "scope": device.scope,
        "verdict": "fits" if e.fits else say(short, e.figures()),
        "memory_parts": ", ".join(f"{words} {size(held)}" for words, held in parts if held),
        "would_fit": "; or ".join(map(str, e.would_fit)),
        "limit": "" if e.bound is None else _limit_words(e, e.bound),
        "basis": tier_words(e.tier) if e.evidence is None else e.evidence.sentence,
        "paid": offer_words(e.offer, device.whole_name),
    }


def _cautions(e: Estimate) -> Iterator[str]:
    """What is outside of what was measured, or of what the model was trained on."""
    if e.extrapolated_fraction is not None and e.extrapolated_fraction > _SHOWN_EXTRAPOLATION:
        yield (
            f"{100 * e.extrapolated_fraction:.0f} % of the time in operators outside the "
            "sizes that were measured: the interval is wider for them"
        )
    length = e.seq_len + e.output_len
    if e.trained_positions is not None and length > e.trained_positions:
        yield (
            f"{length:,} tokens per sequence, but the model was trained on "
            f"{e.trained_positions:,}: its answers may be poor"
        )


def batches_view(curve: BatchCurve) -> RenderableType:
    """Estimates of one model on one device by batch; the knee is marked."""
    first = curve.estimates[0]
    rows = [
        {**e.figures(), "knee": "*" if e.batch == curve.knee else "", "limit": _short_limit(e)}
        for e in curve.estimates
    ]
    columns = (
        ">batch={batch}{knee} | >time=latency_s | >per s=throughput_per_s | >energy="
        "energy_per_sample_j | >$/1,000=cost_usd_per_1000 | >memory=memory_bytes | limit"
    )
    notes = ["* the knee: nine tenths of the highest throughput"] if curve.knee is not None else []
    if any(not e.fits for e in curve.estimates):
        notes.append("capacity: it does not fit")
    title = f"{first.workload} on {first.device} · {first.mode} · {first.precision}"
    return Group(
        Text(title, style="bold cyan"),
        Listing.of(columns, rows),
        *(Text(words, style="dim") for words in notes),
    )


def _short_limit(e: Estimate) -> str:
    return _SHORT_LIMITS.get(e.bound or "", e.bound or UNKNOWN)


def _limit_words(e: Estimate, bound: str) -> str:
    """What limits a run; of one that waits for its operators to be issued also what helps."""
    words = _LIMITS.get(bound, bound.replace("_", " "))
    if bound not in {"dispatch", "overhead"}:
        return words
    can_replay = e.stack == "pytorch" and e.execution == "eager"
    return f"{words} (larger batches{' or --execution graph' if can_replay else ''} help)"


def _items(e: Estimate) -> str:
    """What a batch has: sequences, images of diffusion, or samples."""
    if e.seq_len:
        return "sequences"
    return {0: "samples", 1: "denoising steps"}.get(e.steps, "images")


def _run_words(e: Estimate) -> str:
    """How it was run, with the options that are not the usual ones."""
    asked = e.inputs if e.mode == "training" else {}
    parts, again = asked.get("accumulation", 1), asked.get("recompute", "none")
    values = {
        **e.figures(),
        "formats": ", ".join(format_words(e)),
        "ran_by": stack_words(e.stack, e.execution),
        "output_len": e.seq_len and e.output_len,
        "images": e.inputs.get("images"),
        "steps": e.steps if e.steps > 1 else 0,
        "optimizer": asked.get("optimizer"),
        "accumulation": parts if parts > 1 else 0,
        "recompute": again if again != "none" else "",
        "rank": asked.get("lora_rank"),
        "sparse": e.sparse_weights and "sparse weights",
        "threads": e.inputs.get("threads"),
        "kept": e.heap == "kept" and "heap kept",
    }
    return say(_RUN, values)


#: Columns of a comparison: those of all, of models that generate tokens, and of others.
_FIRST = "device | type=precision | >time=latency_s"
_COMPILED = " | >compiled=compiled_s"
_TOKENS = (
    " | >TTFT=time_to_first_token_s | >token/s=tokens_per_s | >energy=energy_per_sample_j | >$/M "
    "out=cost_usd_per_million_tokens"
)
_SAMPLES = " | >per s=throughput_per_s | >energy=energy_per_sample_j | >$/1,000=cost_usd_per_1000"
_LAST = " | >memory=memory_bytes | limit"
#: Title of a column -> the field whose best is marked in it.
_BEST = {
    "time": "latency_s",
    "per s": "throughput_per_s",
    "token/s": "throughput_per_s",
    "energy": "energy_per_sample_j",
    "$/1,000": "cost_usd_per_1000",
    "$/M out": "cost_usd_per_1000",
}


def comparison_view(comparison: Comparison) -> RenderableType:
    """One table per model and mode, and pairs that cannot run with their reason."""
    groups = grouped(comparison.rows, lambda row: (row.workload, row.mode))
    best = {field: comparison.leaders(field) for field in set(_BEST.values())}
    near = comparison.near_best("latency_s")
    views: list[RenderableType] = []
    for key, rows in groups.items():
        marked = {field: found.get(key, ()) for field, found in best.items()}
        views += [_group_view(rows, marked), *_chances(near.get(key, {})), Text("")]
    return Group(*views[:-1], *map(Text, _price_note(comparison)))


def _chances(near: Mapping[str, float]) -> list[Text]:
    """How sure it is which device is as fast as the fastest."""
    likely = sorted((-chance, name) for name, chance in near.items() if chance >= _LEAST_CHANCE)
    listed = ", ".join(f"{name} {-100 * chance:.0f} %" for chance, name in likely[:_MOST_LIKELY])
    words = f"probability of a time within 5 % of the best: {listed}"
    return [Text(words, style="dim")] if len(near) > 1 else []


def _price_note(comparison: Comparison) -> list[str]:
    """Where the prices are from: provider, region and kind by device."""
    offers = {row.device: e.offer for row in comparison.rows if (e := row.estimate) and e.offer}
    dates = {e.price_as_of for row in comparison.rows if (e := row.estimate) and e.price_as_of}
    if not offers:
        return []
    places: dict[str, list[str]] = {}
    for device, offer in offers.items():
        place, _, kind = offer.partition(":")
        named = f"{place.rpartition('/')[0]}{f' {kind}' if kind else ''}".replace("_", " ")
        places.setdefault(named, []).append(device)
    listed = "; ".join(f"{place} ({', '.join(devices)})" for place, devices in places.items())
    oldest = min(dates, key=lambda text: (first_day(text) or date.max, text), default="")
    dated = dated_words(oldest).replace(", as of", "; the oldest as of")
    return ["", f"prices at {listed}{dated}"]


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
    compiled = {row.device: row.compiled for row in rows if row.compiled is not None}
    if estimates:
        times = {device: run.latency_s for device, run in compiled.items()}
        listing = _running(estimates, times, width)
        parts.append(replace(listing, rows=_marked(listing, winners)))
    parts += [Text(words, style="dim") for words in _notes(estimates, winners)]
    failed = [row for row in rows if row.reason is not None]
    if failed:
        reasons = (
            (row.device, (row.reason or "").removeprefix(f"{row.device} ")) for row in failed
        )
        parts.append(pairs(reasons, gap=1, min_width=width))
    if compiled:
        parts.append(Text(_COMPILED_NOTE, style="dim"))
    if len({e.precision for e in estimates}) > 1:
        parts.append(Text(_MIXED_PRECISION, style="dim"))
    hosts = [
        f"{e.device}: {e.host} is its host and runs "
        + (f"{e.host_layer_count} layers" if e.host_layer_count else "what it cannot")
        for e in estimates
        if e.host
    ]
    return Group(*parts, *(Text(words, style="dim") for words in hosts))


def _running(
    estimates: Sequence[Estimate], compiled: Mapping[str, float | None], width: int
) -> Listing:
    """What ran, with the times compiled where there are any."""
    generates = any(e.output_len for e in estimates)
    columns = f"{_FIRST}{_COMPILED if compiled else ''}{_TOKENS if generates else _SAMPLES}{_LAST}"
    rows = [
        {**e.figures(), "limit": _short_limit(e), "compiled_s": compiled.get(e.device, "")}
        for e in estimates
    ]
    return Listing.of(columns, rows, first_width=width)


def _marked(listing: Listing, winners: Leaders) -> list[list[Text]]:
    """Cells of a comparison: the best of a column with a star, what may be its best with ~."""
    return [
        [
            _mark(str(cell), str(row[0]), winners.get(_BEST[title], ()) if title in _BEST else None)
            for title, cell in zip(listing.headers, row, strict=True)
        ]
        for row in listing.rows
    ]


def _mark(text: str, device: str, leaders: Sequence[str] | None) -> Text:
    if text == UNKNOWN or leaders is None:
        style = "dim" if text == UNKNOWN else ""
        return Text(text if leaders is None else f"{text} ", style=style)
    if device not in leaders:
        return Text(f"{text} ")
    is_alone = len(leaders) == 1
    return Text(f"{text}{'*' if is_alone else '~'}", style="bold green" if is_alone else "green")


def _title(row: ComparisonRow, estimates: Sequence[Estimate]) -> Text:
    title = Text(f"{row.workload} · {row.mode}", style="bold cyan")
    if estimates:
        e = estimates[0]
        tokens = f" · {e.seq_len:,} tokens in" if e.seq_len else ""
        tokens += f", {e.output_len:,} out" if e.output_len else ""
        title.append(f" · batch {e.batch:,}{tokens}", style="default")
    return title


def _notes(estimates: Sequence[Estimate], winners: Leaders) -> list[str]:
    """Which stacks ran, how wide intervals of times are, and which leaders' like are far off."""
    by_stack = grouped(estimates, lambda e: stack_words(e.stack, e.execution))
    if not by_stack:
        return []
    names = [f"{stack} on {', '.join(e.device for e in own)}" for stack, own in by_stack.items()]
    lines = [f"run by {'; '.join(names) if len(names) > 1 else next(iter(by_stack))}"]
    lines.append(interval_words(estimates))
    leading = {device for devices in winners.values() for device in devices}
    far = [e for e in estimates if e.evidence and e.evidence.is_far and e.device in leading]
    lines += [f"{e.device}: {e.warnings[-1]}" for e in far]
    return lines + [
        f"{e.device}: {e.precision} {words}" for e in estimates if (words := widened_words(e))
    ]
