"""One run: a model, a device, and how it is run, resolved and checked.

`resolve` turns names into profiles and workloads, fills defaults in, and refuses bad values with
the field, the value and the range, before anything is computed.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Literal

from accelsim import __version__
from accelsim.catalog.stacks import Stack, StackPath
from accelsim.cost.fitted import fitted_parameters
from accelsim.cost.memory import available_bytes
from accelsim.cost.registry import Parameters, tier_parameters
from accelsim.cost.stack import FamilySpread, KernelMaker, StackEffect
from accelsim.cost.table import Execution
from accelsim.dtype import Precision
from accelsim.estimation.power_limit import limit_of
from accelsim.estimation.stack_choice import own_kernels, stack_path
from accelsim.frozen import frozen
from accelsim.hardware.profile import CpuProfile, DeviceProfile, GpuProfile
from accelsim.plain import Document, Values
from accelsim.result import Provenance
from accelsim.workloads.model import Workload
from accelsim.workloads.recomputation import Selective
from accelsim.workloads.sharding import WHOLE, Shard
from accelsim.workloads.training import Optimizer

if TYPE_CHECKING:
    from accelsim.catalog.engines import ServingEngine, Tokens
    from accelsim.estimation.learned import Learned
    from accelsim.hardware.cluster import Cluster

Mode = Literal["inference", "training"]


@frozen(slots=False, eq=False)
class ResolvedRun:
    """Everything one estimate depends on: names looked up, defaults filled in.

    Attributes:
        workload: The model.
        device: The device.
        batch: Samples or sequences per iteration.
        precision: Dtypes.
        mode: Inference or training.
        stack: Software that runs it.
        execution: How operators are issued.
        seq_len: Input tokens per sequence; 0 where the model has none.
        output_len: Generated tokens per sequence; 0 for one forward pass.
        image_size: Side of the image; 0 for the model's own.
        optimizer: Update rule of training.
        accumulation: Parts of a training step's batch, one after the other.
        recompute: Activation checkpointing of training: none, selective or full.
        steps: Passes a result takes: denoising steps of an image.
        images: Pictures in each prompt; their tokens are in `seq_len`.
        picture_encoder: What makes tokens of them; None where there is no picture.
        fused_attention: Whether attention is one operator.
        host: Device that runs what `device` cannot; None refuses.
        tier: Parameters to predict with.
        sparse_weights: Whether weights are pruned to the structured sparsity the chip has a rate
            for.
        heap: "default", or "kept" where the memory allocator keeps what is freed; calibrated CPUs.
        threads: Threads of a CPU; None on other devices.
        layout: Of convolutions; empty where the stack chooses.
        spreads: Spreads of measured runs that its intervals are no narrower than; those that ship
            where None.
        shard: The rank's part of the model.
        cluster: What joins the ranks; None for one device.
        lora_rank: Rank of the adapters that alone are trained; None trains all weights.
        document_len: Mean tokens of the documents packed into a sequence; None where it is one.
        learned: The user's own measured runs, which correct the answer; None for none.
        offload: Layers that lie in host memory; None for none.
    """

    workload: Workload
    device: DeviceProfile
    batch: int
    precision: Precision
    mode: Mode
    stack: Stack
    execution: Execution
    seq_len: int
    output_len: int
    image_size: int
    optimizer: Optimizer
    accumulation: int
    fused_attention: bool
    host: CpuProfile | GpuProfile | None
    tier: str = "best"
    sparse_weights: bool = False
    heap: str = "default"
    threads: int | None = None
    layout: str = ""
    spreads: Values | None = None
    shard: Shard = WHOLE
    cluster: Cluster | None = None
    lora_rank: int | None = None
    document_len: int | None = None
    recompute: str = "none"
    steps: int = 1
    images: int = 0
    picture_encoder: Workload | None = None
    learned: Learned | None = None
    offload: Offload | None = None

    @property
    def device_label(self) -> str:
        """Name of the device, with the count of those that share the model."""
        return self.device.name if self.shard.tp == 1 else f"{self.shard.tp} x {self.device.name}"

    @property
    def stack_path(self) -> StackPath:
        """How the stack runs it."""
        return stack_path(self.stack, self.execution)

    @property
    def selective(self) -> Selective:
        """Which rows selective recomputation makes again."""
        return self.stack.selective or ("products" if self.fused_attention else "attention")

    @property
    def stack_effect(self) -> StackEffect:
        """What the stack does to the costs of its operators."""
        device_class, layout = str(self.device.device_class), self.stack.layouts.get(self.layout)
        return StackEffect.of(
            self.stack.ratios(device_class, self.mode),
            transform_s=None if layout is None else layout.transform_s,
            group_norm_passes=0 if layout is None else layout.group_norm_passes,
            host=self.stack.version.gpu_host_ratio if device_class == "gpu" else 1.0,
            library_call_s=self.library_call_s,
            spread=FamilySpread(**self.stack.log_sigmas(device_class, self.mode)),
            of_arithmetic=device_class == "asic",
            limit=limit_of(self.device),
            **own_kernels(self.stack, self.device),
        )

    @property
    def library_call_s(self) -> float | None:
        """Host time for each kernel of a library that a compiled network calls; None elsewhere."""
        time_us = self.stack_path.library_call_us
        return None if time_us is None else time_us * 1e-6

    @property
    def step_host_s(self) -> float:
        """Host time of each pass that nothing overlaps, on the stack of a serving engine."""
        engine = self.engine
        return 0.0 if engine is None else engine.step_overhead_s.value

    def front_end_s(self, prompt_tokens: Tokens) -> Tokens:
        """Time of a request between its user and the scheduler of an engine; 0 elsewhere.

        Args:
            prompt_tokens: Of its prompt: a number, or an array of them.
        """
        if self.engine is None:
            return 0.0 * prompt_tokens
        from accelsim.catalog.engines import front_end

        return front_end().time_s(prompt_tokens)

    @property
    def engine(self) -> ServingEngine | None:
        """The engine whose stack runs a model that generates tokens."""
        if not self.workload.autoregressive:
            return None
        from accelsim.catalog.engines import engine_of

        return engine_of(self.stack.label)

    @property
    def parameters(self) -> Parameters | None:
        """Parameters of the device's class at the run's tier."""
        return tier_parameters(
            self.device,
            self.tier,
            sparse_weights=self.sparse_weights,
            heap=self.heap,
            threads=self.threads,
            maker=self._maker,
        )

    @property
    def _maker(self) -> KernelMaker | None:
        """The stack, where it serves language models with kernels of its own, and on any CPU."""
        stack, path = self.stack, self.stack_path
        if not stack.generation_only and self.device.device_class != "cpu":
            return None
        fused = tuple(path.fused_quantisation.items())
        return KernelMaker(stack.name, fused, stack.llama_cpp_files, path.stream_threads)

    @property
    def available_bytes(self) -> float:
        """Memory the run can allocate on its device."""
        return available_bytes(self.device, self.stack.memory_fraction)

    @property
    def provenance(self) -> Provenance:
        """Version of accelsim, and content of the device, the workload and the device's overlay."""
        fitted = {} if self.tier == "spec" else device_parts(self.device)
        parts = {"device": self.device} | workload_parts(self.workload) | fitted
        return Provenance(__version__, None, parts)

    def to_dict(self) -> Document:
        """Names and sizes, ready for JSON."""
        figures: Document = {
            "workload": self.workload.name,
            "device": self.device.name,
            "mode": self.mode,
            "batch": self.batch,
            "precision": self.precision.name,
            "compute_format": self.precision.compute.label,
            "weight_format": self.precision.weight.label,
            "kv_format": self.precision.kv_cache.label,
            "stack": self.stack.label,
            "execution": self.execution.value,
            "layout": self.layout or None,
            "seq_len": self.seq_len,
            "output_len": self.output_len,
            "image_size": self.image_size,
            "optimizer": self.optimizer.name if self.mode == "training" else None,
            "accumulation": self.accumulation,
            "recompute": self.recompute,
            "lora_rank": self.lora_rank,
            "document_len": self.document_len,
            "steps": self.steps,
            "images": self.images,
            "fused_attention": self.fused_attention,
            "sparse_weights": self.sparse_weights,
            "host": None if self.host is None else self.host.name,
            "tier": self.tier,
            "heap": self.heap,
            "threads": self.threads,
        }
        return figures | self._further_inputs()

    def _further_inputs(self) -> Document:
        """Names and sizes that few runs have."""
        figures: Document = {}
        if self.offload is not None:
            figures["offload"] = "auto" if self.offload.layers is None else self.offload.layers
        if self.learned is not None:
            figures["learned_runs"] = len(self.learned.runs)
        if self.precision.experts is not None:
            figures["expert_precision"] = self.precision.experts.name
        if self.device.power.set_limit_w is not None:
            figures["power_limit_w"] = self.device.power.set_limit_w
        if self.cluster is not None:
            ranks = {group.label: count for group, count in self.shard.ranks.items() if count > 1}
            figures |= {"cluster": self.cluster.name, "ranks": ranks}
        return figures


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


@frozen(eq=False)
class RunKey:
    """A run compared by what prices its rows, for costs that are kept."""

    run: ResolvedRun

    def _key(self) -> tuple[object, ...]:
        r = self.run
        identities = tuple(map(id, (r.workload, r.device, r.cluster, r.host, r.stack)))
        sizes = r.batch, r.seq_len, r.image_size, r.images, r.shard, r.lora_rank, r.document_len
        how = r.mode, r.layout, r.precision, r.execution, r.sparse_weights, r.fused_attention
        return identities, sizes, how, r.optimizer, r.tier, r.heap, r.threads

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RunKey) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


def device_parts(device: DeviceProfile) -> Document:
    """What a device's figures are made with, for `Provenance`: its profile and its overlay."""
    parts: Document = {"device": device}
    overlay = fitted_parameters(device.whole_name)
    if overlay is not None:
        fitted = sorted(overlay.parameters.items())
        parts["overlay"] = (overlay.device, overlay.date, overlay.data, overlay.rows, fitted)
    return parts


def workload_parts(workload: Workload) -> Document:
    """What tells a workload from another of its name, for `Provenance`."""
    return {"workload": partial(_content, workload)}


def _content(workload: Workload) -> tuple[object, ...]:
    captured = None if workload.captured is None else workload.document()
    return workload.name, workload.parameters, captured
