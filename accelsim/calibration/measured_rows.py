"""The operator row that stands for a measured call, stored with its time.

The call itself was captured when it was measured (`measurement.captured_rows`), so that fitting
needs no description of operators of its own, and no torch.
"""

from __future__ import annotations

from typing import Self

from accelsim.frozen import frozen
from accelsim.plain import Values

_LARGEST = 2**53


def is_size(value: object) -> bool:
    """Whether a value is a dimension: a whole number from 0 that a double holds."""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return is_whole and 0 <= value < _LARGEST  # type: ignore[operator]


@frozen
class MeasuredRow:
    """One operator as a captured graph has it.

    Attributes:
        name: Operator name.
        kind: Label of its `OperatorKind`.
        phase: Label of its `Phase`.
        dims: Dimensions in the order of ``DIMENSIONS[kind]``.
        flop: FLOP (multiply-add = 2).
        read_bytes: Activation bytes read.
        write_bytes: Bytes written.
        weight_bytes: Parameter bytes read.
    """

    name: str
    kind: str
    phase: str
    dims: tuple[int, ...]
    flop: float
    read_bytes: float
    write_bytes: float
    weight_bytes: float

    @classmethod
    def from_dict(cls, data: Values) -> Self:
        """Read the plain values of a run file.

        Raises:
            TypeError: If a field is missing or not known.
        """
        return cls(**{**data, "dims": tuple(data["dims"])})

    def check(self) -> None:
        """Refuse what is no operator row.

        Raises:
            ValueError: Naming the field.
        """
        from accelsim.workloads.operator import DIMENSIONS, OperatorKind, Phase

        kind = OperatorKind.__members__.get(str(self.kind).upper())
        numbers = (self.flop, self.read_bytes, self.write_bytes, self.weight_bytes)
        for name, value, ok in (
            ("row.name", self.name, isinstance(self.name, str)),
            ("row.kind", self.kind, kind is not None),
            ("row.phase", self.phase, str(self.phase).upper() in Phase.__members__),
            ("row.dims", self.dims, all(map(is_size, self.dims))),
            ("row", numbers, all(0 <= float(number) < _LARGEST**2 for number in numbers)),
        ):
            if not ok:
                raise ValueError(f"{name} = {str(value)[:80]}")
        if kind is not None and len(self.dims) > len(DIMENSIONS[kind]):
            most = len(DIMENSIONS[kind])
            raise ValueError(
                f"row.dims has {len(self.dims)} dimensions, {self.kind} at most {most}"
            )
