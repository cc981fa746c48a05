"""Validation: score predictions on measured tables, suite by suite.

`validate` runs suites over a data folder; `scoreboard_dict` and `markdown` write what it found;
`worse_figures` compares it with an earlier report. A new suite is a module that registers itself
with `register_suite`.
"""

from accelsim.scoreboard.compare import uncompared_suites, worse_figures
from accelsim.scoreboard.data_folder import DataFolder, DataProblem, Schema
from accelsim.scoreboard.evidence import evidence_dict
from accelsim.scoreboard.report import (
    markdown,
    row_columns,
    row_names,
    row_records,
    scoreboard_dict,
)
from accelsim.scoreboard.score import validate
from accelsim.scoreboard.scored_rows import ScoredRows, ScoringStep, SuiteRows
from accelsim.scoreboard.scores import Scoreboard, SuiteScore
from accelsim.scoreboard.suite import (
    MeasuredBatch,
    Prediction,
    Suite,
    register_suite,
    suite,
    suites,
)
from accelsim.scoreboard.tiers import TIERS, TierName, tier_name

__all__ = [
    "TIERS",
    "DataFolder",
    "DataProblem",
    "MeasuredBatch",
    "Prediction",
    "Schema",
    "Scoreboard",
    "ScoredRows",
    "ScoringStep",
    "Suite",
    "SuiteRows",
    "SuiteScore",
    "TierName",
    "evidence_dict",
    "markdown",
    "register_suite",
    "row_columns",
    "row_names",
    "row_records",
    "scoreboard_dict",
    "suite",
    "suites",
    "tier_name",
    "uncompared_suites",
    "validate",
    "worse_figures",
]
