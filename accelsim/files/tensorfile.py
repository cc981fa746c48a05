"""Headers of files of tensors: GGUF (ggml's docs/gguf.md, versions 2 and 3) and safetensors (its
README, "Format"). The tensors' data are never read.

A header is read whole, up to `MOST_BYTES`, and every count and length in it is held against what
is left of it, so that a damaged file costs no more than its length.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from accelsim.errors import ProfileError
from accelsim.files.datafile import data_root, read_yaml
from accelsim.files.plainfile import open_plain, parse_values
from accelsim.frozen import frozen
from accelsim.plain import Document, Values

#: Largest header that is read: words of 260,000 tokens and their merges are 20 MB.
MOST_BYTES = 64_000_000
#: Longest list of numbers that is kept, and most numbers of all; of words none is.
_LONGEST_LIST, _MOST_NUMBERS = 4096, 1_000_000
_MOST_TENSORS = 100_000
_MOST_DIMENSIONS = 4
_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
#: Codes of values: numbers by their format, text, lists.
_NUMBERS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
_TEXT, _LIST = 8, 9


@frozen
class StoredTensor:
    """A tensor of a file.

    Attributes:
        shape: Its sizes, in the file's order.
        dtype: Name of its format.
        size_bytes: Bytes of its data.
    """

    shape: tuple[int, ...]
    dtype: str
    size_bytes: int


@frozen
class TensorHeader:
    """What a file of tensors says before their data.

    Attributes:
        values: What it says of the model.
        tensors: Its tensors by name.
    """

    values: Values
    tensors: Mapping[str, StoredTensor]

    @property
    def parameter_count(self) -> int:
        """Numbers of all tensors; one that is packed in others counts as those."""
        return sum(math.prod(tensor.shape) for tensor in self.tensors.values())

    @property
    def size_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.size_bytes for tensor in self.tensors.values())


@cache
def gguf_table() -> Document:
    """``workloads/checkpoints/gguf.yaml``: formats of tensors, of files, and architectures."""
    return read_yaml(data_root() / "workloads" / "checkpoints" / "gguf.yaml")


def read_gguf(path: Path) -> TensorHeader:
    """The header of a GGUF file.

    Raises:
        ProfileError: If it cannot be read, or is damaged, cut off, or larger than what is read.
    """
    raw, size = _start(path)
    try:
        return _Reader(raw).header(size)
    except _DamagedError as damage:
        raise ProfileError(str(path), [f"is no GGUF file that can be read: {damage}"]) from None


def read_safetensors(path: Path) -> TensorHeader:
    """The header of a safetensors file.

    Raises:
        ProfileError: If it cannot be read, or is damaged, cut off, or larger than what is read.
    """
    raw, size = _start(path)
    length = int.from_bytes(raw[:8], "little")
    if not 2 <= length <= len(raw) - 8:
        raise ProfileError(str(path), ["is no safetensors file: its header has no such length"])
    header = parse_values(raw[8 : 8 + length], str(path))
    try:
        return _safetensors(header, size - 8 - length)
    except _DamagedError as damage:
        raise ProfileError(str(path), [f"is no safetensors file: {damage}"]) from None


class _DamagedError(Exception):
    """What is wrong with a header."""


def _start(path: Path) -> tuple[bytes, int]:
    """The first bytes of a file, as many as a header may have, and its size."""
    with open_plain(path) as stream:
        try:
            return stream.read(MOST_BYTES), os.fstat(stream.fileno()).st_size
        except OSError as error:
            raise ProfileError(str(path), [f"cannot be read: {error.strerror}"]) from None


def _safetensors(header: object, data_bytes: int) -> TensorHeader:
    if not isinstance(header, dict) or len(header) > _MOST_TENSORS:
        raise _DamagedError("its header lists no tensors")
    metadata = header.pop("__metadata__", {})
    tensors = {name: _entry(name, entry, data_bytes) for name, entry in header.items()}
    return TensorHeader(metadata if isinstance(metadata, dict) else {}, tensors)


def _entry(name: str, entry: object, data_bytes: int) -> StoredTensor:
    match entry:
        case {"dtype": str(dtype), "shape": [*shape], "data_offsets": [int(begin), int(end)]}:
            if all(type(n) is int and n >= 0 for n in shape) and 0 <= begin <= end <= data_bytes:
                return StoredTensor(tuple(shape), dtype, end - begin)
    raise _DamagedError(f"the entry of {name[:80]!r} is wrong, or the file is cut off")


class _Reader:
    """Values of a GGUF header, one after the other."""

    def __init__(self, raw: bytes) -> None:
        self.raw, self.at, self.kept = raw, 0, 0

    def header(self, size: int) -> TensorHeader:
        """All of it.

        Args:
            size: Bytes of the file.
        """
        if self.raw[:4] != _MAGIC:
            raise _DamagedError("it does not begin with GGUF")
        self.at = 4
        version = self._number("I")
        if version not in _VERSIONS:
            raise _DamagedError(f"version {version}; 2 and 3 are read")
        tensor_count, value_count = self._count(_MOST_TENSORS), self._count(_MOST_TENSORS)
        values = {self._text(): self._value(self._number("I")) for _ in range(value_count)}
        infos = [self._tensor() for _ in range(tensor_count)]
        alignment = values.get("general.alignment", 32)
        if type(alignment) is not int or not 1 <= alignment <= 1 << 20:
            raise _DamagedError(f"general.alignment = {str(alignment)[:40]}")
        start = -(-self.at // alignment) * alignment
        for name, tensor, offset in infos:
            if start + offset + tensor.size_bytes > size:
                raise _DamagedError(f"it ends before the data of {name[:80]!r}; copy it again")
        return TensorHeader(values, {name: tensor for name, tensor, _ in infos})

    def _number(self, code: str) -> Any:
        return self._numbers(code)[0]

    def _numbers(self, code: str, count: int = 1) -> tuple[Any, ...]:
        size = count * struct.calcsize(f"<{code}")
        if size > len(self.raw) - self.at:
            raise _DamagedError("it ends within its header, or that is too long")
        self.at += size
        return struct.unpack_from(f"<{count}{code}", self.raw, self.at - size)

    def _count(self, most: int | None = None) -> int:
        """A count, of no more than `most`, or than the bytes that are left."""
        count = int(self._number("Q"))
        most = len(self.raw) - self.at if most is None else most
        if count > most:
            raise _DamagedError(f"a count of {count:,} where at most {most:,} can be")
        return count

    def _text(self) -> str:
        length = self._count()
        self.at += length
        return self.raw[self.at - length : self.at].decode("utf-8", "replace")

    def _value(self, code: int) -> object:
        if code == _TEXT:
            return self._text()
        if code == _LIST:
            return self._list(self._number("I"))
        if code not in _NUMBERS:
            raise _DamagedError(f"a value of kind {code}")
        return self._number(_NUMBERS[code])

    def _list(self, code: int) -> tuple[object, ...] | None:
        """Numbers; None for words and for lists that are too long to be of layers."""
        count = self._count()
        if code == _TEXT:
            self._skip_texts(count)
            return None
        if code not in _NUMBERS:
            raise _DamagedError(f"a list of kind {code}")
        if count > _LONGEST_LIST:
            self.at += count * struct.calcsize(f"<{_NUMBERS[code]}")
            return None
        self.kept += count
        if self.kept > _MOST_NUMBERS:
            raise _DamagedError(f"more than {_MOST_NUMBERS:,} numbers in lists")
        return self._numbers(_NUMBERS[code], count)

    def _skip_texts(self, count: int) -> None:
        """Go over texts: hundreds of thousands in a vocabulary."""
        length_at, at, last = struct.Struct("<Q").unpack_from, self.at, len(self.raw) - 8
        for _ in range(count):
            if at > last:
                raise _DamagedError("it ends within a list of texts")
            at += 8 + length_at(self.raw, at)[0]
        self.at = at

    def _tensor(self) -> tuple[str, StoredTensor, int]:
        """Name, tensor, and where its data start."""
        name, dimensions = self._text(), self._number("I")
        if not 1 <= dimensions <= _MOST_DIMENSIONS:
            raise _DamagedError(f"{name[:80]!r} has {dimensions:,} dimensions")
        shape = self._numbers("Q", dimensions)
        code, offset = self._number("I"), int(self._number("Q"))
        formats = gguf_table()["tensor_formats"]
        if str(code) not in formats:
            raise _DamagedError(f"{name[:80]!r} has the unknown format {code}")
        label, block, block_bytes = formats[str(code)]
        size = math.prod(shape)
        if not size or shape[0] % block:
            raise _DamagedError(f"{name[:80]!r} has sizes that its format has not")
        return name, StoredTensor(shape, label, size // block * block_bytes), offset
