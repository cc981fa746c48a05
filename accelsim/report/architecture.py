"""Tables of a design-space exploration and of the peaks of ASICs."""

from __future__ import annotations

from collections.abc import Sequence

from accelsim.plain import Values
from accelsim.report.listing import Listing

_HEADERS = (
    "",
    "array",
    "count",
    "flow",
    "sram KiB",
    "GB/s",
    "latency ms",
    "energy mJ",
    "mm2",
    "used %",
    "stall %",
)
_MOST_ROWS = 40


def sweep_view(data: Values, *, everything: bool = False) -> Listing:
    """The Pareto front, fastest first; all designs in their own order with `everything`.

    Args:
        data: `ArchitectureSweep.to_dict`.
        everything: Whether to show designs that others beat, and those that do not fit.
    """
    points = data["points"]
    if not everything:
        points = sorted((p for p in points if p["is_pareto"]), key=lambda p: p["latency_s"])[
            :_MOST_ROWS
        ]
    rows = [_row(point) for point in points]
    return Listing(
        _HEADERS,
        rows,
        right=frozenset(_HEADERS[4:]),
        dispensable=("stall %", "count"),
    )


def _row(point: Values) -> tuple[str, ...]:
    mark = "*" if point["is_pareto"] else ""
    head = (
        mark,
        point["array"],
        str(point["count"]),
        point["dataflow"],
        f"{point['sram_bytes'] / 1024:.0f}",
    )
    rate = f"{point['bandwidth_bytes_per_s'] / 1e9:g}"
    if point["refusal"]:
        return (*head, rate, "too small", "", "", "", "")
    return (
        *head,
        rate,
        f"{point['latency_s'] * 1e3:.4g}",
        f"{point['energy_j'] * 1e3:.4g}",
        "unknown" if point["area_mm2"] is None else f"{point['area_mm2']:.3g}",
        f"{point['utilisation_fraction'] * 100:.1f}",
        f"{point['stall_fraction'] * 100:.1f}",
    )


_PEAK_HEADERS = ("device", "format", "quoted", "derived", "rate", "differs %", "why")


def peaks_view(rows: Sequence[Values]) -> Listing:
    """Quoted and derived peaks; the difference is shown where it is more than rounding.

    Args:
        rows: `AsicPeak.to_dict`.
    """
    cells = [
        (
            row["device"],
            row["dtype"],
            f"{row['quoted_flop_per_s'] / 1e12:.4g}",
            ("~" if row["is_equivalent"] else "") + f"{row['derived_flop_per_s'] / 1e12:.4g}",
            f"{row['rate']:g}",
            f"{row['difference_fraction'] * 100:+.1f}" if row["differs"] else "",
            row["reason"],
        )
        for row in rows
    ]
    return Listing(
        _PEAK_HEADERS,
        cells,
        right=frozenset(_PEAK_HEADERS[2:6]),
        fold=frozenset({"why"}),
        dispensable=("why",),
    )
