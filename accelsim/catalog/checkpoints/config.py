"""Typed reading of a checkpoint's ``config.json``: every field is checked, and a problem names the
field.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from accelsim.errors import InvalidValueError
from accelsim.frozen import frozen
from accelsim.plain import Document, Values

#: Family parameters as a workload file would give them.
Parameters = Document

_LARGEST = 2**24
#: Names of activations in configurations, and the activation they run as. The tanh form of GELU
#: that PyTorch fuses costs what the exact one does; "gelu_new" is written out of eight operations.
_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_new",
    "gelu_pytorch_tanh": "gelu",
    "quick_gelu": "gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}


@frozen
class CheckpointConfig:
    """A configuration and typed access to its fields.

    Attributes:
        fields: The parsed ``config.json``.
    """

    fields: Values

    def subset(self, field: str) -> CheckpointConfig:
        """The fields of a part of the model; none where it is left out.

        Raises:
            InvalidValueError: If it is no mapping.
        """
        value = self._value(field, {})
        if not isinstance(value, Mapping):
            raise InvalidValueError(field, value, "a mapping of fields")
        return CheckpointConfig(value)

    def _value(self, field: str, default: object) -> Any:
        value = self.fields.get(field)
        return default if value is None else value

    def has(self, field: str) -> bool:
        """Whether a field is there and not null."""
        return self.fields.get(field) is not None

    def integer(self, field: str, default: int | None = None, *, least: int = 1) -> int:
        """A whole number from `least` to 2**24.

        Raises:
            InvalidValueError: If it is missing without a default, or not such a number.
        """
        value = self._value(field, default)
        if value is None:
            raise InvalidValueError(field, None, "a number", f"The configuration lacks {field}.")
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _LARGEST:
            raise InvalidValueError(field, value, f"a whole number from {least} to {_LARGEST}")
        return value

    def counts(self, notation: str) -> Parameters:
        """Whole numbers by family parameter.

        Args:
            notation: Words "parameter=field:default". The field is left out where it has the
                parameter's name, the default where there is none; "?" in place of a default leaves
                a parameter out whose field is missing. "new|old" takes whichever field is there,
                "4*hidden_size" as default or field multiplies with a parameter found before.

        Raises:
            InvalidValueError: If a field without a default is missing, or one is no such number.
        """
        counts: Parameters = {}
        for word in notation.split():
            source, _, default = word.removesuffix("?").partition(":")
            parameter, _, fields = source.partition("=")
            scale, _, field = (fields or parameter).rpartition("*")
            field = self.present(field)
            if self.has(field) or not word.endswith("?"):
                usual = _multiplied(default, counts) if default else None
                number = self.integer(field, usual, least=0 if default == "0" else 1)
                counts[parameter] = number * (counts[scale] if scale else 1)
        return counts

    def present(self, fields: str) -> str:
        """The last of some names, parted by "|", that is there; the first if none is."""
        names = fields.split("|")
        return next((name for name in reversed(names) if self.has(name)), names[0])

    def fraction(self, field: str, default: float) -> float:
        """A number above 0, at most 1."""
        value = self._value(field, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 1:
            raise InvalidValueError(field, value, "a number above 0, at most 1")
        return float(value)

    def flag(self, field: str, default: bool = False) -> bool:
        """True or false."""
        value = self._value(field, default)
        if not isinstance(value, bool):
            raise InvalidValueError(field, value, "true or false")
        return value

    def text(self, field: str, default: str) -> str:
        """A word."""
        value = self._value(field, default)
        if not isinstance(value, str):
            raise InvalidValueError(field, value, "text")
        return value

    def integers(self, field: str, default: Sequence[int]) -> tuple[int, ...]:
        """A list of whole numbers."""
        value = self.fields.get(field)
        if value is None:
            return tuple(default)
        if not isinstance(value, (list, tuple)) or not all(_is_count(item) for item in value):
            raise InvalidValueError(field, value, f"a list of whole numbers from 1 to {_LARGEST}")
        return tuple(value)

    def activation(self, field: str, default: str) -> str:
        """The activation a configuration names.

        Raises:
            InvalidValueError: If it is none that is modelled.
        """
        name = self.text(field, default)
        if name not in _ACTIVATIONS:
            raise InvalidValueError(field, name, f"one of {', '.join(_ACTIVATIONS)}")
        return _ACTIVATIONS[name]

    def require(self, field: str, expected: object, default: object) -> None:
        """Refuse a variant that is not modelled.

        Raises:
            InvalidValueError: If the field is there and differs from `expected`.
        """
        value = self.fields.get(field, default)
        if value != expected:
            raise InvalidValueError(
                field, value, repr(expected), "Other variants of this model are not supported."
            )

    def architecture(self) -> str:
        """The first architecture named, or nothing."""
        names = self.fields.get("architectures")
        if names is None:
            return ""
        if not isinstance(names, (list, tuple)) or not all(isinstance(item, str) for item in names):
            raise InvalidValueError("architectures", names, "a list of class names")
        return str(names[0]) if names else ""

    def labels(self) -> int:
        """Classes of a classifier: entries of ``id2label``, else ``num_labels``, else 2."""
        labels = self.fields.get("id2label")
        if isinstance(labels, Mapping) and labels:
            return len(labels)
        return self.integer("num_labels", 2)


def _multiplied(factors: str, counts: Parameters) -> int:
    """A product of numbers and of parameters found before, written "4*hidden_size"."""
    return prod(int(x) if x.isdigit() else int(counts[x]) for x in factors.split("*"))


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _LARGEST
