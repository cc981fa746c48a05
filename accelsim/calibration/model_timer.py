"""Times one whole model, in the process it is started in: ``python -m
accelsim.calibration.model_timer JSON``.

The argument names a check model, its device, batch, format, threads or execution, whether to train,
and the time to spend; the answer is one JSON object on standard output. Needs torch and the
standard library alone.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial

import torch

from accelsim.calibration.check_models import CHECK_MODELS, Inputs, in_format
from accelsim.calibration.energy import find_meter, time_and_energy
from accelsim.calibration.measurement.cuda import captured, tf32_products
from accelsim.calibration.measurement.operands import OperandPool, torch_dtype
from accelsim.calibration.measurement.operators import build_call
from accelsim.calibration.measurement.session import REFERENCE
from accelsim.calibration.measurement.timing import Call, CpuTimer, CudaTimer, Timer, Timing
from accelsim.plain import Values

#: Calls before the first that counts: the heap takes a few to settle; long ones are not repeated as
#: often.
_WARM_UP_CALLS, _FEWEST_WARM_UP_CALLS, _WARM_UP_S = 5, 2, 0.5


def time_model(case: Values) -> tuple[Timing, float | None]:
    """Time and energy of one forward pass or training step.

    Args:
        case: Fields of a `CheckCase`, ``budget_s`` and ``device`` ("cpu" where it is missing).

    Returns:
        The timing, and joules where a meter can be read.
    """
    device, threads = str(case.get("device", "cpu")), int(case["threads"])
    on_gpu = device != "cpu"
    torch.manual_seed(0)
    if on_gpu:
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(threads)
    with tf32_products(torch, case["dtype"] == "tf32") if on_gpu else nullcontext():
        call = _call(case, device)
        _warm_up(call)
        if on_gpu and case.get("execution") == "graph":
            call, _ = captured(torch.cuda, [call], least_calls=1)
        timer: Timer = CudaTimer(torch.cuda, least_blocks=5) if on_gpu else CpuTimer(threads, 5)
        timing = timer.measure([call], float(case["budget_s"]))
        meter = find_meter(device)
        reading = None if meter is None else time_and_energy(meter, call)
        return timing, None if reading is None else reading[1]


def _warm_up(call: Call) -> None:
    end = time.monotonic() + _WARM_UP_S
    for number in range(_WARM_UP_CALLS):
        if number < _FEWEST_WARM_UP_CALLS or time.monotonic() < end:
            call()


def _call(case: Values, device: str) -> Call:
    """One pass of the model, its weights and inputs on the device in the case's format."""
    dtype, default = torch_dtype(case["dtype"]), torch.get_default_dtype()
    if device != "cpu":  # large models are made as they are used: a second copy might not fit
        torch.set_default_dtype(dtype)
    try:
        with torch.device(device):
            model = CHECK_MODELS[case["model"]](int(case["batch"]))
    finally:
        torch.set_default_dtype(default)
    module, inputs = in_format(model, dtype)
    if case.get("execution") == "compiled":
        module.compile()
    make_call = _training_step if case["is_training"] else _forward
    return make_call(module.train(bool(case["is_training"])), inputs)


def _forward(module: torch.nn.Module, inputs: Inputs) -> Call:
    call: Call = torch.no_grad()(partial(module, *inputs))
    return call


def _training_step(module: torch.nn.Module, inputs: Inputs) -> Call:
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-6)
    with torch.no_grad():
        gradient = torch.randn_like(module(*inputs))

    def call() -> None:
        optimizer.zero_grad()
        module(*inputs).backward(gradient)
        optimizer.step()

    return call


def reference_s() -> float:
    """Time of the operator that a calibration times throughout: how fast the machine is now."""
    torch.set_num_threads(1)
    with torch.no_grad():
        call = build_call(REFERENCE, OperandPool("cpu"))
        return statistics.median(CpuTimer(1).measure([call], 0.03).time_s for _ in range(3))


def main(argument: str) -> None:
    """Time the case that the JSON text names, and print the timing with the energy of one run."""
    case = json.loads(argument)
    timing, energy_j = time_model(case)
    on_cpu = case.get("device", "cpu") == "cpu"
    further = {"energy_j": energy_j, "reference_s": reference_s() if on_cpu else None}
    sys.stdout.write(json.dumps(asdict(timing) | further) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
