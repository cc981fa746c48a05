"""A served load as a table for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.text import Text

from accelsim.plain import Values
from accelsim.report.listing import pairs, plain_table
from accelsim.report.offers import offer_words
from accelsim.report.quantity import amount, duration, number, percent, usd

if TYPE_CHECKING:
    from accelsim.serving.result import ServingResult

_TIMES = {
    "ttft_s": "first token (TTFT)",
    "tpot_s": "next tokens (TPOT)",
    "itl_s": "gap between tokens",
    "e2e_s": "whole request",
    "queue_s": "queueing",
}
_BATCH_TIMES = {"e2e_s": "whole request", "queue_s": "queueing"}


def serving_view(result: ServingResult) -> RenderableType:
    """A served load: its figures in a panel, and its distributions of times."""
    panel = Panel(
        pairs(_figures(result), style="bold"),
        title=Text(f"{result.workload} on {result.deployed}"),
        title_align="left",
        border_style="dim",
    )
    return Group(panel, Padding(_times(result), (1, 0, 0, 0)))


def _times(result: ServingResult) -> RenderableType:
    generates = result.tpot_s["mean"] is not None
    names = _TIMES if generates else _BATCH_TIMES
    parts = list(result.e2e_s)
    table = plain_table(["", *parts], right=range(1, len(parts) + 1))
    for name, label in names.items():
        values = getattr(result, name)
        table.add_row(label, *(duration(values[part]) for part in parts))
    return table


def _figures(r: ServingResult) -> list[tuple[str, str]]:
    load = r.inputs["load"]
    lines = [("load", _load_words(r, load)), ("replica", _plan_words(r.plan, r.engine))]
    if r.plan["blocks"]:
        lines.append(("memory", _memory_words(r.plan)))
    tokens = f", {number(r.output_tokens_per_s)} tokens/s" if r.output_tokens_per_s else ""
    lines.append(("throughput", f"{number(r.throughput_requests_per_s)} requests/s{tokens}"))
    if r.slo_attainment_fraction is not None:
        met = f"{percent(r.slo_attainment_fraction)} of the requests meet the targets"
        lines.append(("goodput", f"{number(r.goodput_requests_per_s)} requests/s: {met}"))
    lines.append(("utilisation", _use_words(r)))
    if r.energy_j is None:
        lines.append(("energy", "unknown: no power figures of the device are known"))
    else:
        item = "token" if r.output_tokens_per_s else "request"
        power = (
            f"{amount(r.average_power_w, 'W')} on average, {amount(r.peak_power_w, 'W')} at most"
        )
        lines.append(("energy", f"{amount(r.energy_j_per_token, 'J')} per {item}; {power}"))
    lines += [("cost", _cost_words(r)), ("a month", month_words(r.figures()))]
    lines += [("pool", _pool_words(pool)) for pool in r.pools if _is_told(r, pool)]
    return [*lines, *(("caution", warning) for warning in r.warnings)]


def _is_told(r: ServingResult, pool: Values) -> bool:
    """Whether a pool is more than the replicas that the title names."""
    return len(r.pools) > 1 or pool["cold_start_s"] is not None


def _pool_words(pool: Values) -> str:
    part = {"all": "", "prompts": ", prompts", "further": ", further tokens"}[pool["part"]]
    each = pool["devices"] // pool["replicas"]
    device = f"{each} {pool['device']}" if each > 1 else pool["device"]
    words = f"{pool['workload']} on {number(pool['mean_replicas'])} x {device}{part}"
    words += f", {percent(pool['utilisation_fraction'])} used"
    if pool["mean_transfer_s"] is not None:
        words += f"; caches move in {duration(pool['mean_transfer_s'])}"
    if pool["cold_start_s"] is not None:
        words += f"; cold start {duration(pool['cold_start_s'])}"
    counts = {"replicas_started": "started", "replicas_removed": "let go", "replicas_lost": "lost"}
    told = [f"{pool[name]:,} {word}" for name, word in counts.items() if pool[name]]
    if pool["requests_restarted"]:
        told.append(f"{pool['requests_restarted']:,} requests begun anew")
    return "; ".join([words, *told])


def _load_words(r: ServingResult, load: Mapping[str, object]) -> str:
    came = f"{r.completed:,} of {r.requests:,} requests done in {duration(r.duration_s)}"
    if load.get("users"):
        return f"{load['users']} users, {came}"
    rate = load.get("rate_per_s")
    return f"{load.get('process', 'trace')}, {number(rate)} requests/s, {came}" if rate else came  # type: ignore[arg-type]


def _plan_words(plan: Mapping[str, object], engine: str) -> str:
    ranks = [f"{name} {plan[name]}" for name in ("tp", "pp", "ep") if plan[name] != 1]
    limits = f"up to {plan['max_seqs']:,} at once"
    if plan["blocks"]:
        limits += f", {plan['max_batch_tokens']:,} tokens a step"
    return ", ".join([engine, str(plan["precision"]), *ranks, limits])


def _memory_words(plan: Values) -> str:
    """What the memory of a rank holds."""
    device, weights, cache = (
        amount(plan[f"{name}_bytes"], "B", small=False)
        for name in ("device_memory", "weight", "kv_cache")
    )
    return f"{device} a device: weights {weights}, KV cache {cache} in {plan['blocks']:,} blocks"


def _use_words(r: ServingResult) -> str:
    words = percent(r.utilisation_fraction)
    peak, mean = r.kv_occupancy_fraction["peak"], r.kv_occupancy_fraction["mean"]
    if peak is not None:
        words += f"; KV cache {percent(mean)} in use, {percent(peak)} at most"
    if r.preemptions:
        words += f"; {r.preemptions:,} preemptions"
    return words


def _cost_words(r: ServingResult) -> str:
    if r.cost_usd_per_1000_requests is None:
        return "unknown: no offer of this device"
    words = f"{usd(r.cost_usd_per_1000_requests)} per 1,000 requests"
    if r.cost_usd_per_million_tokens is not None:
        words = f"{usd(r.cost_usd_per_million_tokens)} per million output tokens, {words}"
    return f"{words} ({offer_words(r.offer)})"


def month_words(figures: Values) -> str:
    """Cost, energy and carbon of a month at a load.

    Args:
        figures: Those that end in "_per_month".
    """
    energy, carbon = (figures[f"{name}_per_month"] for name in ("energy_kwh", "carbon_kgco2e"))
    words = [usd(figures["cost_usd_per_month"])]
    words.append("kWh unknown" if energy is None else f"{energy:,.0f} kWh")
    words.append("kgCO2e unknown" if carbon is None else f"{carbon:,.0f} kgCO2e")
    return ", ".join(words)
