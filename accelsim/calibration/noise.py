"""How quiet the machine was while a run was measured: what the reference operator, timed again and
again, and the rows themselves say.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from accelsim.calibration.run_file import CalibrationRun
from accelsim.errors import InvalidValueError
from accelsim.plain import Values, grouped

#: Spread of the reference operator above which a machine is too busy to fit: its noise would exceed
#: the model's error.
BUSIEST_FRACTION = 0.25
#: Share of disturbed rows above which too little is left to fit.
MOST_DISTURBED_FRACTION = 0.5
#: Mean error of operators left out of a fit above which it is not written: a roofline is as good.
MOST_ERROR_FRACTION = 0.5


def refuse_noise(run: CalibrationRun) -> None:
    """Refuse a run on a machine that did other things.

    Raises:
        InvalidValueError: If the reference operator's times spread too much, or too few rows were
            left alone.
    """
    remedy = (
        "The measurements are kept; end other programs and continue with --resume, or fit with "
        "--despite-noise."
    )
    spread = machine_noise(run)
    if spread is not None and spread > BUSIEST_FRACTION:
        percent = 100 * BUSIEST_FRACTION
        allowed = f"at most {percent:.0f} % of spread of one operator timed again and again"
        raise InvalidValueError("machine noise", f"{100 * spread:.0f} %", allowed, remedy)
    for threads, share in disturbed_fraction(run).items():
        if share > MOST_DISTURBED_FRACTION:
            percent = 100 * MOST_DISTURBED_FRACTION
            allowed = f"at most {percent:.0f} % that other programs took a core from"
            raise InvalidValueError(
                f"measurements on {threads} threads", f"{100 * share:.0f} %", allowed, remedy
            )


def refuse_errors(errors: Sequence[Values]) -> None:
    """Refuse a fit that operators left out of it lie far from.

    Args:
        errors: As `accelsim.calibration.calibrate.operator_errors` has them.

    Raises:
        InvalidValueError: If their mean error is too large.
    """
    for row in errors:
        error = float(row["mape_fraction"])
        if (row["family"], row["dtype"]) == ("all", "all") and error > MOST_ERROR_FRACTION:
            allowed = f"at most {100 * MOST_ERROR_FRACTION:.0f} % (mean of {row['rows']:,})"
            remedy = (
                "The run is kept: measure again on a machine at rest, or fit with --despite-noise."
            )
            raise InvalidValueError("held-out error", f"{100 * error:.1f} %", allowed, remedy)


def disturbed_fraction(run: CalibrationRun) -> dict[int, float]:
    """Share of the measured rows of each thread count from which other programs took a core; fits
    leave these out.
    """
    timed = grouped(
        (row for row in run.rows if row.time_s is not None), lambda row: row.case.threads
    )
    return {
        threads: sum(not row.is_undisturbed for row in rows) / len(rows)
        for threads, rows in sorted(timed.items())
    }


def machine_noise(run: CalibrationRun) -> float | None:
    """Spread of the reference operator: median over best, less 1; the worst of the run's sessions,
    None where not known.
    """
    spreads = [float(note["spread_fraction"]) for note in run.notes if note.get("note") == "noise"]
    times_s = _reference_times(run)
    # a session that was killed left no note, but its rows have the times
    if len(times_s) > len(_noted_times(run)) + 1:
        spreads.append(statistics.median(times_s) / min(times_s) - 1.0)
    return max(spreads) if spreads else None


def reference_s(run: CalibrationRun) -> float | None:
    """Median time of the reference operator; None where it was not timed."""
    times = max(_noted_times(run), _reference_times(run), key=len)
    return statistics.median(times) if times else None


def _noted_times(run: CalibrationRun) -> list[float]:
    return [
        float(x)
        for note in run.notes
        if note.get("note") == "noise"
        for x in note.get("reference_s", ())
    ]


def _reference_times(run: CalibrationRun) -> list[float]:
    """Times of the reference operator that rows were measured beside, each once."""
    return list(
        dict.fromkeys(float(x) for row in run.rows if (x := row.details.get("reference_s")))
    )
