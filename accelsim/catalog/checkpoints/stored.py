"""What the files of a checkpoint hold beside what is modelled of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from accelsim.dtype import precision
from accelsim.errors import ProfileError
from accelsim.files.datafile import read_json
from accelsim.files.tensorfile import MOST_BYTES, read_safetensors
from accelsim.plain import Values
from accelsim.quantity import size
from accelsim.workloads.model import Workload

_INDEX = "model.safetensors.index.json"
#: Most that files hold more or less without a word: padding of vocabularies.
_TOLERANCE = 0.01
#: Formats of weights that are not quantised, as configurations call them.
_WIDE = ("float32", "float16", "bfloat16")


def stored_bytes(folder: Path) -> float | None:
    """Bytes of a checkpoint's weights, by its index, else by its one file's header; None without
    either.

    Raises:
        ProfileError: If they cannot be read, or say no size.
    """
    if (folder / _INDEX).is_file():
        metadata = read_json(folder / _INDEX, max_bytes=MOST_BYTES).get("metadata")
        total = metadata.get("total_size") if isinstance(metadata, dict) else None
        if not isinstance(total, int | float) or isinstance(total, bool) or total <= 0:
            raise ProfileError(str(folder / _INDEX), ["metadata.total_size: expected bytes"])
        return float(total)
    file = folder / "model.safetensors"
    return float(read_safetensors(file).size_bytes) if file.is_file() else None


def with_stored(workload: Workload, config: Values, file_bytes: float | None) -> Workload:
    """The workload, which says so where its files hold other weights than it has.

    Args:
        workload: The workload.
        config: The configuration it was read from.
        file_bytes: Bytes of its checkpoint's weights; None where they are not known.
    """
    if not file_bytes:
        return workload
    dtype = str(config.get("dtype") or config.get("torch_dtype"))
    policy = workload.quantised or precision(dtype if dtype in _WIDE else "bf16")
    modelled_bytes = workload.lower(replace(workload.default, batch=1), policy).parameter_bytes
    if abs(file_bytes / modelled_bytes - 1.0) <= _TOLERANCE:
        return workload
    sizes = (
        f"its files hold {size(file_bytes)}, the weights of what is answered {size(modelled_bytes)}"
    )
    explanation = "; an encoder of pictures or layers that guess tokens are not counted"
    return replace(workload, stored_note=sizes + explanation * (file_bytes > modelled_bytes))
