"""Suite `silicon-kernels`: GEMM, attention, MLA and MoE kernels of data-centre GPUs (extra
`silicon`).

Rows come from the installed package aiconfigurator-core, not from the data folder: every number
format from one serving backend. Only the fifth of the shapes that no fit may see is scored, at
every tier. Kernels were timed in replayed CUDA graphs, so the prediction is the kernel and the gap
between kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from accelsim.cost.gpu import GpuParameters, cost_gpu
from accelsim.cost.table import Execution, ParameterTier
from accelsim.errors import InvalidValueError, ProfileError, UnknownNameError
from accelsim.hardware.profile import GpuProfile
from accelsim.scoreboard.columns import roofline_s
from accelsim.scoreboard.data_folder import DataFolder, DataProblem
from accelsim.scoreboard.names import gpu_of
from accelsim.scoreboard.suite import MeasuredBatch, Prediction, refused_batch, register_suite
from tools.scoreboard.aiconfigurator_graphs import KernelGraph, kernel_graphs
from tools.scoreboard.aiconfigurator_rows import (
    EAGER_SYSTEMS,
    KINDS,
    SYSTEMS,
    package_root,
    preferred_rows,
    unknown_systems,
)
from tools.scoreboard.gpu_operators import labels

#: Operator names of the kinds.
GROUPS = {
    "gemm": "gemm",
    "context_attention": "prefill-attention",
    "generation_attention": "decode-attention",
    "context_mla": "prefill-mla",
    "generation_mla": "decode-mla",
    "moe": "moe",
}


#: Operators that one timed call of an eager system issues one after the other: its linear layers go
#: in sixes (collector/vllm/collect_gemm_xpu.py of aiconfigurator), its attention alone.
_ISSUED_TOGETHER = {"gemm": 6}


@register_suite(
    "silicon-kernels",
    "GPU kernels of aiconfigurator-core: the fifth of shapes no fit may see",
    (),
    "operator",
)
def load(folder: DataFolder) -> list[MeasuredBatch]:
    """Held-out rows of every system and kind that the package has.

    Raises:
        MissingDependencyError: If the package is not installed.
    """
    package_root()
    for system in unknown_systems():
        said = "kernels of a system that no GPU profile is known for"
        folder.note(DataProblem(f"data/{system}", None, None, "unknown system", said))
    return [
        batch for system in SYSTEMS for kind in KINDS for batch in _batches(folder, system, kind)
    ]


def _batches(folder: DataFolder, system: str, kind: str) -> Iterator[MeasuredBatch]:
    def refuse(error: ProfileError) -> None:
        path = error.path.removeprefix(f"{package_root()}/")
        said = "; ".join(error.problems)
        folder.note(DataProblem(path, None, None, "damaged table", said))

    for table in preferred_rows(system, kind, refuse):
        rows = table.take(table.held_out)
        words = np.full(len(rows), GROUPS[kind])
        try:
            profile = gpu_of(system)
            graphs = kernel_graphs(rows)
        except UnknownNameError as error:
            reason = f"no GPU profile of {error.name}"
        except InvalidValueError as error:
            reason = f"{kind} of {table.backend}: {error}"
        else:
            yield from (_batch(system, profile, kernels) for kernels in graphs)
            continue
        yield refused_batch(system, words, words, rows.time_s, reason)


def _batch(system: str, profile: GpuProfile, kernels: KernelGraph) -> MeasuredBatch:
    rows = kernels.rows
    name = f"{GROUPS[rows.kind]} {kernels.format_name} ({rows.backend})"
    line = kernels.sum_stages(roofline_s(kernels.graph, profile))
    label = labels(*rows.sizes.values())
    group = np.full(len(label), name)
    predict = _prediction(kernels, profile)
    return MeasuredBatch(system, profile, group, label, rows.time_s, line, predict)


def _share_beyond_first(kind: str) -> float:
    """Part of the operators in a timed call that follow another one: nothing ends between them."""
    return 1.0 - 1.0 / _ISSUED_TOGETHER.get(kind, 1)


def _prediction(kernels: KernelGraph, profile: GpuProfile) -> Callable[[Any | None], Prediction]:
    def predict(parameters: Any | None) -> Prediction:
        base = GpuParameters.class_wide() if parameters is None else parameters
        measured = kernels.measured(base, profile)
        # Surfaces fitted to operators issued one by one hold the host's time; without them the
        # slower of the two counts.
        is_eager = kernels.rows.system in EAGER_SYSTEMS and base.tier is ParameterTier.SPEC
        execution = Execution.EAGER if is_eager else Execution.GRAPH
        costs = cost_gpu(kernels.graph, profile, execution, measured)
        beyond_first = _share_beyond_first(kernels.rows.kind) * is_eager
        dispatch = base.of_vendor(profile.vendor).dispatch
        issue_s = costs.dispatch_s - dispatch.trailing_s * beyond_first
        busy_s = kernels.sum_stages(costs.time_s)
        issued_s = kernels.sum_stages(issue_s)
        time_s = np.maximum(busy_s, issued_s) if is_eager else busy_s + issued_s
        return Prediction(time_s + kernels.beside_s(base, profile), kernels.log_sigma(costs))

    return predict
