"""One measurement: an operator, its shape, and the conditions it runs under.

A case is plain data, so that a run file can be read where torch is not installed. `CASE_VERSION`
changes whenever the same case would come to mean other work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from hashlib import md5

from accelsim.frozen import frozen

CASE_VERSION = 2
#: Parts of a cross-validation over shapes.
FOLDS = 5


@frozen
class Case:
    """What one row measures.

    Attributes:
        family: Family the bars are reported for ("gemm", "convolution", ...).
        operator: Operator as the capture of a module names it ("addmm",
            "native_layer_norm_backward", ...).
        shape: Dimensions by name.
        dtype: "fp32", "tf32" (FP32 operands, TF32 products; GPUs alone), "bf16" or "fp16".
        threads: Threads of the framework; 0 on a GPU, where it does not matter.
        cold: Whether every call takes weights that are in no cache.
        execution: "eager", "graph" or "compiled".
        amid: Whether it runs amid other operators: between calls the inner caches are overwritten
            and only the inputs are written again, as the operator before would have.
    """

    family: str
    operator: str
    shape: Mapping[str, int] = field(hash=False)
    dtype: str = "fp32"
    threads: int = 1
    cold: bool = False
    execution: str = "eager"
    amid: bool = False

    @property
    def label(self) -> str:
        """Operator and dimensions, without the conditions: rows of one label are held out together.

        Dimensions stand in alphabetical order, so that a case made anew and the same one read from
        a file are one.
        """
        dims = " ".join(f"{name}={value}" for name, value in sorted(self.shape.items()))
        return f"{self.operator} {dims}"

    @property
    def fold(self) -> int:
        """Part of the cross-validation that the shape belongs to, in all its formats and
        conditions; the same in every run.
        """
        digest = md5(self.label.encode(), usedforsecurity=False).hexdigest()
        return int(digest[:8], 16) % FOLDS

    @property
    def key(self) -> str:
        """Unique within a run."""
        threads = f" {self.threads}t" if self.threads else ""
        state = ("cold" if self.cold else "hot") + (" amid" if self.amid else "")
        return f"{self.label} | {self.dtype}{threads} {state} {self.execution}"
