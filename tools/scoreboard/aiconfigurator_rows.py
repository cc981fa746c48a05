"""Measured GPU kernels of the package aiconfigurator-core (extra `silicon`): GEMM, attention, MLA
and MoE layers.

The package (NVIDIA, Apache-2.0; version pinned in pyproject.toml) carries kernel times of several
systems as parquet tables, one folder per system, kind, serving backend and backend version. Rows
are read into columns in SI units; where one configuration was measured with several kernels the
fastest is kept, since that is what a backend would run. Backends differ: some time whole framework
calls (vLLM's block-scaled FP8 GEMM never takes less than 55 us on an H200), so the kernels of a
format come from one backend (see `preferred_rows`). Nothing of the package is copied into this
project, and its end-to-end file is not read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accelsim.dtype import Dtype
from accelsim.errors import MissingDependencyError, ProfileError, UnknownNameError
from accelsim.files.datafile import read_mapping
from accelsim.frozen import frozen
from accelsim.scoreboard.data_folder import published
from accelsim.scoreboard.split import HELD_OUT_SHARE, held_out_rows
from accelsim.workloads.graph import BoolArray, FloatArray, IntArray

_PACKAGE = published("aiconfigurator")
#: Systems the package has kernels of; `validation.names` says which device each is.
SYSTEMS: Sequence[str] = _PACKAGE["systems"]
#: Systems whose operators were issued one by one: the package replays CUDA graphs, which Intel's
#: boards do not have.
EAGER_SYSTEMS = frozenset({"b60"})
#: Serving backends, those whose times scatter least first: interpolated from their neighbours, GEMM
#: and attention kernels of an H200 are 1 to 3 % off in TensorRT-LLM's tables, 2 to 6 % in vLLM's
#: and 3 to 7 % in sglang's.
BACKENDS = ("trtllm", "vllm", "sglang")
#: The same for expert layers: TensorRT-LLM's tuning failed for whole cells (BF16 layers of an H200
#: five times slower than their neighbours), and sglang switches between untuned and tuned kernels
#: by model.
_LAYER_BACKENDS = ("vllm", "trtllm", "sglang")
#: Time of expert layers of few tokens over that of the same layers in BF16 by the same backend, in
#: the median, from which on kernels of a narrower format are not tuned for the system: its next
#: backend has them. vLLM 0.24's FP8 layers (FlashInfer's CUTLASS kernels) take 2.3 and 2.8 times as
#: long on an H100 and an H200, vLLM 0.19's INT4 layers 1.4 to 1.7 times; all others of FP8 and INT4
#: 0.3 to 1.1 times.
_NOT_TUNED, _FEW_TOKENS = 1.25, 16
#: Format whose expert layers all backends and versions run by the same kernels (Marlin): each has
#: some models, all tables together most.
_OF_ALL_BACKENDS = "int4_wo"
#: Formats of GEMMs that a backend's collector did not time as its server runs them. TensorRT-LLM's
#: tunes NVFP4 products when it starts; its collector calls `forward` outside of `autotune`, which
#: falls back to one tactic that walks k alone (an 8 x 128 x 8192 product of a B200 takes 21.6 us,
#: 11.1 us in vLLM's tables and 9.4 us in SGLang's, while BF16 agrees to 5 %). vLLM's goes through
#: one copy of the weights, which the cache holds; blockwise FP8 it issued one by one, so that no
#: product takes less than 55 us (collector/{trtllm,vllm}/collect_gemm.py).
_NOT_AS_SERVED = frozenset({("trtllm", "nvfp4"), ("vllm", "nvfp4"), ("vllm", "fp8_block")})
#: Formats of products whose kernels are a backend's own.
_OWN_PRODUCTS = ("fp8", "fp8_block")


@frozen
class NumberFormat:
    """What a kernel multiplies in and how its weights are stored.

    Attributes:
        compute: Format of the arithmetic.
        weight: Format of stored weights.
        scale_bytes: Bytes of block scales per weight.
    """

    compute: Dtype
    weight: Dtype
    scale_bytes: float = 0.0


#: Formats by the package's name for them.
FORMATS: Mapping[str, NumberFormat] = {
    name: NumberFormat(
        Dtype[entry["compute"].upper()],
        Dtype[entry["weight"].upper()],
        entry.get("scale_bytes", 0.0),
    )
    for name, entry in _PACKAGE["formats"].items()
}


@frozen
class _Kind:
    """Where a kind's table lies and which columns it has."""

    family: str
    file: str
    sizes: Sequence[str]
    formats: Sequence[str]
    words: Sequence[str] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """All of them."""
        return (*self.sizes, *self.formats, *self.words, "latency")

    def folder(self, system: str) -> Path:
        """Where the backends of a system lie."""
        return package_root() / "data" / system / self.family


#: Kinds of kernel by name.
KINDS: Mapping[str, _Kind] = {
    name: _Kind(file=f"{name}_perf.parquet", **entry) for name, entry in _PACKAGE["kinds"].items()
}


@frozen(eq=False)
class KernelRows:
    """Measured kernels of one kind on one system; n rows.

    Attributes:
        system: Name in the package.
        backend: Serving backend whose kernels were measured.
        version: Version of the backend.
        kind: Name in `KINDS`.
        sizes: Dimensions by the package's column names, shape (n,) each.
        formats: Format columns by name, names in `FORMATS`, shape (n,) each.
        words: Other text columns by name, shape (n,) each.
        time_s: Measured times, shape (n,), s.
        held_out: Shapes that no fit may see, shape (n,).
    """

    system: str
    backend: str
    version: str
    kind: str
    sizes: Mapping[str, FloatArray]
    formats: Mapping[str, NDArray[Any]]
    words: Mapping[str, NDArray[Any]]
    time_s: FloatArray
    held_out: BoolArray

    def __len__(self) -> int:
        return len(self.time_s)

    def take(self, rows: NDArray[Any]) -> KernelRows:
        """The given rows (indices or mask)."""

        def taken(columns: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
            return {name: column[rows] for name, column in columns.items()}

        return replace(
            self,
            sizes=taken(self.sizes),
            formats=taken(self.formats),
            words=taken(self.words),
            time_s=self.time_s[rows],
            held_out=self.held_out[rows],
        )

    def configuration(self) -> list[NDArray[Any]]:
        """Columns that tell configurations apart: the kernel does not."""
        words = [column for name, column in self.words.items() if name != "kernel_source"]
        return [*self.sizes.values(), *self.formats.values(), *words]


def package_root() -> Path:
    """Folder of the package's systems.

    Raises:
        MissingDependencyError: If the package is not installed.
    """
    spec = find_spec("aiconfigurator_core")
    if spec is None or not spec.submodule_search_locations:
        raise MissingDependencyError("aiconfigurator-core", "silicon")
    return Path(next(iter(spec.submodule_search_locations))) / "systems"


def versions(system: str, kind: str, backend: str) -> tuple[str, ...]:
    """Versions of a backend that a system has kernels of, the package's current one first, then
    newer before older.

    Empty where there are none. The current version is the newest complete one; later ones may hold
    a few kernels only.

    Raises:
        MissingDependencyError: If the package is not installed.
        UnknownNameError: If the system, kind or backend does not exist.
    """
    for what, name, known in (
        ("system", system, SYSTEMS),
        ("kind", kind, KINDS),
        ("backend", backend, BACKENDS),
    ):
        if name not in known:
            raise UnknownNameError(what, name, known, f"Known: {', '.join(known)}.")
    files = (KINDS[kind].folder(system) / backend).glob(f"*/{KINDS[kind].file}")
    current = _current_version(system, backend)

    def age(version: str) -> tuple[bool, list[int]]:
        """Digits tell the newest; a release candidate comes before what follows it."""
        return version == current, [int(digits) for digits in re.findall(r"\d+", version)]

    return tuple(sorted((path.parent.name for path in files), key=age, reverse=True))


def _current_version(system: str, backend: str) -> str | None:
    path = package_root() / "query_versions.yaml"
    if not path.is_file():
        return None
    table = read_mapping(path)
    for part in (table.get("overrides", {}).get(system, {}), table.get("defaults", {})):
        if backend in part:
            return str(part[backend].get("current"))
    return None


def read_kernels(system: str, backend: str, version: str | None, kind: str) -> KernelRows:
    """Read one table.

    Args:
        system: One of `SYSTEMS`.
        backend: One of `BACKENDS`.
        version: Version of the backend; None takes the current one.
        kind: One of `KINDS`.

    Raises:
        MissingDependencyError: If the package is not installed.
        UnknownNameError: If there is no such table.
        ProfileError: If the table does not have the columns expected.
    """
    known = versions(system, kind, backend)
    chosen = version or (known[0] if known else "")
    if chosen not in known:
        raise UnknownNameError(
            f"{backend} version of {system} {kind}",
            chosen,
            known,
            f"Known: {', '.join(known) or 'none'}.",
        )
    table = KINDS[kind]
    path = table.folder(system) / backend / chosen / table.file
    columns = _columns(path, table.columns)
    sizes = {name: _numbers(path, name, columns[name]) for name in table.sizes}
    rows = KernelRows(
        system=system,
        backend=backend,
        version=chosen,
        kind=kind,
        sizes=sizes,
        formats={name: columns[name].astype(str) for name in table.formats},
        words={name: columns[name].astype(str) for name in table.words},
        time_s=_numbers(path, "latency", columns["latency"]) * 1e-3,
        held_out=held_out_rows(list(sizes.values()), HELD_OUT_SHARE),
    )
    return _fastest(rows)


def preferred_rows(
    system: str, kind: str, on_damage: Callable[[ProfileError], None] | None = None
) -> list[KernelRows]:
    """Tables of a system with every number format once: from the first backend that has it.

    Args:
        system: One of `SYSTEMS`.
        kind: One of `KINDS`.
        on_damage: Called with what is wrong with a table, which then counts as missing; raised
            where None.

    Raises:
        MissingDependencyError: If the package is not installed.
        ProfileError: If a table is damaged.
    """
    preferred_rows: list[KernelRows] = []
    taken: set[str] = set()
    complements = {_OF_ALL_BACKENDS} if kind == "moe" else set()
    for backend in _LAYER_BACKENDS if kind == "moe" else BACKENDS:
        if not versions(system, kind, backend):
            continue
        try:
            rows = read_kernels(system, backend, None, kind)
            if system in EAGER_SYSTEMS:
                rows = _with_repeats(rows)
        except ProfileError as error:
            if on_damage is None:
                raise
            on_damage(error)
            continue
        left_out = {name for own, name in _NOT_AS_SERVED if (kind, own) == ("gemm", backend)}
        for table in _layers(rows) if kind == "moe" else [rows]:
            names = format_names(table)
            new = ~np.isin(names, [*(taken | left_out)])
            if new.any():
                preferred_rows.append(table.take(new))
                taken |= set(np.unique(names[new]).tolist()) - complements
    return preferred_rows


def own_rows(system: str, backend: str) -> Iterator[KernelRows]:
    """Tables of the kernels that a backend brings itself (attention, expert layers and products in
    FP8: CUTLASS's and DeepGEMM's; others are the maker's library's in all), but for formats that
    `preferred_rows` takes from it anyway.

    Args:
        system: One of `SYSTEMS`.
        backend: One of `BACKENDS`.

    Raises:
        MissingDependencyError: If the package is not installed.
        ProfileError: If a table is damaged.
    """
    for kind in KINDS:
        if system in EAGER_SYSTEMS or not versions(system, kind, backend):
            continue
        taken = {_OF_ALL_BACKENDS}
        taken |= {name for own, name in _NOT_AS_SERVED if (kind, own) == ("gemm", backend)}
        for table in preferred_rows(system, kind):
            if table.backend == backend:
                taken |= set(format_names(table).tolist())
        rows = read_kernels(system, backend, None, kind)
        for table in _layers(rows) if kind == "moe" else [rows]:
            names = format_names(table)
            new = ~np.isin(names, [*taken])
            if kind == "gemm":
                new &= np.isin(names, _OWN_PRODUCTS)
            if new.any():
                yield table.take(new)


def _layers(rows: KernelRows) -> list[KernelRows]:
    """A table's expert layers whose kernels are tuned; of formats whose are not, and of models that
    it lacks in `_OF_ALL_BACKENDS`, those of the backend's other versions.
    """
    own = _tuned(rows)
    asked = set(format_names(rows).tolist()) - set(format_names(own).tolist())
    layers = [own]
    for version in versions(rows.system, rows.kind, rows.backend):
        if version != rows.version:
            table = _tuned(read_kernels(rows.system, rows.backend, version, rows.kind))
            formats = format_names(table)
            more = (formats == _OF_ALL_BACKENDS) & ~np.isin(_models(table), _models(own))
            layers.append(table.take(more | np.isin(formats, [*asked])))
    return [table for table in layers if len(table)]


def _models(rows: KernelRows) -> NDArray[Any]:
    """What tells apart the models whose layers the rows are, by format, shape (n,)."""
    names = format_names(rows).astype(object)
    for size in ("hidden_size", "inter_size", "num_experts"):
        names = names + " " + rows.sizes[size].astype(str)
    return names.astype(str)


def _tuned(rows: KernelRows) -> KernelRows:
    """Rows of expert layers without the formats whose kernels are not tuned, by `_NOT_TUNED`; all
    rows of formats whose layers have none in BF16 beside them.
    """
    names = format_names(rows)
    sizes = [*rows.sizes.values(), np.unique(rows.words["distribution"], return_inverse=True)[1]]
    shape = np.unique(np.stack(sizes, axis=1), axis=0, return_inverse=True)[1].reshape(-1)
    wide_s = np.full(int(shape.max(initial=-1)) + 1, np.nan)
    is_wide = names == "bfloat16"
    wide_s[shape[is_wide]] = rows.time_s[is_wide]
    ratio = rows.time_s / wide_s[shape]
    asked = np.isfinite(ratio) & (rows.sizes["num_tokens"] <= _FEW_TOKENS)
    kept = np.ones(len(rows), dtype=bool)
    for name in np.unique(names[asked]).tolist():
        own = names == name
        kept &= ~own | (float(np.median(ratio[asked & own])) <= _NOT_TUNED)
    return rows.take(kept)


def format_names(rows: KernelRows) -> NDArray[Any]:
    """Name of each row's format, with the cache's where it is another, shape (n,)."""
    first, *others = rows.formats.values()
    names = first.astype(object)
    for other in others:
        names = names + np.where(other == first, "", " cache " + other.astype(object))
    return names.astype(str)


def _columns(path: Path, names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise MissingDependencyError("pyarrow", "silicon") from None
    try:
        file = ParquetFile(path)
        columns = [name for name in names if name in file.schema_arrow.names]
        if missing := [
            name for name in names if name not in columns and name not in _PACKAGE["defaults"]
        ]:
            raise ProfileError(str(path), [f"column {name} is missing" for name in missing])
        table = file.read(columns=columns)
    except (OSError, ArrowException) as error:
        raise ProfileError(str(path), [f"cannot be read: {error}"]) from None
    defaults = _PACKAGE["defaults"].items()
    absent = {
        name: np.full(table.num_rows, value) for name, value in defaults if name not in columns
    }
    return {name: table[name].to_numpy() for name in columns} | absent


def _numbers(path: Path, name: str, column: NDArray[Any]) -> FloatArray:
    """A column as numbers: finite and >= 0, measured times above 0.

    Raises:
        ProfileError: If a cell is none of that, with the first such row.
    """
    try:
        values = column.astype(np.float64)
    except (TypeError, ValueError):
        raise ProfileError(str(path), [f"column {name} holds no numbers"]) from None
    least = np.finfo(np.float64).tiny if name == "latency" else 0.0
    wrong = np.flatnonzero(~(np.isfinite(values) & (values >= least)))
    if wrong.size:
        expected = "a time above 0" if name == "latency" else "a number of 0 or more"
        fault = f"row {int(wrong[0]) + 1}, column {name}: {column[wrong[0]]!r} is not {expected}"
        raise ProfileError(str(path), [f"{fault} ({wrong.size} such rows)"])
    return values


def unknown_systems() -> list[str]:
    """Systems that the package has kernel tables of and `SYSTEMS` has not.

    Raises:
        MissingDependencyError: If the package is not installed.
    """
    folders = sorted(
        path
        for path in (package_root() / "data").iterdir()
        if path.is_dir() and path.name not in SYSTEMS
    )
    files = [f"{kind.family}/*/*/{kind.file}" for kind in KINDS.values()]
    return [path.name for path in folders if any(next(path.glob(file), None) for file in files)]


def _fastest(rows: KernelRows) -> KernelRows:
    """One row per configuration: its fastest kernel."""
    order = np.argsort(rows.time_s, kind="stable")
    first = np.unique(_codes([rows])[order], return_index=True)[1]
    return rows.take(np.sort(order[first]))


def _codes(tables: Sequence[KernelRows]) -> IntArray:
    """Number of each row's configuration, tables end to end."""
    columns = zip(*(table.configuration() for table in tables), strict=True)
    codes = [np.unique(np.concatenate(column), return_inverse=True)[1] for column in columns]
    inverse: IntArray = np.unique(np.stack(codes, axis=1), axis=0, return_inverse=True)[1]
    return inverse.reshape(-1)


def _with_repeats(rows: KernelRows) -> KernelRows:
    """Each configuration at its fastest in any version of the backend.

    Versions time the same operators again. Issued one by one, a row holds the host's delays, which
    only ever add: two versions' decoding rows of a B60 differ by 60 % (90th percentile),
    independently of each other and of the shape.
    """
    repeats = [
        read_kernels(rows.system, rows.backend, version, rows.kind)
        for version in versions(rows.system, rows.kind, rows.backend)
        if version != rows.version
    ]
    tables = [rows, *repeats]
    which = _codes(tables)
    fastest_s = np.full(int(which.max(initial=-1)) + 1, np.inf)
    np.minimum.at(fastest_s, which, np.concatenate([table.time_s for table in tables]))
    return replace(rows, time_s=fastest_s[which[: len(rows)]])
