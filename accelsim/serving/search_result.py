"""What a search for the cheapest way to serve found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, ClassVar

from accelsim.frozen import frozen
from accelsim.plain import Document, Values
from accelsim.result import Metric, Provenance, Result

if TYPE_CHECKING:
    import pandas as pd

_FIGURES = (
    *("tpot_s", "ttft_s", "stall_s", "tokens_per_s"),
    *("cost_usd_per_million_tokens", "energy_j_per_token"),
)


@frozen(repr=False)
class ServingSearch(Result):
    """What a search found.

    Attributes:
        workload: Workload name.
        best: The cheapest simulated configuration that meets the targets.
        simulated: The simulated ones, cheapest first, with both kinds of figures.
        pareto: Configurations that no other beats in cost and time per token, cheapest first.
        considered_count: Configurations scored.
        rejected: Those that cannot run, by reason; of layouts, all their limits.
        configurations_per_s: Configurations scored per second.
        columns: Every scored configuration.
        inputs: What was asked.
        provenance: Version of accelsim, and the seed.
        warnings: What to know before trusting it.
    """

    kind: ClassVar[str] = "serving-search"
    nested: ClassVar[frozenset[str]] = frozenset({"best", "simulated", "pareto", "rejected"})

    workload: str
    best: Values
    simulated: tuple[Values, ...]
    pareto: tuple[Values, ...]
    considered_count: int
    rejected: Mapping[str, int]
    configurations_per_s: float
    columns: Values = field(default_factory=dict, compare=False)
    inputs: Values = field(default_factory=dict, compare=False)
    provenance: Provenance = field(default_factory=lambda: Provenance(""), compare=False)
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<ServingSearch: {self.workload}, {self.considered_count} configurations>"

    @property
    def metrics(self) -> dict[str, Metric]:
        """Figures of the best configuration."""
        names = (
            *_FIGURES,
            "simulated_tpot_s",
            "simulated_ttft_s",
            "simulated_usd_per_million_tokens",
        )
        return {name: Metric(self.best.get(name)) for name in names}

    def figures(self) -> Document:
        """Flat figures and lists, ready for JSON."""
        return {
            "workload": self.workload,
            "considered_count": self.considered_count,
            "configurations_per_s": self.configurations_per_s,
            "best": dict(self.best),
            "rejected": dict(self.rejected),
            "simulated": [dict(row) for row in self.simulated],
            "pareto": [dict(row) for row in self.pareto],
        }

    def to_frame(self) -> pd.DataFrame:
        """One row per scored configuration."""
        import pandas as pd

        return pd.DataFrame(dict(self.columns))
