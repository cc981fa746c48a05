"""Records the operators a torch module dispatches on the meta device.

`OperatorRecorder` is a dispatch mode: it sees every ATen operator of forward and backward below
autograd, runs it on shapes alone and appends its rows. Tensors are told apart by the storage behind
them, so views cost nothing, a transposed weight is still a weight, and a row waits for the last
writer of what it reads. The module path of a forward row is the innermost module running; a
backward row gets the path of the forward moment that made its autograd node, found by the node's
sequence number.

Values: small tensors computed from known inputs alone (masks, lengths, positions) are also computed
for real, so that code that looks at them (``.item()``, boolean indexing) still runs.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only

from accelsim.errors import CaptureError
from accelsim.plain import Document
from accelsim.workloads.capture.torch import (  # noqa: F401  (they register their formulas)
    aten_lookups,
    aten_reductions,
)
from accelsim.workloads.capture.torch.aten import FORMULAS, Call, Kernel, Operand
from accelsim.workloads.capture.torch.aten_memory import (
    CONTRACTION_MARKS,
    FREE,
    by_bytes,
    elementwise,
)
from accelsim.workloads.capture.torch.dispatch_rules import (
    REFUSED,
    UNKNOWABLE,
    Dispatch,
    as_laid_out,
    is_composite,
    is_mask,
    is_pointwise_name,
    main_dtype,
    scalar_draw,
    tensor_parts,
    wide_grouped_product,
)
from accelsim.workloads.capture.torch.meta_module import KNOWN_ELEMENTS, meta_like
from accelsim.workloads.capture.torch.operand_layout import with_runs
from accelsim.workloads.operator import IN_PLACE, OperatorKind, Phase

#: Task of the autograd engine where it does not run, and storage of what has none.
_OUTSIDE = -1
#: Rows from one report of progress to the next.
_ROWS_PER_REPORT = 32


@dataclass(slots=True)
class Row:
    """One operator row being recorded; tensors still apart, so that rows can be merged."""

    kernel: Kernel
    name: str
    path: str
    phase: Phase
    sources: set[int]
    saved_elements: float = 0.0  # at the policy's activation width
    saved_fixed_bytes: float = 0.0


@dataclass(slots=True)
class _Storage:
    """What is known of one block of memory; `handle` keeps its identity from being reused."""

    handle: object
    state: bool = False
    writer: int = -1
    saved: bool = False
    values: dict[tuple[object, ...], Tensor] = field(default_factory=dict)


def _identity(x: Tensor) -> int:
    """Identity of the memory behind a tensor."""
    number: int = x.untyped_storage()._cdata  # noqa: SLF001
    return number


def _moves_nothing(call: Dispatch, outputs: Sequence[Tensor]) -> bool:
    """Views, results in storage that was there before, and empty tensors."""
    if call.schema.is_mutable:
        return bool(call.inputs) and not call.inputs[0].numel()
    if not any(x.numel() for x in outputs):
        return True
    if not any(x.is_meta for x in (*call.inputs, *outputs)):
        return True  # arithmetic on host scalars
    return set(map(_identity, outputs)) <= set(map(_identity, call.inputs))


def _value_key(x: Tensor) -> tuple[object, ...]:
    return (x.storage_offset(), tuple(x.shape), x.stride(), x.dtype)


class OperatorRecorder(TorchDispatchMode):  # type: ignore[misc]
    """Records rows while it is active.

    Args:
        module: The module, on the meta device.
        name: Path of operators of the module itself rather than of a submodule.
        known_values: Meta tensors with their values.
        report: Called now and then with the rows so far and the module running.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        name: str,
        known_values: Iterable[tuple[Tensor, Tensor]] = (),
        *,
        report: Callable[[int, str], None] = lambda _rows, _path: None,
    ) -> None:
        super().__init__()
        self._report = report
        self.rows: list[Row] = []
        self.unknown: set[str] = set()
        self.root = name
        self._saved: list[tuple[int, float, float]] = []
        self._paths = {id(inner): path or name for path, inner in module.named_modules()}
        self._stack = [name]
        self._moments: list[tuple[int, str]] = [(-1, name)]
        self._storages: dict[int, _Storage] = {}
        self._storage_names: dict[int, str] = {}
        self._converted: dict[int, tuple[Tensor, Tensor]] = {}
        self._main_dtype = main_dtype(module)
        self.last_operator = ""
        self.failed = ""  # innermost module an exception left
        for path, tensor in (
            *module.named_parameters(remove_duplicate=False),
            *module.named_buffers(),
        ):
            self.belongs([tensor])
            self._storage_names.setdefault(_identity(tensor), path.rpartition(".")[0] or name)
        for twin, value in known_values:
            self._storage(twin).values[_value_key(twin)] = value.detach().clone()

    # -- paths and phases

    @contextmanager
    def tracking(self) -> Iterator[None]:
        """Follow which module is running and what autograd keeps."""
        from torch.nn.modules import module as hooks

        handles = (
            hooks.register_module_forward_pre_hook(self._enter),
            hooks.register_module_forward_hook(self._leave, always_call=True),
        )
        try:
            with torch.autograd.graph.saved_tensors_hooks(self._save, lambda x: x):
                yield
        finally:
            for handle in handles:
                handle.remove()

    @property
    def path(self) -> str:
        """Module path of an operator dispatched now."""
        is_outside = self._stack == [self.root]
        node = torch._C._current_autograd_node() if is_outside else None  # noqa: SLF001
        return self._stack[-1] if node is None else self._node_path(node)

    @property
    def phase(self) -> Phase:
        """BACKWARD while the autograd engine runs."""
        return Phase.FORWARD if torch._C._current_graph_task_id() == _OUTSIDE else Phase.BACKWARD  # noqa: SLF001

    def _node_path(self, node: torch.autograd.graph.Node) -> str:
        variable = getattr(node, "variable", None)
        if variable is not None:
            return self._storage_names.get(_identity(variable), self.root)
        later = bisect_right(self._moments, node._sequence_nr(), key=lambda moment: moment[0])  # noqa: SLF001
        return self._moments[max(later - 1, 0)][1]

    def _enter(self, module: torch.nn.Module, _arguments: object) -> None:
        unnamed = f"{self._stack[-1]}.{type(module).__name__}"
        self._stack.append(self._paths.get(id(module), unnamed))
        self._mark()

    def _leave(self, _module: torch.nn.Module, _arguments: object, _output: object) -> None:
        left_path = self._stack.pop()
        if not self.failed and sys.exc_info()[1] is not None:
            self.failed = left_path
        self._mark()

    def _mark(self) -> None:
        self._moments.append((torch.autograd._get_sequence_nr(), self._stack[-1]))  # noqa: SLF001

    def _save(self, x: Tensor) -> Tensor:
        """Count a tensor autograd keeps, once per storage, at the row that wrote it."""
        if x.layout is not torch.strided:
            return x
        storage = self._storage(x)
        if storage.state or storage.saved or self.phase is Phase.BACKWARD:
            return x
        storage.saved = True
        size_bytes = x.untyped_storage().nbytes()
        is_scaled = x.dtype is self._main_dtype
        amounts = (size_bytes / x.element_size(), 0.0) if is_scaled else (0.0, size_bytes)
        self._saved.append((max(storage.writer, 0), *amounts))
        return x

    def finish(self) -> None:
        """Hand what autograd kept to the rows that wrote it; the model's inputs go to the first
        row.
        """
        for number, elements, fixed_bytes in self._saved:
            if number < len(self.rows):
                self.rows[number].saved_elements += elements
                self.rows[number].saved_fixed_bytes += fixed_bytes
        self._saved.clear()

    # -- tensors

    def _storage(self, x: Tensor) -> _Storage:
        storage = self._storages.get(_identity(x))
        if storage is None:
            storage = self._storages[_identity(x)] = _Storage(x.untyped_storage())
        return storage

    def belongs(self, tensors: Iterable[Tensor]) -> None:
        """Say that tensors belong to the model: weights that no module has registered."""
        for x in tensors:
            self._storage(x).state = True

    def operand(self, x: Tensor) -> Operand:
        """Describe a tensor."""
        location = (tuple(x.shape), x.stride(), _identity(x), x.storage_offset())
        is_scaled, is_state = x.dtype is self._main_dtype, self._storage(x).state
        return Operand(*location, x.element_size(), is_scaled, is_state)

    def operands(self, *tensors: Tensor) -> tuple[Operand, ...]:
        """Describe several tensors."""
        return tuple(map(self.operand, tensors))

    def to_meta(self, x: Tensor) -> Tensor:
        """The meta twin of a real tensor; a small one's value is remembered."""
        if x.is_meta:
            return x
        converted = self._converted.get(id(x))
        if converted is None:
            twin = meta_like(x)
            converted = self._converted[id(x)] = (x, twin)
            if x.numel() <= KNOWN_ELEMENTS:
                self._storage(twin).values[_value_key(twin)] = x.detach().clone()
        return converted[1]

    def value_of(self, x: Tensor) -> Tensor | None:
        """The value of a tensor, if it follows from known inputs."""
        if not x.is_meta:
            return x
        return self._storage(x).values.get(_value_key(x))

    # -- dispatch

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run one operator on shapes and record it."""
        name = func._schema.name.removeprefix("aten::")  # noqa: SLF001
        keywords = dict(kwargs or {})
        self.last_operator = str(func)
        if name not in FORMULAS and is_composite(func):
            with self:
                result = func.decompose(*args, **keywords)
            if result is not NotImplemented:
                return result
        if name in REFUSED:
            raise CaptureError(f"{func} in {self.path!r} {REFUSED[name]}")
        call = self._on_meta(name, func, args, keywords)
        values = self._values(call)
        output = self._run(call, values)
        self._remember(call, output, values)
        self._record(call, output)
        return output

    def _on_meta(
        self, name: str, overload: OpOverload, args: tuple[Any, ...], keywords: Document
    ) -> Dispatch:
        """A call with all tensors on the meta device; scalars in CPU tensors stay, as torch lets
        them mix.
        """
        args, keywords = tree_map_only(
            Tensor, lambda x: self.to_meta(x) if x.dim() else x, (args, keywords)
        )
        if any(argument.name == "device" for argument in overload._schema.arguments):  # noqa: SLF001
            keywords["device"] = torch.device("meta")
            if keywords.get("pin_memory"):
                keywords["pin_memory"] = False
        return Dispatch(name, overload, args, keywords, tensor_parts((args, keywords)))

    def _values(self, call: Dispatch) -> object:
        """The operator's real result where all its inputs are known and small; None otherwise."""
        if call.name in {"rand", "randn"}:
            return scalar_draw(call.name, call.args[0])
        if torch.Tag.nondeterministic_seeded in call.overload.tags or call.name in UNKNOWABLE:
            return None
        values = {id(x): self.value_of(x) for x in call.inputs}
        if any(x is None for x in values.values()) or call.is_large:
            return None
        args, keywords = tree_map_only(Tensor, lambda x: values[id(x)], (call.args, call.keywords))
        if "device" in keywords:
            keywords["device"] = torch.device("cpu")
        try:
            return call.overload(*args, **keywords)
        except (RuntimeError, NotImplementedError, TypeError, IndexError):
            return None

    def _run(self, call: Dispatch, values: object) -> object:
        """Run on shapes; where the result's size is data, take it from the known value."""
        tags = call.overload.tags
        if torch.Tag.dynamic_output_shape in tags and call.is_sized_by_data:
            if values is not None:
                return tree_map_only(Tensor, self.to_meta, values)
            call = self._mask_to_index(call)
        elif torch.Tag.data_dependent_output in tags:
            if values is not None:
                return values
            raise self._depends_on_data(call)
        return self._shapes(call)

    def _shapes(self, call: Dispatch) -> object:
        try:
            return as_laid_out(call, call.overload(*call.args, **call.keywords))
        except (NotImplementedError, RuntimeError):
            if call.name == "_grouped_mm" and call.args[0].dtype is not torch.bfloat16:
                return wide_grouped_product(call)
            if all(x.is_meta for x in call.inputs):
                raise
        args, keywords = tree_map_only(Tensor, self.to_meta, (call.args, call.keywords))
        return call.overload(*args, **keywords)

    def _mask_to_index(self, call: Dispatch) -> Dispatch:
        """Boolean indices with known values become integer indices."""
        if call.name != "index":
            raise self._depends_on_data(call)
        indices: list[Tensor | None] = []
        for index in call.args[1]:
            if not is_mask(index):
                indices.append(index)
                continue
            mask = self.value_of(index)
            if mask is None:
                raise self._depends_on_data(call)
            indices.extend(map(self.to_meta, mask.nonzero(as_tuple=True)))
        return replace(call, args=(call.args[0], indices))

    def _depends_on_data(self, call: Dispatch) -> CaptureError:
        return CaptureError(
            f"{call.overload} in {self.path!r} looks at a value or makes a size that depends on "
            "data the capture does not have. Pass that input as a real (small) tensor, or replace "
            "the branch by one of fixed shape."
        )

    def _remember(self, call: Dispatch, output: object, values: object) -> None:
        """Keep known values beside their meta tensors; forget those an unknown write replaced."""
        if values is None:
            for x in call.mutated:
                self._storage(x).values.clear()
            return
        for x, value in zip(tree_flatten(output)[0], tree_flatten(values)[0], strict=False):
            if isinstance(x, Tensor) and x.is_meta and isinstance(value, Tensor):
                self._storage(x).values[_value_key(x)] = value

    # -- rows

    def _record(self, call: Dispatch, output: object) -> None:
        outputs = tensor_parts(output)
        if call.name in FREE or _moves_nothing(call, outputs):
            return
        arguments = tree_map_only(
            Tensor, lambda x: self.operand(tensor_parts(x)[0]), call.arguments
        )
        written = outputs or call.mutated
        priced = Call(call.name, arguments, tuple(map(self.operand, written)))
        self.add(self._price(call.overload, priced), call.name.rstrip("_"))

    def _price(self, overload: OpOverload, call: Call) -> Sequence[Kernel]:
        price = FORMULAS.get(call.name) or FORMULAS.get(call.name.rstrip("_"))
        if price is not None:
            return price(call)
        name = call.name.lower()
        is_pointwise = torch.Tag.pointwise in overload.tags
        if not is_pointwise and any(mark in name for mark in CONTRACTION_MARKS):
            raise CaptureError(
                f"{overload} in {self.path!r} is matrix arithmetic with no formula. "
                "Write it with matmul, convolution or scaled_dot_product_attention, or register a "
                "formula for it."
            )
        if is_pointwise or name.startswith("_foreach") or is_pointwise_name(name):
            return elementwise(call)
        self.unknown.add(overload._schema.name.replace("::", "."))  # noqa: SLF001
        return by_bytes(call)

    def add(self, kernels: Iterable[Kernel], name: str) -> Row:
        """Append rows for the kernels of one call, in order; returns the last of them."""
        for index, kernel in enumerate(kernels):
            number = len(self.rows)
            sources = self._sources(kernel)
            if index and any(x.storage == _OUTSIDE for x in kernel.reads):
                sources.add(number - 1)
            label = self._label(kernel, name)
            self.rows.append(Row(with_runs(kernel), label, self.path, self.phase, sources))
            added = kernel.waits if kernel.kind is OperatorKind.SCATTER else ()
            for storage in self._known_storages(*kernel.writes, *added):
                storage.writer = number
            if number % _ROWS_PER_REPORT == 0:
                self._report(number, self.path)
        return self.rows[-1]

    def _known_storages(self, *operands: Operand) -> Iterator[_Storage]:
        """What is known of the memory behind operands; none for those inside a fused operator."""
        storages = (self._storages.get(x.storage) for x in operands)
        return (storage for storage in storages if storage is not None)

    def _label(self, kernel: Kernel, name: str) -> str:
        """A row's name: with a mark where an elementwise operator or a copy overwrites what a row
        or the model itself has made, or rows are added to it.
        """
        label = f"{name}.{kernel.suffix}" if kernel.suffix else name
        targets: tuple[Operand, ...] = ()
        if kernel.kind is OperatorKind.SCATTER and not kernel.writes:
            targets = kernel.waits[:1]
        elif kernel.kind in {OperatorKind.ELEMENTWISE, OperatorKind.COPY}:
            targets = kernel.writes[:1]
        storages = self._known_storages(*targets)
        is_in_place = any(storage.writer >= 0 or storage.state for storage in storages)
        return label + IN_PLACE * is_in_place

    def write(self, x: Tensor) -> None:
        """Say that the last row wrote a tensor too."""
        self._storage(x).writer = len(self.rows) - 1

    def _sources(self, kernel: Kernel) -> set[int]:
        storages = self._known_storages(*kernel.reads, *kernel.waits)
        return {storage.writer for storage in storages if storage.writer >= 0}
