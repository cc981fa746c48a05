"""The operator row that stands for a measured call, stored with its time.

The call itself was captured when it was measured (`measurement.captured_rows`), so that fitting
needs no description of operators of its own, and no torch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from accelsim.frozen import frozen
from accelsim.plain import Values

_LARGEST = 2**53


def is_size(value: object) -> bool:
    """Whether a value is a dimension: a whole number from 0 that a double holds."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _LARGEST


def refuse_fields(fields: Iterable[tuple[str, object, bool]]) -> None:
    """Refuse the first field whose value is none that it may have.

    Args:
        fields: Name, value, and whether the value is allowed.

    Raises:
        ValueError: Naming the field.
    """
    for name, value, is_allowed in fields:
        if not is_allowed:
            raise ValueError(f"{name} = {str(value)[:80]}")


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

        numbers = (self.flop, self.read_bytes, self.write_bytes, self.weight_bytes)
        refuse_fields(
            (
                ("row.name", self.name, isinstance(self.name, str)),
                ("row.kind", self.kind, str(self.kind).upper() in OperatorKind.__members__),
                ("row.phase", self.phase, str(self.phase).upper() in Phase.__members__),
                ("row.dims", self.dims, all(map(is_size, self.dims))),
                ("row", numbers, all(0 <= float(number) < _LARGEST**2 for number in numbers)),
            )
        )
        most = len(DIMENSIONS[OperatorKind[self.kind.upper()]])
        if len(self.dims) > most:
            raise ValueError(
                f"row.dims has {len(self.dims)} dimensions, {self.kind} at most {most}"
            )
