"""Suite `llama-cpp`: Llama-2-7B under llama.cpp on boards that people own, as they report it.

A row is a figure of `llama-bench`: a prompt of 512 tokens, or 128 tokens generated from an empty
context, alone on a board. Rows are grouped by the backend that computes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from accelsim.plain import Values
from accelsim.scoreboard.data_folder import DataFolder, schema
from accelsim.scoreboard.measured_runs import MeasuredRun, run_batches
from accelsim.scoreboard.published_runs import PUBLISHED, published_row
from accelsim.scoreboard.suite import MeasuredBatch, register_suite

BOARDS_SCHEMA = schema("llama_cpp/boards.csv")


@register_suite(
    "llama-cpp", "llama.cpp on boards that people own, as reported", (BOARDS_SCHEMA,), "model"
)
def load(folder: DataFolder) -> list[MeasuredBatch]:
    """Rows by device, and by reason where they are refused."""
    return run_batches(map(board_row, folder.records(BOARDS_SCHEMA)), PUBLISHED)


def board_row(record: Values) -> MeasuredRun:
    """A row of the table as a run."""
    is_prompt = record["metric"] == "prompt_tokens_per_s"
    tokens = record["tokens"]
    row = published_row(
        {name: record[name] for name in ("device", "workload", "precision", "metric", "value")}
        | dict.fromkeys(("execution", "layout", "fused_attention", "optimizer"), "")
        | {"stack": "llama-cpp", "mode": "inference", "batch": 1.0, "image_size": np.nan}
        | {
            "seq_len": tokens if is_prompt else 1.0,
            "output_len": 0.0 if is_prompt else tokens,
        }
    )
    return replace(row, group=record["backend"])
