"""Suite `training-memory`: peak of live tensor bytes of torch on this machine's CPU, against the
memory of a training step.

A small GPT and ResNet-50 in FP32 under AdamW, with and without checkpointing of layers, measured
when the suite runs; without torch it is skipped by name. Bytes of tensors depend on no device: a
server's profile stands for the machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec

import numpy as np

from accelsim.catalog import device
from accelsim.errors import MissingDependencyError
from accelsim.frozen import frozen
from accelsim.plain import Document
from accelsim.scoreboard.data_folder import DataFolder
from accelsim.scoreboard.names import workload_of
from accelsim.scoreboard.suite import MeasuredBatch, Prediction, fixed_prediction, register_suite
from accelsim.training.estimate import train
from accelsim.workloads.model import Workload

_DEVICE = "xeon-platinum-8380"
_GPT = {"layers": 4, "width": 128, "heads": 4, "vocabulary": 2048, "length": 128}
_GPT_BATCHES = (4, 16)
_IMAGES = ((4, 96), (16, 64), (8, 224))
#: Spread of ln(true / predicted): an estimate.
_LOG_SIGMA = 0.03


@frozen
class _Case:
    """A training step: its model, and what the two sides are asked with."""

    group: str
    label: str
    model: Workload
    options: Document
    plan: str
    measured_bytes: float


@register_suite(
    "training-memory",
    "Peak of live tensor bytes of training steps, torch on this CPU",
    (),
    "model",
    quantity="memory, bytes",
    has_best_alone=True,
)
def load_memory(_folder: DataFolder) -> list[MeasuredBatch]:
    """Measure, and predict.

    Raises:
        MissingDependencyError: If torch is not installed.
    """
    if find_spec("torch") is None:
        raise MissingDependencyError("torch", "torch")
    cases = [*_gpt_cases(), *_resnet_cases()]
    bytes_held = np.array([_predicted(case) for case in cases])
    sigma = np.full(len(cases), _LOG_SIGMA)
    return [
        MeasuredBatch(
            _DEVICE,
            device(_DEVICE),
            np.array([case.group for case in cases]),
            np.array([case.label for case in cases]),
            np.array([case.measured_bytes for case in cases]),
            np.full(len(cases), np.nan),
            fixed_prediction(Prediction(bytes_held, sigma)),
        )
    ]


def _predicted(case: _Case) -> float:
    options: Document = {"device": _DEVICE, "precision": "fp32", **case.options}
    return train(case.model, plan=case.plan, **options).memory_bytes


def _plan(batch: int, recomputes: bool) -> str:
    return f"microbatch={batch},recompute={'full' if recomputes else 'none'}"


def _gpt_cases() -> Iterator[_Case]:
    from tools.scoreboard.live_models import peak_of_gpt

    sizes = {
        "layers": _GPT["layers"],
        "hidden_size": _GPT["width"],
        "heads": _GPT["heads"],
        "intermediate_size": 4 * _GPT["width"],
        "vocab_size": _GPT["vocabulary"],
        "max_positions": _GPT["length"],
        "activation": "gelu",
    }
    gpt = workload_of("gpt2")
    model = replace(gpt, name="small-gpt", parameters=gpt.parameters.model_copy(update=sizes))
    for batch in _GPT_BATCHES:
        for recomputes in (False, True):
            plan = _plan(batch, recomputes)
            peak = peak_of_gpt(**_GPT, batch=batch, recomputes=recomputes)
            options = {"seq_len": _GPT["length"]}
            yield _Case("small GPT", f"small GPT: {plan}", model, options, plan, peak)


def _resnet_cases() -> Iterator[_Case]:
    from tools.scoreboard.live_models import peak_of_resnet

    model = workload_of("resnet-50")
    for batch, side in _IMAGES:
        for recomputes in (False, True):
            plan = _plan(batch, recomputes)
            peak = peak_of_resnet(side=side, batch=batch, recomputes=recomputes)
            label = f"ResNet-50, {side} pixels: {plan}"
            yield _Case("ResNet-50", label, model, {"image_size": side}, plan, peak)
