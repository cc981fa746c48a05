"""Compare models over devices: one estimate per pair, with the best of each column and the reasons
of those that failed.

A pair that cannot run (an operator or dtype the device lacks, a model that does not fit) stays in
the comparison with its reason; it is never dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Unpack

from accelsim.catalog import group_devices
from accelsim.errors import DoesNotFitError, UnknownNameError, UnsupportedOperatorError
from accelsim.hardware.profile import DeviceProfile
from accelsim.planning.estimate import NESTED, Estimate, estimate
from accelsim.planning.options import (
    EstimateKeywords,
    PriceChoice,
    RunOptions,
    options_and_price,
)
from accelsim.planning.run import resolve
from accelsim.result import json_text
from accelsim.workloads.model import Workload

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "BEST_HIGH",
    "BEST_LOW",
    "Comparison",
    "ComparisonRow",
    "compare",
    "tied_devices",
]

#: Columns where less is better, and where more is.
BEST_LOW: Final = (
    "latency_s",
    "energy_per_sample_j",
    "cost_usd_per_1000",
    "time_to_first_token_s",
    "time_per_output_token_s",
    "cost_usd_per_million_tokens",
    "energy_j",
    "average_power_w",
    "memory_bytes",
    "usd_per_hour",
)
BEST_HIGH: Final = ("throughput_per_s", "tokens_per_s")


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """One pair: its estimate, or why there is none."""

    workload: str
    device: str
    mode: str
    estimate: Estimate | None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Estimates of several models on several devices."""

    rows: tuple[ComparisonRow, ...]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[ComparisonRow]:
        return iter(self.rows)

    def __getitem__(self, place: int) -> ComparisonRow:
        return self.rows[place]

    def __repr__(self) -> str:
        done = sum(row.estimate is not None for row in self.rows)
        return f"<Comparison: {len(self)} pairs, {done} estimated>"

    def best(self, column: str) -> dict[tuple[str, str], str]:
        """Device with the best predicted value of a column, per (workload, mode); `leaders` says
        whether it wins.

        Args:
            column: A name in `BEST_LOW` or `BEST_HIGH`.

        Raises:
            UnknownNameError: If the column is in neither.
        """
        if column not in {*BEST_LOW, *BEST_HIGH}:
            known = sorted({*BEST_LOW, *BEST_HIGH})
            raise UnknownNameError("column", column, known, f"Columns: {', '.join(known)}.")
        sign = -1.0 if column in BEST_HIGH else 1.0
        found: dict[tuple[str, str], tuple[float, str]] = {}
        for row in self.rows:
            value = None if row.estimate is None else getattr(row.estimate, column)
            if value is None:
                continue
            key, candidate = (row.workload, row.mode), (sign * value, row.device)
            found[key] = min(found.get(key, candidate), candidate)
        return {key: device for key, (_, device) in found.items()}

    def leaders(self, column: str) -> dict[tuple[str, str], tuple[str, ...]]:
        """Devices that may be the best of a column, per (workload, mode): the predicted best, and
        those whose interval meets its own. Only where there is one does it win.

        Args:
            column: A name in `BEST_LOW` or `BEST_HIGH`.

        Raises:
            UnknownNameError: If the column is in neither.
        """
        found = {}
        for key, device in self.best(column).items():
            rows = [row for row in self.rows if (row.workload, row.mode) == key]
            known = [row.estimate for row in rows if row.estimate is not None]
            found[key] = (device, *tied_devices(known, device, column))
        return found

    def to_dict(self) -> list[dict[str, Any]]:
        """One mapping per pair: the estimate's figures, or the reason there is none."""
        return [
            {"workload": r.workload, "device": r.device, "mode": r.mode, "reason": r.reason}
            | ({} if r.estimate is None else r.estimate.figures())
            for r in self.rows
        ]

    def to_json(self) -> str:
        """`to_dict` as JSON text."""
        return json_text(self.to_dict())

    def to_frame(self) -> pd.DataFrame:
        """One row per pair with every scalar figure."""
        import pandas as pd

        return pd.DataFrame(
            [{k: v for k, v in row.items() if k not in NESTED} for row in self.to_dict()]
        )


def tied_devices(estimates: Sequence[Estimate], device: str, column: str) -> tuple[str, ...]:
    """Other devices whose interval of a figure meets a device's.

    Args:
        estimates: Of one model in one mode.
        device: The device.
        column: The figure.
    """
    edges = {e.device: _edges(e, column) for e in estimates}
    mine = edges[device]
    return tuple(
        name
        for name, own in edges.items()
        if name != device and own and mine and own[0] <= mine[1] and mine[0] <= own[1]
    )


def _edges(estimate: Estimate, column: str) -> tuple[float, float] | None:
    """Ends of a figure's interval; both the figure where it has none."""
    value = getattr(estimate, column)
    if value is None:
        return None
    low, high, _ = estimate.interval(column)
    return (value if low is None else low, value if high is None else high)


def compare(
    workloads: str | Path | Workload | Sequence[str | Path | Workload],
    devices: str | DeviceProfile | Iterable[str | DeviceProfile],
    options: RunOptions | None = None,
    price: PriceChoice | None = None,
    *,
    modes: str | Sequence[str] = ("inference",),
    **keywords: Unpack[EstimateKeywords],
) -> Comparison:
    """Estimate every model on every device in every mode.

    Args:
        workloads: Names or workloads.
        devices: Names, words of a group (`accelsim.catalog.DEVICE_GROUPS`) or profiles.
        modes: "inference", "training" or both.
        options: What runs, the same for all pairs; defaults where None.
        price: Which price; the cheapest on-demand offer where None.
        keywords: Fields of either, in place of theirs. One that does not apply to a model at all
            (``output_len`` of an image classifier) is refused.

    Raises:
        InputError: If a name or setting is wrong. Pairs a device cannot run are rows with a reason
            instead.
    """
    models = [workloads] if isinstance(workloads, str | Path | Workload) else list(workloads)
    wanted = [modes] if isinstance(modes, str) else list(modes)
    listed = [devices] if isinstance(devices, str | DeviceProfile) else devices
    profiles = [
        named
        for device in listed
        for named in (group_devices(device) if isinstance(device, str) else (device,))
    ]
    chosen, paid = options_and_price(options, price, keywords)
    rows = [
        _row(model, device, replace(chosen, mode=mode), paid)
        for model in models
        for mode in wanted
        for device in profiles
    ]
    return Comparison(tuple(rows))


def _row(
    workload: str | Path | Workload,
    device: str | DeviceProfile,
    options: RunOptions,
    price: PriceChoice,
) -> ComparisonRow:
    try:
        result = estimate(workload, device, options, price)
    except (UnsupportedOperatorError, DoesNotFitError) as error:
        named = resolve(workload, device)
        pair = (named.workload.name, named.device.name, options.mode)
        return ComparisonRow(*pair, None, str(error))
    short_gb = result.memory_short_bytes / 1e9
    missing = None if result.fits else f"does not fit: {short_gb:,.1f} GB short"
    return ComparisonRow(result.workload, result.device, options.mode, result, missing)
