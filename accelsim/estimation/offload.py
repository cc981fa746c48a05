"""Simulations of runs some of whose layers lie in host memory, in closed form.

Engines read their weights over the link in each pass (vLLM's ``--cpu-offload-gb``; accelerate's
``device_map``); llama.cpp has the CPU run them token by token, with their part of the cache
(``-ngl``, src/llama-model.cpp). Estimate: layers are equal, embeddings spread over them; a pass
waits for its weights, which come at the link's datasheet bandwidth; what goes between layers on
two devices (kilobytes a token) is nothing beside them.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from accelsim.estimation.schedule import host_link_bytes_per_s
from accelsim.estimation.simulated_pass import SimulatedPass

if TYPE_CHECKING:
    from accelsim.estimation.simulate import Simulation
    from accelsim.hardware.profile import DeviceProfile

#: Tokens from which llama.cpp has the device run a layer of the host's, and those it runs at once.
_LEAST_TOKENS, _MICROBATCH_TOKENS = 32, 512


def with_host(
    device: Simulation, host: Simulation | None, host_layers: int, layers: int
) -> Simulation:
    """The simulation with what the layers in host memory take.

    Args:
        device: On the device alone.
        host: On the CPU that runs its layers; None where the device reads and runs them.
        host_layers: Layers in host memory.
        layers: Layers of the model.
    """
    share_fraction, board = host_layers / layers, device.run.device
    placement = f"{host_layers} of {layers} layers lie in host memory"
    if host is None:
        passes = tuple(_after(p, share_fraction, board) for p in device.passes)
        offloaded = replace(device, passes=passes)
        link = f"{host_link_bytes_per_s(board) / 1e9:.3g} GB/s"
        warning = f"{placement}; each pass reads them at {link}, and waits for them"
    else:
        offloaded = shared(device, host, share_fraction)
        warning = f"{placement}, and a {host.run.device.title} runs them"
    return replace(offloaded, warnings=(*device.warnings, warning))


def shared(device: Simulation, host: Simulation, share_fraction: float) -> Simulation:
    """A simulation of a model that llama.cpp has two devices run, one after the other. Estimate:
    neither works while the other does.

    Of 32 tokens and more the device runs all layers, and reads those of the host for each
    microbatch (llama.cpp, pull request 6083, "offload large batches to GPU"; `-ub`, 512 by
    default).

    Args:
        device: On the device alone.
        host: On the CPU alone.
        share_fraction: Of the layers on the CPU, 0 to 1.
    """
    run, passes = device.run, list[SimulatedPass]()
    for device_pass, host_pass in zip(device.passes, host.passes, strict=True):
        tokens = run.batch * (1 if device_pass.name == "decode" else run.seq_len)
        if tokens >= _LEAST_TOKENS:
            microbatches = math.ceil(tokens / _MICROBATCH_TOKENS)
            passes.append(_after(device_pass, share_fraction * microbatches, run.device))
            continue
        result = host_pass.result.beside(device_pass.result)
        repeats = host_pass.repeats * share_fraction
        passes.append(replace(device_pass, repeats=device_pass.repeats * (1.0 - share_fraction)))
        passes.append(replace(host_pass, repeats=repeats, result=result))
    running = tuple(p for p in passes if p.repeats > 0)
    return replace(device, passes=running, host_log_sigma=host.log_sigma)


def _after(a_pass: SimulatedPass, share_fraction: float, device: DeviceProfile) -> SimulatedPass:
    """A pass that waits for its share of weights."""
    weight_bytes = share_fraction * float(a_pass.graph.weight_bytes.sum())
    wait_s = weight_bytes / host_link_bytes_per_s(device)
    return replace(a_pass, result=a_pass.result.after(wait_s))
