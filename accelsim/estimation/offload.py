"""Simulations of runs some of whose layers lie in host memory, in closed form.

Engines read their weights over the link in each pass (vLLM's ``--cpu-offload-gb``; accelerate's
``device_map``); llama.cpp has the CPU run them token by token, with their part of the cache
(``-ngl``, src/llama-model.cpp). Estimate: layers are equal, embeddings spread over them; a pass
waits for its weights, which come at the link's datasheet bandwidth; what goes between layers on
two devices (kilobytes a token) is nothing beside them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from accelsim.estimation.schedule import host_link_bytes_per_s
from accelsim.estimation.simulated_pass import SimulatedPass

if TYPE_CHECKING:
    from accelsim.estimation.run import ResolvedRun
    from accelsim.hardware.profile import DeviceProfile

#: Tokens from which llama.cpp has the device run a layer of the host's, and those it runs at once.
_LEAST_TOKENS, _MICROBATCH_TOKENS = 32, 512


def waiting_passes(
    passes: Iterable[SimulatedPass], share_fraction: float, device: DeviceProfile
) -> tuple[SimulatedPass, ...]:
    """Passes of a device that reads its layers in host memory and waits for them.

    Args:
        passes: On the device alone.
        share_fraction: Of the layers in host memory, 0 to 1.
        device: What reads them.
    """
    return tuple(_after(each, share_fraction, device) for each in passes)


def shared_passes(
    run: ResolvedRun,
    device_passes: Sequence[SimulatedPass],
    host_passes: Sequence[SimulatedPass],
    share_fraction: float,
) -> tuple[SimulatedPass, ...]:
    """Passes of a model that llama.cpp has two devices run, one after the other. Estimate: neither
    works while the other does.

    Of 32 tokens and more the device runs all layers, and reads those of the host for each
    microbatch (llama.cpp, pull request 6083, "offload large batches to GPU"; `-ub`, 512 by
    default).

    Args:
        run: The run on the device.
        device_passes: On the device alone.
        host_passes: On the CPU alone.
        share_fraction: Of the layers on the CPU, 0 to 1.
    """
    passes = list[SimulatedPass]()
    for device_pass, host_pass in zip(device_passes, host_passes, strict=True):
        tokens = run.batch * (1 if device_pass.name == "decode" else run.seq_len)
        if tokens >= _LEAST_TOKENS:
            microbatches = math.ceil(tokens / _MICROBATCH_TOKENS)
            passes.append(_after(device_pass, share_fraction * microbatches, run.device))
            continue
        result = host_pass.result.beside(device_pass.result)
        repeats = host_pass.repeats * share_fraction
        passes.append(replace(device_pass, repeats=device_pass.repeats * (1.0 - share_fraction)))
        passes.append(replace(host_pass, repeats=repeats, result=result))
    return tuple(p for p in passes if p.repeats > 0)


def _after(a_pass: SimulatedPass, share_fraction: float, device: DeviceProfile) -> SimulatedPass:
    """A pass that waits for its share of weights."""
    weight_bytes = share_fraction * float(a_pass.graph.weight_bytes.sum())
    wait_s = weight_bytes / host_link_bytes_per_s(device)
    return replace(a_pass, result=a_pass.result.after(wait_s))
