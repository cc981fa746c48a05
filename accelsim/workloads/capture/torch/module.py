"""Captures any ``torch.nn.Module`` as a workload, without allocating its weights.

The module is copied (or built) on the meta device, run once under a dispatch mode and, for
training, differentiated; every operator that autograd or the forward pass launches becomes a row.
Two further captures at twice and three times the batch show whether every number grows linearly, so
that the workload answers for any batch.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from accelsim.dtype import Precision
from accelsim.dtype import precision as named_precision
from accelsim.errors import AccelsimError, CaptureError, InvalidValueError, MissingDependencyError
from accelsim.workloads.capture.captured import (
    BYTE_COLUMNS,
    BatchStep,
    CapturedGraph,
    CapturedModel,
    CapturedPass,
    compute_dtypes,
    weight_widths,
)
from accelsim.workloads.graph import OperatorGraph, compressed_rows
from accelsim.workloads.model import PassShape, Workload
from accelsim.workloads.operator import MAX_DIMENSIONS
from accelsim.workloads.training import optimizer as update_rule

if TYPE_CHECKING:
    import torch

    from accelsim.workloads.capture.torch.meta_module import Inputs, Known
    from accelsim.workloads.capture.torch.recorder import OperatorRecorder, Row

#: Told of operators so far, operators expected, and the module running.
Progress = Callable[[float, float | None, str], None]


def capture(
    module: torch.nn.Module | Callable[[], Any],
    example_inputs: Any = None,
    training: bool = False,
    optimizer: str | None = None,
    *,
    name: str | None = None,
    precision: str | Precision = "fp32",
    fused_attention: bool = True,
    merge_attention: bool = True,
    batch_dimension: int | None = 0,
    progress: Progress | None = None,
) -> Workload:
    """Capture a module as a workload, which saves to JSON and needs torch no more.

    Args:
        module: A module, which is not altered, or a function that makes one on the meta device,
            without memory; it may return ``(module, example_inputs)``, or keywords after them.
        example_inputs: A tensor, a tuple of arguments, or a mapping of keyword arguments; real or
            meta. Small real tensors keep their values (lengths, masks). Where None, those that the
            module names itself (``example_input_array``, ``dummy_inputs``), else one sample as its
            first layer takes it: a row, 128 tokens, or an image of 224 x 224 pixels.
        training: Capture a training step too, forward and backward. The outputs' gradients arrive
            dense; an output with a ``loss`` is differentiated from there.
        optimizer: Update rule of training: sgd, momentum, adam, adamw or lamb; adamw unless given.
        name: Name of the workload; the module's class unless given.
        precision: Of the byte columns; lowering rescales to any other.
        fused_attention: One operator per attention; False leaves products and softmax apart.
        merge_attention: With it, one operator also where the module writes products and softmax
            itself; False leaves those apart, as eager execution runs them.
        batch_dimension: Axis of every input that holds the batch, or None.
        progress: Called now and then with operators done, those expected or None, and the module.

    Raises:
        MissingDependencyError: If torch is not installed.
        CaptureError: If the module cannot be captured, naming the submodule or operator.
    """
    _require_torch()
    from accelsim.workloads.capture.torch.meta_module import batch_size, meta_copy, resolve

    rule = None if not training and optimizer is None else update_rule(optimizer or "adamw").name
    policy = named_precision(precision)
    if training and not policy.trainable:
        raise InvalidValueError("precision", policy.name, "a precision that can be trained in")
    subject, inputs = resolve(module, example_inputs)
    label, merged = type(subject).__name__, fused_attention and merge_attention
    runs = [
        _Run(*meta_copy(subject), label, mode, policy, fused_attention, merged, progress)
        for mode in ((False, True) if training else (False,))
    ]
    batch = batch_size(inputs, batch_dimension)
    forward, *step = [_captured_pass(run, inputs, batch, batch_dimension or 0) for run in runs]
    trained, counts = step[0] if step else None, _parameter_counts(subject)
    model = CapturedModel(forward, trained, rule, policy, *counts, fused_attention=fused_attention)
    title, default = name or label, PassShape(batch=forward.graph.batch)
    note = _unknown_note(runs)
    return Workload(title, title, "captured", None, None, default, captured=model, note=note)


def _unknown_note(runs: Sequence[_Run]) -> str | None:
    """Operators that nothing but the bytes is known of; None where there are none."""
    unknown = sorted(set[str]().union(*(run.unknown for run in runs)))
    return f"costed by bytes only: {', '.join(unknown)}" if unknown else None


def _parameter_counts(module: torch.nn.Module) -> tuple[int, int, int]:
    """Parameters, tensors they live in, and parameters that training updates."""
    sizes = [(x.numel(), x.requires_grad) for x in module.parameters()]
    return sum(n for n, _ in sizes), len(sizes), sum(n for n, trainable in sizes if trainable)


def capture_target(
    target: str,
    example_inputs: Any = None,
    training: bool = False,
    optimizer: str | None = None,
    **options: Any,
) -> Workload:
    """Capture what ``"package.module:factory"`` makes.

    Args:
        target: An importable module and the name of a function without arguments, or of a
            ``nn.Module`` or a class that needs no arguments. It gives a module or ``(module,
            example_inputs)``.
        example_inputs: Inputs, if the factory does not give them.
        training: As in `capture`.
        optimizer: As in `capture`.
        **options: Other keywords of `capture`.

    Raises:
        CaptureError: If the target cannot be imported or called, or what it makes cannot be
            captured.
        MissingDependencyError: If torch is not installed.
    """
    _require_torch()
    return capture(_import_target(target), example_inputs, training, optimizer, **options)


def _import_target(target: str) -> Any:
    module_name, separator, attribute = target.partition(":")
    identifiers = (*module_name.split("."), *attribute.split("."))
    if not separator or not all(identifier.isidentifier() for identifier in identifiers):
        raise CaptureError(f"target = {target!r} is not allowed: expected package.module:factory.")
    working_directory = str(Path.cwd())
    sys.path.insert(0, working_directory)
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # a script may exit as it is imported
        reason = f"{module_name} cannot be imported ({type(error).__name__}: {error})"
        raise CaptureError(f"target = {target!r}: {reason}.") from error
    finally:
        if working_directory in sys.path:
            sys.path.remove(working_directory)
    try:
        return attrgetter(attribute)(module)
    except AttributeError:
        reason = f"{module_name} has no {attribute!r}. Name a function or module in it"
        raise CaptureError(f"target = {target!r}: {reason}.") from None


def _require_torch() -> None:
    try:
        importlib.import_module("torch")
    except ImportError:
        raise MissingDependencyError("torch", "torch") from None


# -- runs


@dataclass
class _Run:
    """Runs one module on shapes, as often as asked."""

    module: torch.nn.Module
    known_values: Known
    label: str
    training: bool
    policy: Precision
    fused_attention: bool
    merge_attention: bool
    progress: Progress | None
    row_counts: list[int] = field(default_factory=list)  # of each pass so far
    unknown: set[str] = field(default_factory=set)  # operators nothing but the bytes is known of

    def __post_init__(self) -> None:
        self.module.train(self.training)

    def rows(self, inputs: Inputs) -> list[Row]:
        """Operator rows of one pass."""
        from accelsim.workloads.capture.torch.attention_pattern import merge_attention

        recorder = self._record(inputs)
        if not recorder.rows:
            raise CaptureError(f"{self.label} launches no operator: there is nothing to capture.")
        self.unknown |= recorder.unknown
        self.row_counts.append(len(recorder.rows))
        return merge_attention(recorder.rows) if self.merge_attention else recorder.rows

    def _record(self, inputs: Inputs) -> OperatorRecorder:
        import torch

        from accelsim.workloads.capture.torch.intercept import Interceptor
        from accelsim.workloads.capture.torch.meta_module import AcceleratorOnMeta, meta_inputs
        from accelsim.workloads.capture.torch.recorder import OperatorRecorder

        (args, keywords), values = meta_inputs(inputs)
        recorder = OperatorRecorder(
            self.module,
            self.label,
            [*self.known_values, *values],
            report=self._report,
        )
        self._clear_gradients()
        interceptor = Interceptor(recorder, fused_attention=self.fused_attention)
        try:
            with (
                torch.set_grad_enabled(self.training),
                recorder.tracking(),
                interceptor.active(),
                AcceleratorOnMeta(),
                recorder,
            ):
                output = self.module(*args, **keywords)
                if self.training:
                    _differentiate(output, recorder)
            recorder.finish()
        except AccelsimError:
            raise
        except Exception as error:
            raise _explained(error, recorder) from error
        finally:
            self._clear_gradients()
        return recorder

    def _report(self, rows: int, path: str) -> None:
        """Three passes at three batches are usual, all of as many rows."""
        if self.progress is not None:
            passes = max(3, len(self.row_counts) + 1)
            total = passes * self.row_counts[0] if self.row_counts else None
            self.progress(sum(self.row_counts) + rows, total, path)

    def _clear_gradients(self) -> None:
        for x in self.module.parameters():
            x.grad = None


def _explained(error: Exception, recorder: OperatorRecorder) -> CaptureError:
    """A failure inside the module, with where it happened."""
    from accelsim.workloads.capture.torch.meta_module import brief

    path, operator, reason = recorder.failed or recorder.path, recorder.last_operator, brief(error)
    remedy = (
        "Check the shapes of example_inputs; code that reads values, calls numpy or C++ "
        "extensions must be replaced by torch operators of fixed shape."
    )
    if operator.startswith(("quantized", "aten.quantize")):
        remedy = "Capture the float module, and estimate it with precision int8 or int4."
    elif "flexattention" in reason.lower().replace("_", ""):  # a device alone has a kernel of it
        reason = "flex_attention runs on a device alone, and capture has none"
        remedy = (
            "Call scaled_dot_product_attention instead, with is_causal=True for a causal "
            "mask: it costs the same."
        )
    last = f"last operator {operator or 'none'}"
    return CaptureError(f"{path!r} cannot be captured: {reason} ({last}). {remedy}")


def _differentiate(output: Any, recorder: OperatorRecorder) -> None:
    """Run backward from the loss, or from every differentiable output with a dense gradient."""
    import torch

    from accelsim.workloads.capture.torch.meta_module import tensors_in

    is_mapping = isinstance(output, Mapping)
    loss = output.get("loss") if is_mapping else getattr(output, "loss", None)
    values = list(output.values()) if is_mapping else output
    if not is_mapping and hasattr(output, "__dataclass_fields__"):
        values = [getattr(output, name) for name in output.__dataclass_fields__]
    tensors = tensors_in(loss if isinstance(loss, torch.Tensor) else values)
    roots = [x for x in tensors if x.requires_grad]
    if not roots:
        raise CaptureError(
            f"{recorder.path!r}: no output depends on a trainable parameter. Return a float "
            f"tensor (or an object with a loss) and leave requires_grad on."
        )
    torch.autograd.backward(roots, [torch.empty_like(x) for x in roots])


# -- rows to columns


def _graph(rows: Sequence[Row], policy: Precision, batch: int) -> CapturedGraph:
    """Columns at the policy's widths, and the part of each byte column that keeps its width."""
    count = len(rows)
    dims = np.zeros((count, MAX_DIMENSIONS), dtype=np.int64)
    follows, fixed = np.zeros((2, count, len(BYTE_COLUMNS)))
    for number, row in enumerate(rows):
        dims[number, : len(row.kernel.dims)] = row.kernel.dims
        follows[number], fixed[number] = _traffic(row)
    kind = np.array([int(row.kernel.kind) for row in rows], dtype=np.int16)
    paths = tuple(row.path for row in rows)
    widths = np.full(follows.shape, policy.activation.bytes)
    widths[:, BYTE_COLUMNS.index("weight_bytes")] = weight_widths(kind, paths, policy)
    bytes_ = follows * widths + fixed
    offset, dependency = compressed_rows([sorted(row.sources) for row in rows])
    graph = OperatorGraph(
        kind=kind,
        dims=dims,
        dtype=compute_dtypes(kind, paths, policy),
        phase=np.array([int(row.phase) for row in rows], dtype=np.int8),
        flop=np.array([row.kernel.flop for row in rows], dtype=np.float64),
        **{column: bytes_[:, index].copy() for index, column in enumerate(BYTE_COLUMNS)},
        name=tuple(row.name for row in rows),
        path=paths,
        dependency_offset=offset,
        dependency=dependency,
    )
    return CapturedGraph(graph, batch, fixed, None)


def _traffic(row: Row) -> tuple[list[float], list[float]]:
    """Elements that follow the precision and bytes that do not: read, written, of weights,
    saved.
    """
    follows = [row.kernel.gathered, row.kernel.scattered, 0.0, row.saved_elements]
    fixed = [0.0, 0.0, 0.0, row.saved_fixed_bytes]
    read_before = set[object]()
    moved = [(x.elements, 1, x) for x in row.kernel.writes]
    for x in row.kernel.reads:
        key = (x.storage, x.offset, x.shape)
        if key not in read_before or x.storage < 0:
            moved.append((x.distinct, 2 if x.state else 0, x))
        read_before.add(key)
    for elements, column, x in moved:
        if x.scaled:
            follows[column] += elements
        else:
            fixed[column] += elements * x.element_bytes
    return follows, fixed


def _captured_pass(run: _Run, inputs: Inputs, batch: int | None, dimension: int) -> CapturedPass:
    """One pass with its growth per batch; where the captured batch is special, rows from twice the
    batch beside it.
    """
    from accelsim.workloads.capture.torch.meta_module import scaled_inputs

    unit = batch or 1

    @cache
    def at(factor: int) -> CapturedGraph:
        rows = run.rows(scaled_inputs(inputs, unit, dimension, factor))
        return _graph(rows, run.policy, factor * unit)

    captured = at(1)
    if batch is None:
        return CapturedPass(captured, None)
    try:
        step = _linear_step(captured, at(2), at(3))
        if step is not None:
            return CapturedPass(replace(captured, batch_step=step), None)
        step = _linear_step(at(2), at(3), at(4))
    except AccelsimError:
        return CapturedPass(captured, None)
    return CapturedPass(captured, None if step is None else replace(at(2), batch_step=step))


def _linear_step(a: CapturedGraph, b: CapturedGraph, c: CapturedGraph) -> BatchStep | None:
    """Growth from `a` to `b`, if that from `b` to `c` is the same."""
    if not _same_structure(a.graph, b.graph) or not _same_structure(b.graph, c.graph):
        return None
    growth, later = (
        {name: column - before.columns[name] for name, column in after.columns.items()}
        for before, after in ((a, b), (b, c))
    )
    is_linear = all(np.array_equal(column, later[name]) for name, column in growth.items())
    return BatchStep(b.batch - a.batch, growth) if is_linear else None


def _same_structure(a: OperatorGraph, b: OperatorGraph) -> bool:
    columns = ("kind", "phase", "path", "dependency")
    alike = (np.array_equal(getattr(a, name), getattr(b, name)) for name in columns)
    return len(a) == len(b) and all(alike)
