"""Suite `published`: single-device speeds of other people's stacks, as they publish them.

A stack's ratios are fitted to such rows: every row is predicted with the ratios of all boards but
its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from accelsim.scoreboard.data_folder import DataFolder, schema
from accelsim.scoreboard.measured_runs import run_batches
from accelsim.scoreboard.metrics import figures
from accelsim.scoreboard.names import note_unknown_devices
from accelsim.scoreboard.published_runs import PUBLISHED, published_row
from accelsim.scoreboard.scored_rows import TIMES, ScoredRows
from accelsim.scoreboard.suite import MeasuredBatch, register_suite
from accelsim.workloads.graph import TextArray

PUBLISHED_SCHEMA = schema("published/single_device.csv")
#: A prediction further off than this, either way, misleads.
_FAR = 1.5
_ALL = "all"


def by_stack(rows: Sequence[ScoredRows]) -> dict[str, Any]:
    """Accuracy per stack, and of all: bias is the geometric mean of predicted over measured."""
    return by_name(rows, np.concatenate([part.group for part in rows]))


def by_name(rows: Sequence[ScoredRows], names: TextArray) -> dict[str, Any]:
    """The same by the name of each row, shape (n,)."""
    answered = np.concatenate([np.full(len(part), not part.refusal) for part in rows])
    columns = {name: np.concatenate([getattr(part, name) for part in rows]) for name in TIMES}
    chosen = []
    for name in (*sorted(set(names.tolist())), _ALL):
        asked = (names == name) | (name == _ALL)
        own = {key: column[asked & answered] for key, column in columns.items()}
        log_ratio = np.log(own["predicted_s"] / own["measured_s"])
        scored = asdict(figures(**own))
        chosen.append(
            {
                "stack": name,
                "rows_asked": int(asked.sum()),
                **{key: scored[key] for key in _SHOWN},
                "bias_ratio": float(np.exp(log_ratio.mean())) if len(log_ratio) else None,
                "beyond_1.5_fraction": float((np.abs(log_ratio) > np.log(_FAR)).mean())
                if len(log_ratio)
                else None,
            }
        )
    return {"stacks": chosen}


#: Figures of a stack.
_SHOWN = (
    *("rows_answered", "median_ape_fraction", "p90_ape_fraction"),
    *("max_ape_fraction", "interval_coverage_fraction"),
)


@register_suite(
    "published",
    "single-device speeds of other people's stacks",
    (PUBLISHED_SCHEMA,),
    "model",
    findings=by_stack,
)
def load(folder: DataFolder) -> list[MeasuredBatch]:
    """Rows by device, and by reason where they are refused."""
    table = folder.table(PUBLISHED_SCHEMA)
    if table is None:
        return []
    note_unknown_devices(folder, table)
    return run_batches(map(published_row, table.records()), PUBLISHED)
