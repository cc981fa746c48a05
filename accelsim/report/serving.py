"""A served load as a table for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import RenderableType

from accelsim.plain import Document, Values
from accelsim.quantity import say
from accelsim.report.listing import Listing, filled, panel
from accelsim.report.offers import offer_words

if TYPE_CHECKING:
    from accelsim.serving.result import ServingResult

#: Distributions of a result, as people name them.
TIMES = {
    "ttft_s": "first token (TTFT)",
    "tpot_s": "next tokens (TPOT)",
    "itl_s": "gap between tokens",
    "e2e_s": "whole request",
    "session_s": "whole session",
    "queue_s": "queueing",
}
#: Cost, energy and carbon of a month at a load.
MONTH = "{cost_usd_per_month}, energy {energy_kwh_per_month}, CO2e {carbon_kgco2e_per_month}"
#: What a panel says of a result, line by line.
_LINES = {
    "load": "[{load.users} users, ][{load.process}, ][{load.rate_per_s} {load.each}/s, ]"
    "{completed} of {requests} requests done in {duration_s}",
    "replica": "{engine}, {plan.precision}[, experts {plan.expert_precision}][, {ranks}], up to "
    "{plan.max_seqs} at once"
    "[, {step_tokens} tokens a step]",
    "memory": "[{plan.device_memory_bytes} a device: weights {plan.weight_bytes}, KV cache "
    "{plan.kv_cache_bytes} in {plan.blocks} blocks]"
    "[ ({cached.0:number} to {cached.1:number} tokens)]",
    "sessions": "[{sessions} done: {session_s.p50} (median), {session_s.p90} (p90)]"
    "[, {cost_usd_per_session} each]",
    "prefixes": "[{prefix_hit_fraction} of the prompts' tokens were in the cache]",
    "throughput": "{throughput_requests_per_s} requests/s[, {tokens_per_s} tokens/s]",
    "goodput": "[{goodput_requests_per_s} requests/s: {slo_attainment_fraction} of the requests "
    "meet the targets]",
    "utilisation": "{utilisation_fraction}[; KV cache {kv_occupancy_fraction.mean} in use, "
    "{kv_occupancy_fraction.peak} at most][; {preemptions} preemptions]",
    "energy": "{energy_j_per_token} per {item}; {power}",
    "cost": "[{cost_usd_per_million_tokens} per million output tokens, ]"
    "{cost_usd_per_1000_requests} per 1,000 requests ({paid})",
    "a month": MONTH,
}
_POOL = (
    "{workload} on {mean_replicas:number} x {deployed}{part}, {utilisation_fraction} used"
    "[; caches move in {mean_transfer_s}][; cold start {cold_start_s}][; {replicas_started} "
    "started][; {replicas_removed} let go][; {replicas_lost} lost]"
    "[; {requests_restarted} requests begun anew]"
)
_CLASS = (
    "{name}, priority {priority}, {completed} of {requests} requests done"
    "[; {goodput_requests_per_s} requests/s: {slo_attainment_fraction} meet the targets]"
    "[; first token {ttft_s.mean} on average, {ttft_s.p99} (p99)]"
)
_PARTS = {"all": "", "prompts": ", prompts", "further": ", further tokens"}


def serving_view(result: ServingResult) -> RenderableType:
    """A served load: its figures in a panel, and its distributions of times."""
    shown = [
        {"time": title, **times}
        for name, title in TIMES.items()
        if (times := result.figures()[name]).get("mean") is not None
        and (name != "ttft_s" or result.output_tokens_per_s)
    ]
    titles = " | ".join(f">{name}={{{name}:s}}" for name in result.e2e_s)
    return panel(
        f"{result.workload} on {result.deployed}",
        _figures(result),
        Listing.of(f"time | {titles}", shown, gap=2),
    )


def _figures(r: ServingResult) -> list[tuple[str, str]]:
    plan, values = r.plan, r.figures()
    values |= {
        "load": _load(r),
        "ranks": ", ".join(
            f"{name} {plan[name]}" for name in ("tp", "pp", "ep") if plan[name] != 1
        ),
        "step_tokens": plan["blocks"] and plan["max_batch_tokens"],
        "tokens_per_s": r.output_tokens_per_s or None,
        "cached": dict(zip("01", r.intervals.get("kv_cache_tokens", ()), strict=False)),
        "item": "token" if r.output_tokens_per_s else "request",
        "power": "no power figures of the device are known",
        "paid": "no offer of this device",
    }
    if r.energy_j is not None:
        values["power"] = say("{average_power_w} on average, {peak_power_w} at most", values)
    if r.cost_usd_per_1000_requests is not None:
        values["paid"] = offer_words(r.offer)
    return [
        *filled(_LINES, values),
        *_pools_and_classes(r),
        *(("caution", text) for text in r.warnings),
    ]


def _pools_and_classes(r: ServingResult) -> Iterator[tuple[str, str]]:
    for pool in r.pools:
        if len(r.pools) > 1 or pool["cold_start_s"] is not None:
            yield "pool", _pool(pool)
    for row in r.classes:
        yield "class", say(_CLASS, row)


def _load(r: ServingResult) -> Document:
    """Users, or the process and rate of arrivals."""
    load = r.inputs["load"]
    users, rate_per_s = load.get("users"), load.get("rate_per_s")
    each = "requests" if r.sessions is None else "sessions"
    if users or not rate_per_s:
        return {"users": users, "each": each}
    return {"process": load.get("process", "trace"), "rate_per_s": rate_per_s, "each": each}


def _pool(pool: Values) -> str:
    device_count = pool["devices"] // pool["replicas"]
    deployed = f"{device_count} {pool['device']}" if device_count > 1 else pool["device"]
    return say(_POOL, {**pool, "deployed": deployed, "part": _PARTS[pool["part"]]})
