"""The page of one run: its decision, roofline, timeline, power and memory, time and energy by layer
and kind, and where its numbers come from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from accelsim.cost.idle import idle_power_w
from accelsim.economics.result import JOULES_PER_KWH
from accelsim.quantity import say, size, watts
from accelsim.report.curves import Curve, curves_section
from accelsim.report.operators import OperatorRun, group_section, layers_of, roofline_section
from accelsim.report.page import DataTable, Page, Section
from accelsim.report.parts import provenance_sections, shares_section
from accelsim.report.tables import estimate_lines
from accelsim.report.timeline import timeline_section

if TYPE_CHECKING:
    import pandas as pd

    from accelsim.estimation.estimate import Estimate
    from accelsim.estimation.simulate import Simulation
    from accelsim.hardware.profile import DeviceProfile
    from accelsim.simulation.timeline import Timeline

#: What the answer is in sentences, of a run that fits and of one that does not.
_ANSWER = (
    (
        "1 × {device}: {latency_s} for a batch of {batch} ({interval_level} interval "
        "{latency_low_s} to {latency_high_s}), {throughput}[, {cost_usd_per_1000} and "
        "{kwh:decimal} kWh per 1,000]."
    ),
    "It is limited by {limited by}. Memory: {memory}.",
    "Energy: {energy}. Cost: {cost}.",
    "It rests on: {based on}.",
)
_REFUSAL = ("{workload} does not fit on {device}.", "Memory: {memory}.")


def run_page(
    estimate: Estimate,
    device: DeviceProfile,
    simulation: Simulation | None,
    command: str,
    further: Sequence[Section | None] = (),
) -> Page:
    """The report of one estimate.

    Args:
        estimate: The result.
        device: Profile it was made for.
        simulation: The same run operator by operator; None where it does not fit.
        command: Command that makes the page again.
        further: What else is known of it, before where its numbers come from.
    """
    lines = estimate_lines(estimate, device)
    sections: list[Section | None] = [
        Section("figures", "Figures", DataTable(("figure", "value"), lines))
    ]
    if simulation is not None:
        frame = operator_frame(simulation)
        sections += [
            roofline_section([OperatorRun(device, estimate.precision, frame)]),
            timeline_section(simulation.timeline, "Timeline", "One repeat of each pass"),
            _power_and_memory(simulation.timeline, device),
            *(group_section(frame, column) for column in ("kind", "layer", "bound")),
        ]
    sections += [
        shares_section("memory", "Memory by part", estimate.figures()["memory"], "bytes"),
        *further,
        *provenance_sections([estimate.to_dict()], [device]),
    ]
    title = f"{estimate.workload} on {estimate.device}"
    return Page.of(title, _decision(estimate, lines), sections, command, estimate.warnings)


def _decision(e: Estimate, lines: Sequence[tuple[str, str]]) -> Iterator[str]:
    """The answer in words: time, what limits it, energy and cost; or that it does not fit."""
    energy_j = e.energy_per_sample_j
    kwh = None if energy_j is None else 1e3 * energy_j / JOULES_PER_KWH
    values = {"limited by": "nothing known", **e.figures(), **dict(lines), "kwh": kwh}
    for form in _ANSWER if e.fits else _REFUSAL:
        yield say(form, values)


def operator_frame(simulation: Simulation) -> pd.DataFrame:
    """Operators of all passes; time, energy, FLOP and bytes of all the times that each runs.

    Args:
        simulation: The run.
    """
    frame = simulation.to_frame()
    for name in ("time_s", "energy_j", "flop", "bytes"):
        frame[name] *= frame["repeat_count"]
    frame["layer"] = layers_of(frame["path"].tolist())
    if len(simulation.passes) > 1:
        frame["layer"] = frame["pass"] + ": " + frame["layer"]
    return frame


def _power_and_memory(timeline: Timeline, device: DeviceProfile) -> Section:
    """Power of the device and activations in use while the run goes on."""
    idle_w = idle_power_w(device)
    curves = [Curve("activations, B", steps, size) for steps in timeline.counters.values()]
    if idle_w is not None and np.isfinite(timeline.energy_j).all() and timeline.energy_j.any():
        curves.insert(0, Curve("power, W", timeline.power(idle_w), watts))
    title, text = "Power and memory over time", "One repeat of each pass, weights left out"
    return curves_section("power", title, curves, timeline.makespan_s, text)
