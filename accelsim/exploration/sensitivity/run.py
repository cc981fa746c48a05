"""The same run with one thing changed: its batch, its format, the mode of its stack, the device."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from accelsim.estimation.estimate import Estimate, estimate
from accelsim.estimation.options import PriceChoice, RunOptions, run_options
from accelsim.exploration.sensitivity.change import Change, answered, changed_devices
from accelsim.hardware.profile import DeviceProfile
from accelsim.workloads.model import Workload

_PRECISIONS = ("fp32", "bf16", "fp16", "fp8", "int8")
_EXECUTIONS = ("eager", "graph", "compiled")


def run_changes(
    workload: str | Path | Workload,
    device: DeviceProfile,
    options: RunOptions,
    price: PriceChoice,
    base: Estimate,
) -> list[Change[Estimate]]:
    """The run with twice and half its batch, other precisions and other modes of its stack, and on
    the device with other rates.

    Args:
        workload: What runs.
        device: Where.
        options: How.
        price: What it costs.
        base: Its estimate, whose own values are left out.
    """

    def ask(place: DeviceProfile, changed: dict[str, Any]) -> Estimate:
        return estimate(workload, place, run_options(options, changed), price)

    asked = [(words, partial(ask, device, changed)) for words, changed in _changes(base)]
    asked += [(words, partial(ask, other, {})) for words, other in changed_devices(device)]
    return [answered(words, again, _against) for words, again in asked]


def _against(one: Estimate) -> str:
    return "" if one.fits else "does not fit in memory"


def _changes(base: Estimate) -> Iterator[tuple[str, dict[str, Any]]]:
    for batch in (base.batch // 2, base.batch * 2):
        if batch:
            yield f"batch {batch:,}", {"batch": batch}
    for name in _PRECISIONS:
        if name != base.precision:
            yield f"precision {name}", {"precision": name}
    if base.execution in _EXECUTIONS:
        for name in _EXECUTIONS:
            if name != base.execution:
                yield f"execution {name}", {"execution": name}
