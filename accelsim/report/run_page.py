"""The page of one run: its decision, roofline, timeline, power and memory, time and energy by layer
and kind, and where its numbers come from.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from accelsim.cost.idle import idle_power_w
from accelsim.report.curves import Curve, curves_section
from accelsim.report.operators import OperatorRun, group_section, layers_of, roofline_section
from accelsim.report.page import (
    DataTable,
    Page,
    Section,
)
from accelsim.report.parts import (
    joules,
    provenance_sections,
    shares_section,
)
from accelsim.report.quantity import amount, duration, percent
from accelsim.report.tables import estimate_lines
from accelsim.report.timeline import timeline_section

if TYPE_CHECKING:
    import pandas as pd

    from accelsim.estimation.estimate import Estimate
    from accelsim.estimation.simulate import Simulation
    from accelsim.hardware.profile import DeviceProfile
    from accelsim.simulation.timeline import Timeline

_watts = partial(amount, unit="W")
_bytes = partial(amount, unit="B", small=False)


def run_page(
    estimate: Estimate,
    device: DeviceProfile,
    simulation: Simulation | None,
    command: str,
    further: Sequence[Section] = (),
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
    sections = [Section("figures", "Figures", DataTable(("figure", "value"), lines))]
    if simulation is not None:
        frame = operator_frame(simulation)
        sections += [
            roofline_section([OperatorRun(device, estimate.precision, frame)]),
            timeline_section(simulation.timeline, "Timeline", "One repeat of each pass"),
            _power_and_memory(simulation.timeline, device),
            group_section(frame, "kind", "Time and energy by kind of operator"),
            group_section(frame, "layer", "Time and energy by layer"),
            group_section(frame, "bound", "Time and energy by what limits it"),
        ]
    figures = estimate.figures()
    sections += [
        shares_section("memory", "Memory by part", figures["memory"], _bytes),
        shares_section("energy", "Energy by component", figures["energy_parts_j"] or {}, joules),
        *further,
        *provenance_sections([estimate.to_dict()], [device]),
    ]
    title = f"{estimate.workload} on {estimate.device}"
    return Page.of(title, _decision(estimate, lines), sections, command, estimate.warnings)


def _decision(e: Estimate, lines: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """The answer in words: time, what limits it, energy and cost; or that it does not fit."""
    said = dict(lines)
    if not e.fits:
        return (f"{e.workload} does not fit on {e.device}.", f"Memory: {said['memory']}.")
    answer = (
        f"{e.workload} on {e.device} takes {duration(e.latency_s)} for a batch of {e.batch:,} "
        f"and does {said['throughput']}."
    )
    interval = f"{duration(e.latency_low_s)} to {duration(e.latency_high_s)}"
    return (
        answer,
        f"It is limited by {said.get('limited by', 'nothing known')}. Memory: {said['memory']}.",
        f"Energy: {said['energy']}. Cost: {said['cost']}.",
        f"{percent(e.interval_level)} interval {interval}; {said['based on']}.",
    )


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
    curves: list[Curve] = []
    if idle_w is not None and np.isfinite(timeline.energy_j).all() and timeline.energy_j.any():
        curves.append(Curve("power, W", timeline.power(idle_w), _watts))
    curves += [Curve("activations, B", steps, _bytes) for steps in timeline.counters.values()]
    title, text = "Power and memory over time", "One repeat of each pass, weights left out"
    return curves_section("power", title, curves, timeline.makespan_s, text)
