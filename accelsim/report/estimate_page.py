"""Pages of saved estimates: one run, and one run at several batches. The operators' roofline and
timeline are in the page of the command itself, which runs them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from accelsim.plain import Document, Values
from accelsim.quantity import say
from accelsim.report.comparison_page import break_even_section
from accelsim.report.page import Page, Section
from accelsim.report.parts import metrics_section, provenance_sections, shares_section
from accelsim.report.result_page import known_devices
from accelsim.report.run_sections import accuracy_section, knee_section, offers_section

if TYPE_CHECKING:
    from accelsim.hardware.profile import DeviceProfile


def estimate_page(document: Values, command: str) -> Page:
    """The report of a saved estimate.

    Args:
        document: The result as plain values.
        command: Command that makes the page again.
    """
    d = document
    devices = known_devices([d["device"]])
    times_s = {operator["name"]: operator["time_s"] for operator in d["operators"]}
    sections = [
        metrics_section(d["metrics"]),
        shares_section("operators", "Largest operators", times_s, "s"),
        shares_section("memory", "Memory by part", d["memory"], "bytes"),
        *cost_sections(d, devices),
        *provenance_sections([d], devices),
    ]
    title = f"{d['workload']} on {d['device']}"
    return Page.of(title, _decision(d), sections, command, d["warnings"])


def cost_sections(d: Values, devices: Sequence[DeviceProfile]) -> list[Section | None]:
    """Cost of a load, cost and carbon at every offer, and how far predictions of the device were
    from measurements.

    Args:
        d: An estimate as plain values.
        devices: Profile of its device; empty where the catalogue has none.
    """
    costs = [break_even_section([_row(d)], devices, "cost")]
    if not devices:
        return costs
    rate = (d["device"], d["throughput_per_s"], d["energy_per_sample_j"])
    return [*costs, offers_section([rate]), accuracy_section([d["device"]])]


def _decision(d: Values) -> Iterator[str]:
    if not d["fits"]:
        yield say("{workload} does not fit on {device}: {memory_short_bytes} are missing.", d)
        return
    yield say(
        "{workload} on {device} takes {latency_s} for a batch of {batch} and does "
        "{throughput_per_s} samples/s.",
        d,
    )
    yield say("{interval_level} interval {latency_low_s} to {latency_high_s}.", d)
    yield say("Energy: {energy_per_sample_j} per sample. Cost: {cost_usd_per_1000} per 1,000.", d)


def batches_page(document: Values, command: str) -> Page:
    """The report of one run at several batches.

    Args:
        document: The result as plain values.
        command: Command that makes the page again.
    """
    runs, knee = document["batches"], document["knee"]
    by_batch = knee_section(sorted(runs, key=lambda run: int(run["batch"])), knee)
    chosen = [_row(run) for run in runs if run["batch"] == knee][:1]
    devices = known_devices([run["device"] for run in runs])
    sections = [
        by_batch,
        break_even_section(chosen, devices, "cost"),
        *provenance_sections(runs[:1], devices),
    ]
    title = f"{runs[0]['workload']} on {runs[0]['device']}, {len(runs)} batches"
    warnings = (text for run in runs for text in run["warnings"])
    form = (
        "1 × {device}, batch {batch}: {latency_s} ({interval_level} interval {latency_low_s} to "
        "{latency_high_s})[, {cost_usd_per_1000} per 1,000][, {energy_per_sample_j} per sample]."
    )
    decision = (by_batch.text, *(say(form, run) for run in chosen))
    return Page.of(title, decision, sections, command, warnings)


def _row(estimate: Values) -> Document:
    """An estimate as a row of a comparison."""
    name = f"{estimate['device']}, batch {estimate['batch']:,}"
    return {**estimate, "reason": None, "name": name}
