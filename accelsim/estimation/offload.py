"""Layers of a run that lie in host memory, where the device's is too small.

Engines read their weights over the link in each pass (vLLM's ``--cpu-offload-gb``; accelerate's
``device_map``); llama.cpp has the CPU run them token by token, with their part of the cache
(``-ngl``, src/llama-model.cpp). Estimate: layers are equal, embeddings spread over them; a pass
waits for its weights, which come at the link's datasheet bandwidth; what goes between layers on two
devices (kilobytes a token) is nothing beside them.
"""

from __future__ import annotations

import math
from dataclasses import replace

from accelsim import catalog
from accelsim.cost.memory import MemoryFootprint, memory_short
from accelsim.errors import InvalidValueError, UnsupportedOperatorError
from accelsim.estimation.options import ModelOptions, RunOptions, RunShape
from accelsim.estimation.passes import RunPasses, run_passes
from accelsim.estimation.run import ResolvedRun, resolve
from accelsim.estimation.schedule import host_link_bytes_per_s
from accelsim.estimation.simulate import SimulatedPass, Simulation, simulated
from accelsim.frozen import frozen
from accelsim.hardware.profile import CpuProfile, DeviceProfile, GpuProfile
from accelsim.workloads.sharding import WHOLE

#: CPU beside a board that is not this machine's: estimate, a desktop of 2022.
USUAL_HOST = "core-i9-13900k"
_AUTO, _REMEDY = "auto", "Leave offload out."
#: Tokens from which llama.cpp has the device run a layer of the host's, and those it runs at once.
_LEAST_TOKENS, _MICROBATCH_TOKENS = 32, 512


@frozen(eq=False)
class Offload:
    """How many layers of a run lie in host memory, and what runs them.

    Attributes:
        layers: Layers; None for the fewest with which the run fits.
        of: Layers of the model.
        host: The same run on the CPU that runs them; None where the device does.
    """

    layers: int | None
    of: int
    host: ResolvedRun | None

    def placed(self, passes: RunPasses, run: ResolvedRun) -> RunPasses:
        """The passes with what the device holds of the run's memory.

        Raises:
            DoesNotFitError: If the CPU's memory is too small for its layers.
        """
        layers = self._fewest(passes.memory, run) if self.layers is None else self.layers
        kept = 1.0 - layers / self.of
        whole, cache = passes.memory, passes.memory.kv_cache_bytes
        on_device = cache if self.host is None else cache * kept
        held = replace(whole, weight_bytes=whole.weight_bytes * kept, kv_cache_bytes=on_device)
        left = whole.total_bytes - held.total_bytes
        if self.host is not None and left > (room := self.host.available_bytes):
            raise memory_short(self.host.device, left, room, "Offload fewer layers.")
        return replace(passes, memory=held, host_layers=layers, host_bytes=left)

    def _fewest(self, memory: MemoryFootprint, run: ResolvedRun) -> int:
        room = run.available_bytes
        if self.host is not None:
            return self.of - held_layers(memory, room, self.of)
        each = memory.weight_bytes / self.of
        return min(self.of, math.ceil(memory.short_bytes(room) / each * (1 - 1e-12)))

    def timed(self, simulation: Simulation, passes: RunPasses) -> Simulation:
        """The simulation with what the offloaded layers take."""
        if not passes.host_layers:
            return simulation
        share, board = passes.host_layers / self.of, simulation.run.device
        said = f"{passes.host_layers} of {self.of} layers lie in host memory"
        if self.host is not None:
            there = simulated(self.host, run_passes(self.host))
            said = f"{said}, and a {self.host.device.title} runs them"
            return replace(shared(simulation, there, share), warnings=(*simulation.warnings, said))
        waiting = tuple(_after(p, share, board) for p in simulation.passes)
        link = f"{host_link_bytes_per_s(board) / 1e9:.3g} GB/s"
        said = f"{said}; each pass reads them at {link}, and waits for them"
        return replace(simulation, passes=waiting, warnings=(*simulation.warnings, said))


def with_offload(run: ResolvedRun, value: str | int) -> ResolvedRun:
    """A run some of whose layers lie in host memory; the run itself where none does.

    Args:
        run: A run of inference.
        value: How many layers, or "auto".

    Raises:
        UnsupportedOperatorError: If the device has no memory of its own.
        InvalidValueError: If the count is out of range, or the model has no layers of one kind.
    """
    device, of = run.device, int(getattr(run.workload.parameters, "layers", 0) or 0)
    if not isinstance(device, GpuProfile) or device.memory.is_unified:
        reason = "it is no GPU with a memory of its own"
        raise UnsupportedOperatorError(device.name, "offloaded layers", reason, _REMEDY)
    if run.shard != WHOLE or not of:
        why = f"{run.workload.name} is no stack of equal layers on one device"
        raise InvalidValueError("offload", value, f"no value: {why}", _REMEDY)
    text = str(value)
    if text not in (_AUTO, *map(str, range(of + 1))):
        raise InvalidValueError("offload", value, f"0 to {of}, the layers of the model, or {_AUTO}")
    layers = None if text == _AUTO else int(text)
    if layers == 0:
        return run
    is_shared = run.stack.llama_cpp_files
    host = host_run(run, run.host or catalog.device(USUAL_HOST)) if is_shared else None
    return replace(run, offload=Offload(layers, of, host))


def host_run(run: ResolvedRun, host: DeviceProfile) -> ResolvedRun:
    """The same run on a CPU.

    Raises:
        InvalidValueError: If it is no CPU.
    """
    if not isinstance(host, CpuProfile):
        raise InvalidValueError("host", host.name, "a CPU", "See accelsim devices list.")
    model = ModelOptions(run.precision, stack=run.stack.label, fused_attention=run.fused_attention)
    shape = RunShape(run.batch, run.seq_len, run.output_len)
    return resolve(run.workload, host, RunOptions(model=model, shape=shape, tier=run.tier))


def held_layers(memory: MemoryFootprint, room_bytes: float, layers: int) -> int:
    """Layers whose weights and cache fit beside the activations. Estimate: all are equal.

    Args:
        memory: What the whole model needs.
        room_bytes: What the board has.
        layers: Layers of the model.
    """
    each = (memory.weight_bytes + memory.kv_cache_bytes) / layers
    most = math.floor((room_bytes - memory.activation_bytes) / each * (1 + 1e-12))
    return min(layers, max(0, most))


def shared(device: Simulation, host: Simulation, share: float) -> Simulation:
    """A simulation of a model that llama.cpp has two devices run, one after the other.

    Of 32 tokens and more the device runs all layers, and reads those of the host for each
    microbatch (llama.cpp, pull request 6083, "offload large batches to GPU"; `-ub`, 512 by
    default).

    Args:
        device: On the device alone.
        host: On the CPU alone.
        share: Of the layers on the CPU, 0 to 1.
    """
    parts: list[SimulatedPass] = []
    for here, there in zip(device.passes, host.passes, strict=True):
        run = device.run
        tokens = run.batch * (1 if here.name == "decode" else run.seq_len)
        if tokens >= _LEAST_TOKENS:
            times = math.ceil(tokens / _MICROBATCH_TOKENS)
            parts.append(_after(here, share * times, run.device))
            continue
        result = there.result.beside(here.result)
        parts.append(replace(here, repeats=here.repeats * (1.0 - share)))
        parts.append(replace(there, repeats=there.repeats * share, result=result))
    passes = tuple(p for p in parts if p.repeats > 0)
    return replace(device, passes=passes, host_log_sigma=host.log_sigma)


def _after(a_pass: SimulatedPass, share: float, device: DeviceProfile) -> SimulatedPass:
    """A pass that waits for its share of weights."""
    wait_s = share * float(a_pass.graph.weight_bytes.sum()) / host_link_bytes_per_s(device)
    return replace(a_pass, result=a_pass.result.after(wait_s))
