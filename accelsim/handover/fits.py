"""What of a model fits on a board: formats, the longest context, layers that are left to the CPU,
tokens a second, and the line that runs it.

Each format is a run of one sequence, priced and sized as `accelsim estimate` does. Where the
weights and the cache are more than the board has, llama.cpp keeps the last layers on it and the
first ones in host memory (`-ngl`, src/llama-model.cpp), as `accelsim.estimation.offload` prices
it.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import asdict, field, replace
from typing import ClassVar

import accelsim
from accelsim import catalog
from accelsim.arguments import checked
from accelsim.catalog import workloads as workload_catalog
from accelsim.catalog.devices import refuse_several
from accelsim.catalog.stacks import Stack, stack
from accelsim.cost.memory import MemoryFootprint, available_bytes
from accelsim.dtype import precision
from accelsim.errors import InputError, InvalidValueError
from accelsim.estimation.options import ModelOptions, RunOptions, RunShape
from accelsim.estimation.passes import RunPasses, held_layers, run_passes
from accelsim.estimation.resolution import USUAL_HOST, host_run, resolve
from accelsim.estimation.run import ResolvedRun
from accelsim.estimation.simulate import shared, simulated
from accelsim.frozen import frozen
from accelsim.handover.launchers import launcher
from accelsim.handover.line import write_line
from accelsim.handover.model_sizes import model_size
from accelsim.hardware.profile import DeviceProfile
from accelsim.hardware.slice import with_memory
from accelsim.plain import Document, Values
from accelsim.result import Metric, Provenance, Result
from accelsim.workloads.model import Workload

#: Formats by stack, widest first: those that llama.cpp's own table of quantisations
#: (tools/quantize/README.md) and vLLM's (docs, quantization) offer for most checkpoints.
FORMATS = {
    "llama-cpp@b6451": ("fp16", "q8_0", "q6_k", "q5_k_m", "q4_k_m", "q3_k_m", "q2_k"),
    "vllm": ("bf16", "fp8", "w4a16"),
}
#: Context that must fit where none is asked: llama.cpp's `-c` of its examples.
USUAL_CONTEXT = 4096
#: Tokens of the prompt of the speeds, as in llama-bench, and tokens after it: one step is priced.
_PROMPT, _GENERATED = 512, 2
#: Contexts beyond are no question of memory.
_LONGEST = 1 << 24
#: A format of so many times the bytes still stands for the published one: Q8_0 for FP8.
_AS_WIDE = 1.1
#: Files that llama.cpp writes under another name than the format's.
_FILES = {"fp16": "F16", "bf16": "BF16", "fp32": "F32"}


@frozen
class Way:
    """A format in which a model may run on a board.

    Attributes:
        stack: Software that runs it.
        precision: Format.
        weight_bytes: Bytes of the weights.
        memory_bytes: What the context asked for needs in all.
        longest_context: Tokens that fit with all layers on the board; 0 where not even the weights
            do.
        device_layers: Layers on the board, at the context asked for.
        host_layers: Layers left to the CPU.
        time_to_first_token_s: Of a prompt of 512 tokens.
        tokens_per_s: Tokens a second after it.
        tokens_low_per_s: Lower end of their interval.
        tokens_high_per_s: Upper end.
        line: What runs it; empty where nothing does.
        reason: Why it does not run; empty where it does.
    """

    stack: str
    precision: str
    weight_bytes: float | None = None
    memory_bytes: float | None = None
    longest_context: int = 0
    device_layers: int = 0
    host_layers: int = 0
    time_to_first_token_s: float | None = None
    tokens_per_s: float | None = None
    tokens_low_per_s: float | None = None
    tokens_high_per_s: float | None = None
    line: str = ""
    reason: str = ""

    @property
    def fits(self) -> bool:
        """Whether all of it lies on the board."""
        return not self.reason and not self.host_layers


@frozen(repr=False)
class Fits(Result):
    """Which formats of a model fit on a board, and how fast each is.

    Attributes:
        workload: Model.
        device: Board.
        host: CPU that takes the layers that do not fit; None where there is none.
        context: Tokens of prompt and answer that had to fit.
        device_memory_bytes: Memory of the board, as its driver reports it.
        memory_available_bytes: What a program can allocate of it.
        ways: Formats by stack, widest first.
    """

    kind: ClassVar[str] = "fits"
    nested: ClassVar[frozenset[str]] = frozenset({"ways"})
    workload: str
    device: str
    host: str | None
    context: int
    device_memory_bytes: float
    memory_available_bytes: float
    ways: tuple[Way, ...]
    inputs: Values = field(default_factory=dict)
    provenance: Provenance = Provenance(accelsim.__version__)
    warnings: tuple[str, ...] = ()

    @property
    def best(self) -> Way | None:
        """The widest format whose layers all fit, else the fastest with layers on the CPU."""
        fitting = [way for way in self.ways if way.fits]
        if fitting:
            return max(fitting, key=lambda way: way.weight_bytes or 0.0)
        running = [way for way in self.ways if not way.reason]
        return max(running, key=lambda way: way.tokens_per_s or 0.0, default=None)

    @property
    def metrics(self) -> dict[str, Metric]:
        """Tokens a second of the best way."""
        best = self.best
        if best is None:
            return {"tokens_per_s": Metric(None)}
        low_per_s, high_per_s = best.tokens_low_per_s, best.tokens_high_per_s
        return {"tokens_per_s": Metric(best.tokens_per_s, low_per_s, high_per_s, 0.9)}

    def figures(self) -> Document:
        """The answer in plain values."""
        best = self.best
        return {
            "workload": self.workload,
            "device": self.device,
            "host": self.host,
            "context": self.context,
            "device_memory_bytes": self.device_memory_bytes,
            "memory_available_bytes": self.memory_available_bytes,
            "best": None if best is None else best.precision,
            "ways": [{**asdict(way), "fits": way.fits} for way in self.ways],
        }


@checked
def fits(
    workload: str | Workload,
    device: str | DeviceProfile | None = None,
    *,
    context: int | None = None,
    memory_gib: float | None = None,
    host: str | DeviceProfile | None = None,
) -> Fits:
    """Say which formats of a model fit on a board, how fast each is, and the line that runs it.

    Args:
        workload: Name, path or `Workload` of a model that generates text.
        device: Board; this machine's GPU, else its CPU, where None.
        context: Tokens of prompt and answer that must fit; `USUAL_CONTEXT`, or as many as the
            model was trained on, where None.
        memory_gib: Memory of the board, where it is sold with less than the profile has.
        host: CPU that takes the layers that do not fit; this machine's where `device` is its own,
            else `USUAL_HOST`.

    Raises:
        InputError: If a name or the context is wrong, or the model generates no text.
        InvalidValueError: If no device is named and none is recognised here.
    """
    name = workload if isinstance(workload, str) else workload.name
    name = name.removeprefix(workload_catalog.HUB)
    model = workload_catalog.workload(workload) if isinstance(workload, str) else workload
    if not model.autoregressive:
        remedy = "accelsim estimate --max-batch says what fits of others."
        raise InvalidValueError("model", model.name, "a model that generates text", remedy)
    board, is_local = _board(device)
    if memory_gib is not None:
        board = with_memory(board, memory_gib * 2**30)
    tokens = _context(context, model)
    cpu = _host(board, host, is_local)
    question = _Question(name, model, board, cpu, tokens)
    ways = tuple(question.ways())
    return Fits(
        workload=model.name,
        device=board.name,
        host=None if cpu is None else cpu.name,
        context=tokens,
        device_memory_bytes=board.memory_bytes,
        memory_available_bytes=available_bytes(board),
        ways=ways,
        inputs={"workload": name, "device": board.name, "context": tokens},
        provenance=Provenance(accelsim.__version__, parts={"device": board}),
        warnings=question.warnings(host is None and not is_local),
    )


def _board(device: str | DeviceProfile | None) -> tuple[DeviceProfile, bool]:
    """The board, and whether it is this machine's."""
    if device is not None:
        profile = catalog.device(device) if isinstance(device, str) else device
        refuse_several(profile, "ask accelsim estimate with gpus")
        return profile, profile.name.startswith("local/")
    profiles = catalog.detect_local_devices()
    if not profiles:
        allowed = "a device that accelsim recognises here: none is"
        raise InvalidValueError("device", None, allowed, "Name one with --device.")
    others = (profile for profile in profiles if profile.device_class != "cpu")
    return next(others, profiles[0]), True


def _trained_tokens(model: Workload) -> int:
    """Tokens that a model was trained on; no limit where that is not known."""
    return model_size(model, "max_positions") or _LONGEST


def _context(context: int | None, model: Workload) -> int:
    longest = _trained_tokens(model)
    if context is None:
        return min(USUAL_CONTEXT, longest)
    if not _GENERATED < context <= longest:
        allowed = (
            f"{_GENERATED + 1} to {longest:,} tokens, the longest text {model.name} was trained for"
        )
        raise InvalidValueError("context", context, allowed)
    return context


def _host(
    board: DeviceProfile, host: str | DeviceProfile | None, is_local: bool
) -> DeviceProfile | None:
    """The CPU beside a GPU with a memory of its own; None for others."""
    if board.device_class != "gpu" or board.memory.is_unified:
        if host is not None:
            allowed = f"no value: {board.name} has one memory with its CPU"
            raise InvalidValueError("host", str(host), allowed)
        return None
    if host is None and is_local:
        profiles = catalog.detect_local_devices()
        return next((cpu for cpu in profiles if cpu.device_class == "cpu"), None)
    cpu = catalog.device(host or USUAL_HOST) if isinstance(host, str | None) else host
    if cpu.device_class != "cpu":
        raise InvalidValueError("host", cpu.name, "a CPU", "See accelsim devices list.")
    return cpu


@frozen(eq=False)
class _Question:
    model_name: str
    model: Workload
    board: DeviceProfile
    host: DeviceProfile | None
    context: int

    def warnings(self, is_guess: bool) -> tuple[str, ...]:
        if self.host is None or not is_guess:
            return self.model.notices
        guess = f"layers on the CPU are those of a {self.host.title}; --host names another"
        return (*self.model.notices, guess)

    def ways(self) -> Iterator[Way]:
        """Formats of the stacks that the board has; of other chips, their own."""
        formats: list[tuple[str | None, str | None]] = [
            (name, form)
            for name, forms in FORMATS.items()
            if stack(name).runs(self.board)
            for form in self._forms(stack(name), forms)
        ]
        shape = RunShape(1, min(_PROMPT, self.context - _GENERATED), _GENERATED)
        for name, form in formats or [(None, None)]:
            options = RunOptions(model=ModelOptions(precision=form, stack=name), shape=shape)
            try:
                yield self._way(resolve(self.model, self.board, options))
            except InputError as error:
                yield Way((name or "").partition("@")[0], form or "", reason=str(error))

    def _forms(self, software: Stack, forms: tuple[str, ...]) -> list[str | None]:
        """Formats of a stack; of a model that is published in a narrow one, that and narrower."""
        published = self.model.quantised
        if published is None:
            return list(forms)
        most = _AS_WIDE * published.weight.bytes
        narrower = [form for form in forms if precision(form).weight.bytes <= most]
        if software.lacking(published):
            return [] if published.is_file else list(narrower)
        files = (form for form in narrower if precision(form).is_file)
        return [None, *(form for form in files if form != published.name)]

    def _way(self, run: ResolvedRun) -> Way:
        """A format with its memory, layers, times and line.

        Estimate: layers have equal shares of weights and cache, and llama.cpp leaves whole ones to
        the CPU (`-ngl`, src/llama-model.cpp).
        """
        passes = run_passes(run)
        room = run.available_bytes
        memory = _memory(passes, self.context)
        way = Way(
            run.stack.name,
            run.precision.name,
            memory.weight_bytes,
            memory.total_bytes,
            _longest_context(passes, room, _trained_tokens(self.model)),
        )
        layers = model_size(self.model, "layers") or 1
        device_layers = held_layers(memory, room, layers)
        host_fraction = 1.0 - device_layers / layers
        host_bytes = 0.0
        if self.host is not None and run.stack.name == "llama-cpp":  # no other uses the CPU
            host_bytes = available_bytes(self.host)
        spare = host_bytes - host_fraction * (memory.weight_bytes + memory.kv_cache_bytes)
        if spare < 0:
            return replace(way, reason=f"{-spare / 1e9:,.3g} GB short")
        simulation = simulated(run, passes)
        if device_layers < layers and self.host is not None:
            on_host = host_run(run, self.host)
            simulation = shared(simulation, simulated(on_host, run_passes(on_host)), host_fraction)
        way = replace(way, device_layers=device_layers, host_layers=layers - device_layers)
        rate = 1.0 / (simulation.time_per_output_token_s or math.inf)
        return replace(
            way,
            time_to_first_token_s=simulation.time_to_first_token_s,
            tokens_per_s=rate,
            tokens_low_per_s=rate / simulation.spread_ratio,
            tokens_high_per_s=rate * simulation.spread_ratio,
            line=self._line(way),
        )

    def _line(self, way: Way) -> str:
        """What runs it: llama.cpp's server of a file, or vLLM's of a checkpoint."""
        if way.stack == "vllm":
            suffix = "-AWQ" if way.precision == "w4a16" else ""
            settings = {"max_context": self.context, "precision": way.precision}
            return str(write_line(launcher("vllm"), settings, self.model_name + suffix))
        if way.stack != "llama-cpp":
            return ""
        layers = way.device_layers if way.host_layers else 99
        if self.board.device_class == "cpu":
            layers = 0
        published = self.model.quantised
        if published is not None and published.is_file and published.name == way.precision:
            file = self.model_name
        else:
            file_format = _FILES.get(way.precision, way.precision.upper())
            file = f"{self.model.name}-{file_format}.gguf"
        return f"llama-server -m {file} -c {self.context} -ngl {layers}"


def _memory(passes: RunPasses, tokens: int) -> MemoryFootprint:
    return replace(passes.memory, kv_cache_bytes=float(passes.cache.bytes_of(tokens)))


def _longest_context(passes: RunPasses, available: float, trained_tokens: int) -> int:
    """The most tokens, of those trained on, whose cache fits beside weights and activations."""
    counts = range(1, trained_tokens + 1)
    return bisect_left(
        counts, True, key=lambda tokens: _memory(passes, tokens).short_bytes(available) > 0
    )
