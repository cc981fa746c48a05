"""Times one whole model on this CPU, in the process it is started in: ``python -m accelsim.calibration.model_timer JSON``.

The argument names a check model, its batch, format, threads, whether to train, and the time to spend; the answer is one JSON
object on standard output. Needs torch and the standard library alone.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import torch

from accelsim.calibration.check_models import CHECK_MODELS, Factory
from accelsim.calibration.measurement.operators import torch_dtype
from accelsim.calibration.measurement.timing import CpuTimer, Timing

__all__ = ["main", "time_model"]

_WARM_UP_CALLS = 2


def time_model(case: Mapping[str, Any], models: Mapping[str, Factory] = CHECK_MODELS) -> Timing:
    """Time of one forward pass or training step.

    Args:
        case: Fields of a `CheckCase`, and ``budget_s``.
        models: Factories by name.
    """
    torch.manual_seed(0)
    torch.set_num_threads(int(case["threads"]))
    module, inputs = models[case["model"]](int(case["batch"]))
    dtype = torch_dtype(case["dtype"])
    module, inputs = module.to(dtype), tuple(x.to(dtype) if x.is_floating_point() else x for x in inputs)
    call = _training_step(module.train(), inputs) if case["is_training"] else _forward(module.eval(), inputs)
    for _ in range(_WARM_UP_CALLS):
        call()
    return CpuTimer(int(case["threads"]), least_blocks=5).measure([call], float(case["budget_s"]))


def _forward(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> Callable[[], Any]:
    def call() -> Any:
        with torch.no_grad():
            return module(*inputs)

    return call


def _training_step(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> Callable[[], Any]:
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-6)
    with torch.no_grad():
        gradient = torch.randn_like(module(*inputs))

    def call() -> None:
        optimizer.zero_grad()
        module(*inputs).backward(gradient)
        optimizer.step()

    return call


def main(argument: str) -> None:
    """Time the case that the JSON text names, and print the timing."""
    sys.stdout.write(json.dumps(asdict(time_model(json.loads(argument)))) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
