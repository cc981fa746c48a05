"""What the serving suites print beside their groups: figures by engine and format, and how often
two measured systems are put in the right order.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from accelsim.plain import Document, grouped
from accelsim.scoreboard.scored_rows import ScoredRows
from tools.scoreboard.published import by_name

#: Fields of a label; the device stands beside it.
FIELDS = ("model", "lengths", "users", "mode", "format", "engine", "parallelism")
_BETWEEN = " | "
#: What the systems of a pair may differ in, one at a time.
_CHOICES = (*FIELDS[-3:], "device")
#: Measured times nearer than this are alike.
_APART = 1.1


def label_of(**fields: str) -> str:
    """The label of a system with the fields of `FIELDS`."""
    return _BETWEEN.join(fields[name] for name in FIELDS)


def findings(rows: Sequence[ScoredRows]) -> Document:
    """Accuracy by engine, format and device; pairs in order."""
    systems = [(*label.split(_BETWEEN), part.device) for part in rows for label in part.label]
    place = {name: index for index, name in enumerate((*FIELDS, "device"))}
    named = ("engine", "format", "mode", "device")
    names = [" ".join(system[place[name]] for name in named) for system in systems]
    return by_name(rows, np.array(names)) | {"pairs": pairs_in_order(rows, systems)}


def pairs_in_order(
    rows: Sequence[ScoredRows], systems: Sequence[tuple[str, ...]]
) -> list[dict[str, Any]]:
    """Share of the pairs of systems that differ in one thing, and by more than 10 % in measured
    time, that are predicted in the right order.

    Args:
        rows: Scored rows.
        systems: Fields of `FIELDS` and the device, of each row.
    """
    measured, predicted = (
        np.log(np.concatenate([getattr(part, name) for part in rows]))
        for name in ("measured_s", "predicted_s")
    )
    pairs_in_order = []
    for choice in _CHOICES:
        own = (*FIELDS, "device").index(choice)
        others = [system[:own] + system[own + 1 :] for system in systems]
        alike = grouped(np.flatnonzero(np.isfinite(predicted)).tolist(), others.__getitem__)
        pairs = [
            (measured[one] - measured[other]) * (predicted[one] - predicted[other]) > 0
            for group in alike.values()
            for one, other in combinations(group, 2)
            if systems[one][own] != systems[other][own]
            and abs(measured[one] - measured[other]) > np.log(_APART)
        ]
        share = float(np.mean(pairs)) if pairs else None
        pairs_in_order.append({"choice": choice, "pairs": len(pairs), "in_order_fraction": share})
    return pairs_in_order
