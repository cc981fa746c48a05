"""GGUF files of small models, written byte by byte after ggml's docs/gguf.md."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

#: A small Llama of 4 layers.
VALUES = {
    "general.architecture": "llama",
    "general.name": "Small Llama",
    "general.file_type": 7,
    "llama.block_count": 4,
    "llama.embedding_length": 128,
    "llama.feed_forward_length": 320,
    "llama.context_length": 2048,
    "llama.attention.head_count": 8,
    "llama.attention.head_count_kv": 2,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "tokenizer.ggml.tokens": ["a", "bc"] * 500,
    "tokenizer.ggml.scores": [0.5] * 1000,
}
#: Format code -> values of a block, bytes.
FORMATS = {0: (1, 4), 1: (1, 2), 8: (32, 34), 12: (256, 144)}


def llama_tensors(
    values: Mapping[str, Any], code: int = 8
) -> dict[str, tuple[tuple[int, ...], int]]:
    """Shapes (the fastest size first) and formats of a Llama's tensors."""
    wide, inner = values["llama.embedding_length"], values["llama.feed_forward_length"]
    head = wide // values["llama.attention.head_count"]
    narrow = head * values["llama.attention.head_count_kv"]
    found = {"token_embd.weight": ((wide, 1000), code), "output_norm.weight": ((wide,), 0)}
    found["output.weight"] = ((wide, 1000), code)
    for layer in range(values["llama.block_count"]):
        shapes = {
            "attn_q": (wide, wide),
            "attn_k": (wide, narrow),
            "attn_v": (wide, narrow),
            "attn_output": (wide, wide),
            "ffn_gate": (wide, inner),
            "ffn_up": (wide, inner),
            "ffn_down": (inner, wide),
        }
        found |= {f"blk.{layer}.{name}.weight": (shape, code) for name, shape in shapes.items()}
        found |= {f"blk.{layer}.{n}_norm.weight": ((wide,), 0) for n in ("attn", "ffn")}
    return found


def _text(text: str) -> bytes:
    raw = text.encode("utf-8", "surrogatepass")
    return struct.pack("<Q", len(raw)) + raw


def _value(value: Any) -> bytes:
    """A value after the code of its kind."""
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, int):
        return (
            struct.pack("<Iq", 11, value) if abs(value) >= 2**31 else struct.pack("<Ii", 5, value)
        )
    if isinstance(value, float):
        return struct.pack("<Id", 12, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    items = [_value(item) for item in value]
    kind = items[0][:4] if items else struct.pack("<I", 4)
    return (
        struct.pack("<I", 9) + kind + struct.pack("<Q", len(items)) + b"".join(i[4:] for i in items)
    )


def gguf_bytes(
    values: Mapping[str, Any],
    tensors: Mapping[str, tuple[Iterable[int], int]],
    *,
    version: int = 3,
    data: bytes | None = None,
) -> bytes:
    """A file; its data are zeros."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(values))
    head += b"".join(_text(name) + _value(value) for name, value in values.items())
    at = 0
    for name, (shape, code) in tensors.items():
        sizes = [int(size) for size in shape]
        head += _text(name) + struct.pack(
            f"<I{len(sizes)}QIQ", len(sizes), *sizes, code, at % 2**64
        )
        block, size = FORMATS.get(code, (1, 1))
        at += -(-math.prod(sizes) // block * size // 32) * 32
    head += b"\0" * (-len(head) % 32)
    return head + (b"\0" * min(at, 10**8) if data is None else data)


def write(path: Path, values: Mapping[str, Any] = VALUES, code: int = 8) -> Path:
    """A file of a small Llama."""
    path.write_bytes(gguf_bytes(values, llama_tensors({**VALUES, **values}, code)))
    return path
