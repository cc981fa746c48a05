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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only

from accelsim.errors import CaptureError
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
    as_laid_out,
    data_sized,
    is_composite,
    is_pointwise_name,
    main_dtype,
    scalar_draw,
    tensor_arguments,
    tensor_parts,
    too_large,
    wide_grouped_product,
)
from accelsim.workloads.capture.torch.meta_module import KNOWN_ELEMENTS, tensors_in
from accelsim.workloads.capture.torch.operand_layout import with_runs
from accelsim.workloads.operator import IN_PLACE, OperatorKind, Phase

_OUTSIDE = -1
#: Rows between two words of progress.
_TOLD_EVERY = 32


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

    handle: Any
    state: bool = False
    writer: int = -1
    saved: bool = False
    values: dict[Any, Tensor] = field(default_factory=dict)


def _identity(x: Tensor) -> int:
    """Identity of the memory behind a tensor."""
    number: int = x.untyped_storage()._cdata  # noqa: SLF001
    return number


def _value_key(x: Tensor) -> tuple[Any, ...]:
    return (x.storage_offset(), tuple(x.shape), x.stride(), x.dtype)


class OperatorRecorder(TorchDispatchMode):  # type: ignore[misc]
    """Records rows while it is active.

    Args:
        module: The module, on the meta device.
        name: Path of operators of the module itself rather than of a submodule.
        known: Meta tensors with their values.
        told: Called now and then with the rows so far and the module running.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        name: str,
        known: Iterable[tuple[Tensor, Tensor]] = (),
        *,
        told: Callable[[int, str], None] = lambda _rows, _path: None,
    ) -> None:
        super().__init__()
        self._told = told
        self.rows: list[Row] = []
        self.unknown: set[str] = set()
        self.root = name
        self._kept: list[tuple[int, float, float]] = []
        self._paths = {id(part): path or name for path, part in module.named_modules()}
        self._stack: list[str] = []
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
        for twin, value in known:
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
            with torch.autograd.graph.saved_tensors_hooks(self._keep, lambda x: x):
                yield
        finally:
            for handle in handles:
                handle.remove()

    @property
    def path(self) -> str:
        """Module path of an operator dispatched now."""
        if self._stack:
            return self._stack[-1]
        node = torch._C._current_autograd_node() if self.phase is Phase.BACKWARD else None  # noqa: SLF001
        return self.root if node is None else self._node_path(node)

    @property
    def phase(self) -> Phase:
        """BACKWARD while the autograd engine runs."""
        return Phase.FORWARD if torch._C._current_graph_task_id() == _OUTSIDE else Phase.BACKWARD  # noqa: SLF001

    def _node_path(self, node: Any) -> str:
        variable = getattr(node, "variable", None)
        if variable is not None:
            return self._storage_names.get(_identity(variable), self.root)
        moment = bisect_right(self._moments, node._sequence_nr(), key=lambda entry: entry[0])  # noqa: SLF001
        return self._moments[max(moment - 1, 0)][1]

    def _enter(self, module: torch.nn.Module, _arguments: Any) -> None:
        parent = self._stack[-1] if self._stack else self.root
        self._stack.append(self._paths.get(id(module), f"{parent}.{type(module).__name__}"))
        self._mark()

    def _leave(self, _module: torch.nn.Module, _arguments: Any, _output: Any) -> None:
        if self._stack:
            left = self._stack.pop()
            if not self.failed and sys.exc_info()[1] is not None:
                self.failed = left
        self._mark()

    def _mark(self) -> None:
        self._moments.append(
            (torch.autograd._get_sequence_nr(), self._stack[-1] if self._stack else self.root)  # noqa: SLF001
        )

    def _keep(self, x: Tensor) -> Tensor:
        """Count a tensor autograd keeps, once per storage, at the row that wrote it."""
        if x.layout is not torch.strided:
            return x
        storage = self._storage(x)
        if storage.state or storage.saved or self.phase is Phase.BACKWARD:
            return x
        storage.saved = True
        size = x.untyped_storage().nbytes()
        scaled = x.dtype is self._main_dtype
        kept = (size / x.element_size(), 0.0) if scaled else (0.0, size)
        self._kept.append((max(storage.writer, 0), *kept))
        return x

    def finish(self) -> None:
        """Hand what autograd kept to the rows that wrote it; the model's inputs go to the first
        row.
        """
        for number, elements, fixed_bytes in self._kept:
            if number < len(self.rows):
                self.rows[number].saved_elements += elements
                self.rows[number].saved_fixed_bytes += fixed_bytes
        self._kept.clear()

    # -- tensors

    def _storage(self, x: Tensor) -> _Storage:
        known = self._storages.get(_identity(x))
        if known is None:
            known = self._storages[_identity(x)] = _Storage(x.untyped_storage())
        return known

    def belongs(self, tensors: Iterable[Tensor]) -> None:
        """Say that tensors belong to the model: weights that no module has registered."""
        for x in tensors:
            self._storage(x).state = True

    def operand(self, x: Tensor) -> Operand:
        """Describe a tensor."""
        place = (tuple(x.shape), x.stride(), _identity(x), x.storage_offset(), x.element_size())
        return Operand(*place, x.dtype is self._main_dtype, self._storage(x).state)

    def to_meta(self, x: Tensor) -> Tensor:
        """The meta twin of a real tensor; a small one's value is remembered."""
        if x.is_meta:
            return x
        converted = self._converted.get(id(x))
        if converted is None:
            twin = torch.empty_strided(tuple(x.shape), x.stride(), dtype=x.dtype, device="meta")
            converted = self._converted[id(x)] = (x, twin)
            if x.numel() <= KNOWN_ELEMENTS:
                self._storage(twin).values[_value_key(twin)] = x.detach().clone()
        return converted[1]

    def known(self, x: Tensor) -> Tensor | None:
        """The value of a tensor, if it follows from known inputs."""
        if not x.is_meta:
            return x
        return self._storage(x).values.get(_value_key(x))

    # -- dispatch

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run one operator on shapes and record it."""
        name = func._schema.name.removeprefix("aten::")  # noqa: SLF001
        self.last_operator = str(func)
        if name not in FORMULAS and is_composite(func):
            with self:
                result = func.decompose(*args, **dict(kwargs or {}))
            if result is not NotImplemented:
                return result
        if name in REFUSED:
            raise CaptureError(f"{func} in {self.path!r} {REFUSED[name]}")
        args, keywords = self._prepare(func, args, dict(kwargs or {}))
        inputs = tensor_parts((args, keywords))
        values = self._values(func, name, args, keywords, inputs)
        output = self._run(func, args, keywords, values)
        self._remember(func, output, values, inputs)
        self._record(func, name, args, keywords, inputs, output)
        return output

    def _prepare(
        self, func: Any, args: tuple[Any, ...], keywords: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Everything on the meta device; scalars in CPU tensors stay, as torch lets them mix."""
        if any(x.dim() and not x.is_meta for x in tensors_in((args, keywords))):
            args, keywords = tree_map_only(
                Tensor, lambda x: self.to_meta(x) if x.dim() else x, (args, keywords)
            )
        if any(argument.name == "device" for argument in func._schema.arguments):  # noqa: SLF001
            keywords["device"] = torch.device("meta")
            if keywords.get("pin_memory"):
                keywords["pin_memory"] = False
        return args, keywords

    def _to_meta(self, values: Any) -> Any:
        """Nested containers with every tensor on the meta device."""
        return tree_map_only(Tensor, self.to_meta, values)

    def _values(
        self,
        func: Any,
        name: str,
        args: tuple[Any, ...],
        keywords: dict[str, Any],
        inputs: Sequence[Tensor],
    ) -> Any:
        """The operator's real result where all its inputs are known and small; None otherwise."""
        if name in {"rand", "randn"} and args:
            return scalar_draw(name, args[0])
        if torch.Tag.nondeterministic_seeded in func.tags or name in UNKNOWABLE:
            return None
        known = {id(x): self.known(x) for x in inputs}
        if any(value is None for value in known.values()) or too_large(args, keywords, inputs):
            return None
        real_args, real_keywords = tree_map_only(Tensor, lambda x: known[id(x)], (args, keywords))
        if "device" in real_keywords:
            real_keywords["device"] = torch.device("cpu")
        try:
            return func(*real_args, **real_keywords)
        except (RuntimeError, NotImplementedError, TypeError, IndexError):
            return None

    def _run(self, func: Any, args: tuple[Any, ...], keywords: dict[str, Any], values: Any) -> Any:
        """Run on shapes; where the result's size is data, take it from the known value."""
        if func is torch.ops.aten._local_scalar_dense.default and isinstance(  # noqa: SLF001
            values, (bool, int, float, complex)
        ):
            return values
        if torch.Tag.dynamic_output_shape in func.tags and data_sized(func, args):
            if values is not None:
                return self._to_meta(values)
            args = self._mask_to_index(func, args)
        elif torch.Tag.data_dependent_output in func.tags:
            if values is not None:
                return values
            raise self._depends_on_data(func)
        return self._shapes(func, args, keywords)

    def _shapes(self, func: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        try:
            return as_laid_out(func, args, func(*args, **keywords))
        except (NotImplementedError, RuntimeError):
            if func is torch.ops.aten._grouped_mm.default and args[0].dtype is not torch.bfloat16:  # noqa: SLF001
                return wide_grouped_product(func, args, keywords)
            if all(x.is_meta for x in tensors_in((args, keywords))):
                raise
        args, keywords = self._to_meta((args, keywords))
        return func(*args, **keywords)

    def _mask_to_index(self, func: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Boolean indices with known values become integer indices."""
        if func is not torch.ops.aten.index.Tensor:
            raise self._depends_on_data(func)
        places: list[Tensor | None] = []
        for index in args[1]:
            if index is None or index.dtype not in {torch.bool, torch.uint8}:
                places.append(index)
                continue
            value = self.known(index)
            if value is None:
                raise self._depends_on_data(func)
            places.extend(self.to_meta(part) for part in value.nonzero(as_tuple=True))
        return (args[0], places)

    def _depends_on_data(self, func: Any) -> CaptureError:
        return CaptureError(
            f"{func} in {self.path!r} looks at a value or makes a size that depends on data the "
            f"capture does "
            "not have. Pass that input as a real (small) tensor, or replace the branch by one of "
            "fixed shape."
        )

    def _remember(self, func: Any, output: Any, values: Any, inputs: Sequence[Tensor]) -> None:
        """Keep known values beside their meta tensors; forget those an unknown write replaced."""
        if func._schema.is_mutable and values is None:  # noqa: SLF001
            for x, argument in zip(inputs, tensor_arguments(func), strict=False):
                if argument.alias_info is not None and argument.alias_info.is_write:
                    self._storage(x).values.clear()
        if values is None:
            return
        shapes, real = tree_flatten(output)[0], tree_flatten(values)[0]
        for x, value in zip(shapes, real, strict=False):
            if isinstance(x, Tensor) and x.is_meta and isinstance(value, Tensor):
                self._storage(x).values[_value_key(x)] = value

    # -- rows

    def _record(
        self,
        func: Any,
        name: str,
        args: tuple[Any, ...],
        keywords: dict[str, Any],
        inputs: Sequence[Tensor],
        output: Any,
    ) -> None:
        outputs = tensor_parts(output)
        if name.rstrip("_") in FREE or name in FREE or self._moves_nothing(func, inputs, outputs):
            return
        arguments, named = tree_map_only(
            Tensor, lambda x: self.operand(tensor_parts(x)[0]), (args, keywords)
        )
        written = tuple(self.operand(x) for x in outputs) or self._mutated(func, inputs)
        self.add(self._price(func, Call(name, arguments, named, written)), name.rstrip("_"))

    def _mutated(self, func: Any, inputs: Sequence[Tensor]) -> tuple[Operand, ...]:
        """What an operator without result writes: its first list (the `_foreach_` in-place
        operators).
        """
        if not func._schema.is_mutable:  # noqa: SLF001
            return ()
        return tuple(self.operand(x) for x in inputs[: max(1, len(inputs) // 2)])

    def _moves_nothing(
        self, func: Any, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
    ) -> bool:
        """Views, results in storage that was there before, and empty tensors."""
        if func._schema.is_mutable:  # noqa: SLF001
            return bool(inputs) and not inputs[0].numel()
        if all(x.numel() == 0 for x in outputs):
            return True
        if not any(x.is_meta for x in (*inputs, *outputs)):
            return True  # arithmetic on host scalars
        return set(map(_identity, outputs)) <= set(map(_identity, inputs))

    def _price(self, func: Any, call: Call) -> Sequence[Kernel]:
        known = FORMULAS.get(call.name) or FORMULAS.get(call.name.rstrip("_"))
        if known is not None:
            return known(call)
        plain = call.name.lower()
        is_pointwise = torch.Tag.pointwise in func.tags
        if not is_pointwise and any(mark in plain for mark in CONTRACTION_MARKS):
            raise CaptureError(
                f"{func} in {self.path!r} is matrix arithmetic with no formula. "
                "Write it with matmul, convolution or scaled_dot_product_attention, or register a "
                "formula for it."
            )
        if is_pointwise or plain.startswith("_foreach") or is_pointwise_name(plain):
            return elementwise(call)
        self.unknown.add(func._schema.name.replace("::", "."))  # noqa: SLF001
        return by_bytes(call)

    def add(self, kernels: Iterable[Kernel], name: str) -> int:
        """Append rows for the kernels of one call, in order; returns the last row's number."""
        for index, kernel in enumerate(kernels):
            number = len(self.rows)
            sources = self._sources(kernel)
            if index and any(x.storage == _OUTSIDE for x in kernel.reads):
                sources.add(number - 1)
            label = f"{name}.{kernel.suffix}" if kernel.suffix else name
            if self._is_in_place(kernel):
                label += IN_PLACE
            self.rows.append(Row(with_runs(kernel), label, self.path, self.phase, sources))
            added = kernel.waits if kernel.kind is OperatorKind.SCATTER else ()
            for x in (*kernel.writes, *added):
                storage = self._storages.get(x.storage)
                if storage is not None:
                    storage.writer = number
            if number % _TOLD_EVERY == 0:
                self._told(number, self.path)
        return len(self.rows) - 1

    def _is_in_place(self, kernel: Kernel) -> bool:
        """Whether an elementwise operator or a copy overwrites what is there, or rows are added to
        it.

        A row or the model itself had made it.
        """
        targets: tuple[Operand, ...] = ()
        if kernel.kind is OperatorKind.SCATTER and not kernel.writes:
            targets = kernel.waits[:1]
        elif kernel.kind in {OperatorKind.ELEMENTWISE, OperatorKind.COPY}:
            targets = kernel.writes[:1]
        storages = (self._storages.get(x.storage) for x in targets)
        return any(storage and (storage.writer >= 0 or storage.state) for storage in storages)

    def write(self, x: Tensor) -> None:
        """Say that the last row wrote a tensor too."""
        self._storage(x).writer = len(self.rows) - 1

    def _sources(self, kernel: Kernel) -> set[int]:
        storages = (self._storages.get(x.storage) for x in (*kernel.reads, *kernel.waits))
        return {storage.writer for storage in storages if storage and storage.writer >= 0}
