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
from accelsim.report.listing import Listing, filled, notes, pairs, panel
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


#: What is said of an estimate that fits, line by line; of the energy where it is known; and of all.
_SPEED = {
    "time": "{latency_s} per {unit} ({interval_level} interval {latency_low_s} to "
    "{latency_high_s})",
    "throughput": "{throughput_per_s} {items}/s[, {tokens_per_s} tokens/s]",
    "first token": "[{time_to_first_token_s} (TTFT)]",
    "next tokens": "[{time_per_output_token_s} each (TPOT), {decode_tokens_per_s} tokens/s while "
    "decoding]",
}
_ENERGY = {
    "energy": "{energy_j} per batch[ ({low.energy_j} to {high.energy_j})], {energy_per_sample_j} "
    "per {item}",
    "power": "[{average_power_w} on average][, limit {limit_w} ({scope})]",
}
_LINES = {
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
    "[, LoRA rank {rank}][, {sparse}][, {threads} thread(s)][, {heap}][, host {host}]"
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
    is_energy_unknown = e.fits and e.energy_j is None
    forms = {"run": _RUN}
    if e.fits:
        forms |= _SPEED if is_energy_unknown else _SPEED | _ENERGY
    lines = filled(forms | _LINES, values)
    if is_energy_unknown:
        text = f"unknown: no power limit and no idle power of {e.device} are known"
        lines.append(("energy", text))
    cost = f"{UNKNOWN}: no price for {e.device}; give --offer or --usd-per-hour"
    if e.usd_per_hour is not None:
        cost = say(_COST if e.fits else _PRICE, values)
    cautions = (("caution", text) for text in (*e.warnings, *_cautions(e)))
    return [*lines, *cautions, ("cost", cost)]


def _values(e: Estimate, device: DeviceProfile) -> Document:
    """An estimate's figures, the ends of their intervals, and what is said of them in words."""
    limit = device.power.limit_w
    limit_w = e.inputs.get("power_limit_w", limit and limit.value)
    short = (
        "DOES NOT FIT, {memory_short_bytes} short of the {memory_available_bytes} a run can have"
    )
    items = _items(e)
    return {
        **e.with_intervals(),
        **({} if e.output_len else dict.fromkeys(_GENERATION)),
        **_run_values(e),
        "unit": "training step" if e.mode == "training" else "batch",
        "items": items,
        "item": items[:-1],
        "host_memory_bytes": e.host_memory_bytes or None,
        "limit_w": limit_w and limit_w * device.joined_count,
        "scope": device.scope,
        "verdict": "fits" if e.fits else say(short, e.figures()),
        "memory_parts": _memory_parts(e),
        "would_fit": "; or ".join(map(str, e.would_fit)),
        "limit": _limit_text(e, e.bound or ""),
        "basis": tier_words(e.tier) if e.evidence is None else e.evidence.sentence,
        "paid": offer_words(e.offer, device.whole_name),
    }


def _run_values(e: Estimate) -> Document:
    """How it was run, with the options that are not the usual ones."""
    training = e.inputs if e.mode == "training" else {}
    accumulation, recompute = training.get("accumulation", 1), training.get("recompute")
    return {
        "formats": ", ".join(format_words(e)),
        "ran_by": stack_words(e.stack, e.execution),
        "output_len": e.seq_len and e.output_len,
        "images": e.inputs.get("images"),
        "steps": e.steps if e.steps > 1 else 0,
        "optimizer": training.get("optimizer"),
        "accumulation": accumulation if accumulation > 1 else 0,
        "recompute": "" if recompute == "none" else recompute,
        "rank": training.get("lora_rank"),
        "sparse": e.sparse_weights and "sparse weights",
        "threads": e.inputs.get("threads"),
        "heap": e.heap == "kept" and "heap kept",
    }


def _cautions(e: Estimate) -> Iterator[str]:
    """What is outside of what was measured, or of what the model was trained on."""
    extrapolated_fraction = e.extrapolated_fraction or 0.0
    if extrapolated_fraction > _SHOWN_EXTRAPOLATION:
        yield (
            f"{100 * extrapolated_fraction:.0f} % of the time in operators outside the "
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
    e = curve.estimates[0]
    rows = [
        {**e.figures(), "knee": "*" if e.batch == curve.knee else "", "limit": _short_limit(e)}
        for e in curve.estimates
    ]
    columns = (
        ">batch={batch}{knee} | >time=latency_s | >per s=throughput_per_s | >energy="
        "energy_per_sample_j | >$/1,000=cost_usd_per_1000 | >memory=memory_bytes | limit"
    )
    remarks = {
        "* the knee: nine tenths of the highest throughput": curve.knee is not None,
        "capacity: it does not fit": not all(e.fits for e in curve.estimates),
    }
    title = f"{e.workload} on {e.device} · {e.mode} · {e.precision}"
    return Group(
        Text(title, style="bold cyan"),
        Listing.of(columns, rows),
        *notes(remark for remark, applies in remarks.items() if applies),
    )


def _short_limit(e: Estimate) -> str:
    return _SHORT_LIMITS.get(e.bound or "", e.bound or UNKNOWN)


def _memory_parts(e: Estimate) -> str:
    """What holds the memory."""
    held = ((name, e.memory.get(field)) for field, name in _MEMORY_PARTS.items())
    return ", ".join(f"{name} {size(held_bytes)}" for name, held_bytes in held if held_bytes)


def _items(e: Estimate) -> str:
    """What a batch has: sequences, images of diffusion, or samples."""
    if e.seq_len:
        return "sequences"
    return {0: "samples", 1: "denoising steps"}.get(e.steps, "images")


def _limit_text(e: Estimate, bound: str) -> str:
    """What limits a run; of one that waits for its operators to be issued also what helps."""
    text = _LIMITS.get(bound, bound.replace("_", " "))
    if bound not in {"dispatch", "overhead"}:
        return text
    can_replay = e.stack == "pytorch" and e.execution == "eager"
    return f"{text} (larger batches{' or --execution graph' if can_replay else ''} help)"


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
    leaders = {figure: comparison.leaders(figure) for figure in set(_BEST.values())}
    near = comparison.near_best("latency_s")
    views: list[RenderableType] = []
    for key, rows in grouped(comparison.rows, lambda row: (row.workload, row.mode)).items():
        winners = {figure: by_group.get(key, ()) for figure, by_group in leaders.items()}
        views += [_group_view(rows, winners), *notes(_chances(near.get(key, {}))), ""]
    return Group(*views[:-1], *map(Text, _price_note(comparison)))


def _chances(near: Mapping[str, float]) -> list[str]:
    """How sure it is which device is as fast as the fastest."""
    likely = sorted((-chance, name) for name, chance in near.items() if chance >= _LEAST_CHANCE)
    listed = ", ".join(f"{name} {-100 * chance:.0f} %" for chance, name in likely[:_MOST_LIKELY])
    return [f"probability of a time within 5 % of the best: {listed}"] if len(near) > 1 else []


def _price_note(comparison: Comparison) -> list[str]:
    """Where the prices are from: provider, region and kind by device."""
    priced = {row.device: e for row in comparison.rows if (e := row.estimate) and e.offer}
    if not priced:
        return []
    regions = grouped(priced, lambda device: _region(str(priced[device].offer)))
    listed = "; ".join(f"{region} ({', '.join(devices)})" for region, devices in regions.items())
    dates = {e.price_as_of for e in priced.values() if e.price_as_of}
    oldest = min(dates, key=lambda text: (first_day(text) or date.max, text), default="")
    dated = dated_words(oldest).replace(", as of", "; the oldest as of")
    return ["", f"prices at {listed}{dated}"]


def _region(offer: str) -> str:
    """Provider, region and price kind of an offer's id."""
    instance, _, kind = offer.partition(":")
    return f"{instance.rpartition('/')[0]}{f' {kind}' if kind else ''}".replace("_", " ")


_MIXED_PRECISION = (
    "types differ: each device in the one people use on it; --precision holds them alike"
)


_COMPILED_NOTE = (
    "eager runs wait for their operators to be issued: compiled is the time of the same run under "
    "torch.compile; --execution chooses one"
)


def _group_view(rows: Sequence[ComparisonRow], winners: Leaders) -> RenderableType:
    """What ran one model, and why others cannot."""
    estimates = [row.estimate for row in rows if row.estimate is not None and row.reason is None]
    compiled = {row.device: row.compiled.latency_s for row in rows if row.compiled is not None}
    width = max(len("device"), *(len(row.device) for row in rows))
    views: list[RenderableType] = [_title(rows)]
    if estimates:
        views.append(_running(estimates, compiled, width, winners))
        views += notes(_remarks(estimates, winners))
        widened = filter(widened_words, estimates)
        views += notes(f"{e.device}: {e.precision} {widened_words(e)}" for e in widened)
    reasons = [
        (row.device, row.reason.removeprefix(f"{row.device} "))
        for row in rows
        if row.reason is not None
    ]
    if reasons:
        views.append(pairs(reasons, gap=1, style="", min_width=width))
    if compiled:
        views += notes([_COMPILED_NOTE])
    return Group(*views, *notes(_differences(estimates)))


def _title(rows: Sequence[ComparisonRow]) -> Text:
    title = Text(f"{rows[0].workload} · {rows[0].mode}", style="bold cyan")
    e = next((row.estimate for row in rows if row.estimate is not None), None)
    if e is not None:
        tokens = say("[ · {seq_len} tokens in][, {output_len} out]", e.figures())
        title.append(f" · batch {e.batch:,}{tokens}", style="default")
    return title


def _running(
    estimates: Sequence[Estimate],
    compiled: Mapping[str, float | None],
    width: int,
    winners: Leaders,
) -> Listing:
    """What ran, with the times compiled where there are any: the best of a column has a star, what
    may be its best has ~.
    """
    generates = any(e.output_len for e in estimates)
    columns = f"{_FIRST}{_COMPILED if compiled else ''}{_TOKENS if generates else _SAMPLES}{_LAST}"
    rows = [
        {**e.figures(), "limit": _short_limit(e), "compiled_s": compiled.get(e.device, "")}
        for e in estimates
    ]
    listing = Listing.of(columns, rows, first_width=width)
    marked = [
        [
            _mark(str(cell), str(row[0]), winners.get(_BEST.get(title, "")))
            for title, cell in zip(listing.headers, row, strict=True)
        ]
        for row in listing.rows
    ]
    return replace(listing, rows=marked)


def _mark(text: str, device: str, leaders: Sequence[str] | None) -> Text:
    """A cell; of a column that has leaders with a blank where it is none of them."""
    blank = "" if leaders is None else " "
    if text == UNKNOWN:
        return Text(f"{text}{blank}", style="dim")
    if not leaders or device not in leaders:
        return Text(f"{text}{blank}")
    is_alone = len(leaders) == 1
    return Text(f"{text}{'*' if is_alone else '~'}", style="bold green" if is_alone else "green")


def _remarks(estimates: Sequence[Estimate], winners: Leaders) -> Iterator[str]:
    """Which stacks ran, how wide intervals of times are, and which leaders' like are far off."""
    by_stack = grouped(estimates, lambda e: stack_words(e.stack, e.execution))
    names = [f"{stack} on {', '.join(e.device for e in runs)}" for stack, runs in by_stack.items()]
    yield f"run by {'; '.join(names) if len(names) > 1 else next(iter(by_stack))}"
    yield interval_words(estimates)
    leading = {device for devices in winners.values() for device in devices}
    for e in estimates:
        if e.device in leading and e.evidence and e.evidence.is_far:
            yield f"{e.device}: {e.warnings[-1]}"


def _differences(estimates: Sequence[Estimate]) -> Iterator[str]:
    """What devices that are compared do not have in common: formats and hosts."""
    if len({e.precision for e in estimates}) > 1:
        yield _MIXED_PRECISION
    for e in estimates:
        if e.host:
            layers = f"{e.host_layer_count} layers" if e.host_layer_count else "what it cannot"
            yield f"{e.device}: {e.host} is its host and runs {layers}"
