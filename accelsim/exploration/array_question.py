"""What designs of matrix arrays are asked; read by the command line before it loads anything."""

from __future__ import annotations

from collections.abc import Sequence

from accelsim.frozen import frozen
from accelsim.option import items, option


@frozen
class ArrayQuestion:
    """What every design is asked: one forward pass."""

    batch: int = option("Samples per pass.", 1)
    seq_len: int | None = option("Input tokens per sequence.")
    precision: str = option("Operands: int8, int16, bf16, fp16 or fp32.", "int8", "NAME")
    process_nm: float = option("Node of the chip.", 7.0)
    memory: str = option("DDR3, DDR4, LPDDR4, GDDR6 or HBM2.", "HBM2", "NAME")
    objectives: Sequence[str] | None = option(
        "Of the Pareto front: latency, energy, area, elements, dram.",
        metavar="O,...",
        parse=lambda name, text: items(f"--{name}", text),
    )
