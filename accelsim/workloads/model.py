"""Workloads: a named model that lowers to operator graphs.

A catalogued model is a short YAML over a *family*: a function that writes its layers into a
`GraphBuilder` from shapes alone. A captured model carries the graph it was captured as. Both offer
the same three lowerings: the forward pass (all of an encoder, or the prefill of a decoder), one
decode step, and a training step.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from accelsim.dtype import Precision
from accelsim.errors import InvalidValueError
from accelsim.frozen import frozen
from accelsim.plain import Document
from accelsim.workloads.builder import GraphBuilder
from accelsim.workloads.cache import SequenceCache
from accelsim.workloads.graph import OperatorGraph
from accelsim.workloads.operator import Phase
from accelsim.workloads.row_writer import PassForm
from accelsim.workloads.sharding import WHOLE, Shard

if TYPE_CHECKING:
    from accelsim.workloads.capture.captured import CapturedModel


@frozen
class PassShape:
    """Sizes of one run.

    Attributes:
        batch: Samples or sequences.
        seq_len: New tokens per sequence (prefill: the prompt; decode: 1; encoder-decoders: the
            source); 0 where the model has no sequence.
        context_len: Tokens already cached (decode).
        target_len: Target tokens of an encoder-decoder (and, in decode, the source length is
            `source_len`).
        source_len: Encoder length an encoder-decoder attends to while decoding.
        image_size: Side of a square image; 0 uses the model's own.
    """

    batch: int = 1
    seq_len: int = 0
    context_len: int = 0
    target_len: int = 0
    source_len: int = 0
    image_size: int = 0


@frozen(eq=False)
class Lowered:
    """A graph with the model-wide counts its memory depends on.

    Attributes:
        graph: The operators.
        parameter_count: Trainable parameters.
        parameter_tensor_count: Tensors they live in (for per-tensor optimizer kernels).
        parameter_bytes: Bytes they are stored in.
        cache: What its layers keep of one sequence while it generates.
        folded: Further layers that a layer of the graph stands for, by its path.
    """

    graph: OperatorGraph
    parameter_count: int
    parameter_tensor_count: int
    parameter_bytes: float
    cache: SequenceCache = SequenceCache()
    folded: Mapping[str, int] = field(default_factory=dict)


#: A family: parameters model and the function that writes its layers.
#: Writes the layers of a family with some parameters for one pass.
LayerWriter = Callable[[GraphBuilder, Any, PassShape], None]


@frozen
class Family:
    """A model family.

    Attributes:
        name: Name used in workload files.
        parameters: Pydantic model of its YAML ``parameters``.
        write: Writes the layers into a builder; reads ``builder.phase`` (FORWARD, PREFILL or
            DECODE).
        autoregressive: Whether it has a decode phase.
        sequence: Whether `seq_len` applies.
        shards: Whether its layers can be split over ranks.
        image: Whether `image_size` applies.
        steps: Whether a result takes many passes, one per step.
    """

    name: str
    parameters: type[BaseModel]
    write: LayerWriter
    autoregressive: bool = False
    sequence: bool = False
    shards: bool = False
    image: bool = False
    steps: bool = False


FAMILIES: dict[str, Family] = {}


def family(
    name: str, parameters: type[BaseModel], *, image: bool = False, **traits: bool
) -> Callable[[LayerWriter], LayerWriter]:
    """Register a family; the decorated function writes its layers.

    Args:
        name: As of `Family`.
        parameters: As of `Family`.
        image: As of `Family`; true anyway where the parameters have an image size.
        **traits: Other attributes of `Family`.

    Raises:
        InvalidValueError: If the name is taken.
    """

    def register(write: LayerWriter) -> LayerWriter:
        if name in FAMILIES:
            raise InvalidValueError("family", name, "a name that is not registered yet")
        sized = image or "image_size" in parameters.model_fields
        FAMILIES[name] = Family(name, parameters, write, image=sized, **traits)
        return write

    return register


@frozen
class Published:
    """A published figure the model must agree with."""

    quantity: str  # "parameters" or "flop"
    value: float
    source: str
    shape: PassShape = field(default_factory=PassShape)
    tolerance_fraction: float = 0.005


@frozen(slots=False, eq=False)
class Workload:
    """A model and its default run.

    Attributes:
        name: Canonical name.
        title: Name for people.
        task: What it does ("image-classification", "text-generation", ...).
        family: Its registered family; None for captured modules.
        parameters: Validated family parameters.
        default: Sizes used where the caller names none.
        output_len: Default tokens generated per sequence; 0 for non-autoregressive models.
        aliases: Other names.
        published: Published figures with sources.
        captured: What was captured of a torch module; None for catalogued ones.
        note: What a reader should know.
        quantised: Precision its weights are published in; None where that is no quantised one.
        picture_encoder: The workload that makes tokens of the pictures in a prompt; None where it
            reads none.
        same_as: The workload that it has the architecture of; None where its file writes its own.
        stored_note: What its checkpoint's files hold besides; None where nothing.
    """

    name: str
    title: str
    task: str
    family: Family | None
    parameters: Any
    default: PassShape
    output_len: int = 0
    aliases: tuple[str, ...] = ()
    published: tuple[Published, ...] = ()
    captured: CapturedModel | None = field(default=None, repr=False)
    note: str | None = None
    quantised: Precision | None = None
    picture_encoder: str | None = None
    same_as: str | None = None
    stored_note: str | None = None

    @property
    def architecture(self) -> str:
        """The workload that its layers are written for: another's, or its own."""
        return self.same_as or self.name

    @property
    def notices(self) -> tuple[str, ...]:
        """What an answer about it says of it."""
        shared_architecture = self.same_as and f"{self.name} has the architecture of {self.same_as}"
        return tuple(filter(None, (shared_architecture, self.stored_note)))

    @property
    def has_experts(self) -> bool:
        """Whether it routes tokens to experts."""
        return getattr(self.parameters, "mixture", None) is not None

    @property
    def autoregressive(self) -> bool:
        """Whether the model generates token by token."""
        return self.family is not None and self.family.autoregressive

    def lower(
        self,
        shape: PassShape,
        precision: Precision,
        phase: Phase = Phase.FORWARD,
        *,
        fused_attention: bool = True,
        shard: Shard = WHOLE,
        is_training: bool = False,
        merges: bool = False,
        folds: bool = False,
        document_len: int = 0,
    ) -> Lowered:
        """Lower one pass.

        Args:
            shape: Sizes.
            precision: Dtypes.
            phase: FORWARD (whole model, training or encoders), PREFILL (fills a cache), DECODE (one
                token per sequence).
            fused_attention: False writes attention as scores, softmax and context.
            shard: The part of one rank; the whole model unless given.
            is_training: Whether a backward pass follows; modules are captured with it or without.
            merges: Whether products of one input are one product; captured modules stay as they
                are.
            folds: Whether the graph has only three of many equal layers; captured modules have all.
            document_len: Tokens of the documents packed into a sequence; 0 where it is one.

        Raises:
            InvalidValueError: If the sizes or the ranks do not fit the model.
        """
        form = PassForm(fused_attention, shard, is_training, merges, folds, document_len)
        return _lower(self, shape, precision, phase, form)

    def write(
        self, shape: PassShape, precision: Precision, phase: Phase, form: PassForm
    ) -> GraphBuilder:
        """The builder of one pass of a catalogued workload, its layers written.

        Raises:
            InvalidValueError: If the workload has no family, its family cannot be split, or the
                sizes or the ranks do not fit it.
        """
        if self.family is None:
            allowed = "a catalogued family or a captured module"
            raise InvalidValueError("workload", self.name, allowed)
        if not form.shard.is_whole and not self.family.shards:
            allowed = f"the whole model: {self.family.name} models are not split over ranks"
            raise InvalidValueError("shard", form.shard, allowed, "Give every rank a copy of it.")
        builder = GraphBuilder(precision, phase, form)
        self.family.write(builder, self.parameters, shape)
        return builder

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a captured workload as JSON that `accelsim.workload(path)` reads back.

        Raises:
            InvalidValueError: If the workload was not captured.
            OutputError: If the path exists or cannot be written.
        """
        from accelsim.workloads.capture.captured import save_document

        save_document(self.document(), path)

    def document(self) -> Document:
        """The JSON form of a captured workload.

        Raises:
            InvalidValueError: If the workload was not captured.
        """
        from accelsim.workloads.capture.captured import captured_document

        if self.captured is None:
            raise InvalidValueError("workload", self.name, "a captured workload")
        description = {"name": self.name, "title": self.title, "task": self.task, "note": self.note}
        return captured_document(self.captured, description)


@lru_cache(maxsize=256)
def _lower(
    workload: Workload,
    shape: PassShape,
    precision: Precision,
    phase: Phase,
    form: PassForm,
) -> Lowered:
    if workload.captured is not None:
        return _lower_captured(workload, workload.captured, shape, precision, phase, form)
    builder = workload.write(shape, precision, phase, form)
    cache = SequenceCache.of(builder.cached)
    return Lowered(builder.build(), *builder.parameter_totals, cache, builder.folded)


def _lower_captured(
    workload: Workload,
    model: CapturedModel,
    shape: PassShape,
    precision: Precision,
    phase: Phase,
    form: PassForm,
) -> Lowered:
    """A captured graph answers for its own sizes at any batch it is linear in."""
    from accelsim.workloads.capture.captured import captured_forward, stored_bytes

    if not form.shard.is_whole:
        raise InvalidValueError("shard", form.shard, "the whole model of a captured module")
    if phase is Phase.DECODE:
        raise InvalidValueError("phase", phase.label, "forward or prefill for a captured module")
    for name, size in asdict(shape).items():
        if size and name != "batch":
            allowed = (
                f"no value: {workload.name} has the sizes it was captured at, but for the batch"
            )
            remedy = "Capture it again with inputs of the size wanted."
            raise InvalidValueError(name, size, allowed, remedy)
    if model.fused_attention and not form.fused_attention:
        allowed = f"true, as {workload.name} was captured"
        remedy = "Capture again with fused_attention=False."
        raise InvalidValueError("fused_attention", False, allowed, remedy)
    graph = captured_forward(model, shape.batch, precision, phase)
    counts = model.parameter_count, model.parameter_tensor_count
    return Lowered(graph, *counts, stored_bytes(graph, counts[0], precision))
