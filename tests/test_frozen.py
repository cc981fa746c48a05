"""Frozen classes behave as the standard library's."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from dataclasses import field
from functools import cached_property

import pytest

from accelsim.frozen import frozen


class _Fields:
    size: int
    name: str = "a"
    parts: list[int] = field(default_factory=list, compare=False)
    note: str = field(default="", repr=False, hash=False, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", abs(self.size))


def _pair(*, slots: bool) -> tuple[type, type]:
    """The same class by this module and by the standard library."""
    made = [
        decorate(type("Made", (), dict(vars(_Fields))))
        for decorate in (frozen(slots=slots), dataclasses.dataclass(frozen=True, slots=slots))
    ]
    return made[0], made[1]


@frozen
class Size:
    """One that can be pickled."""

    width: int
    height: int = 1


@frozen(eq=False)
class Deep(Size):
    """One that inherits fields."""

    depth: int = 2

    def __repr__(self) -> str:
        return "deep"


@frozen(slots=False, eq=False)
class Open:
    """One without slots."""

    width: int

    @cached_property
    def double(self) -> int:
        return 2 * self.width


@pytest.mark.parametrize("slots", [True, False])
def test_a_frozen_class_is_that_of_the_standard_library(slots: bool) -> None:
    ours, standard = _pair(slots=slots)
    one, other = (cls(-3, "b", [1], note="n") for cls in (ours, standard))
    assert repr(one) == repr(other)
    assert hash(one) == hash(other)
    assert one.size == 3
    assert one == ours(3, "b", [2], note="n") != ours(3, "b", note="m")
    assert one != other
    for listed in zip(
        *(inspect.signature(cls).parameters.values() for cls in (ours, standard)), strict=True
    ):
        assert listed[0].name == listed[1].name
        assert listed[0].kind == listed[1].kind
        assert listed[0].annotation == listed[1].annotation
    assert ours.__match_args__ == standard.__match_args__
    assert dataclasses.asdict(dataclasses.replace(one, name="c")) == {
        **dataclasses.asdict(other),
        "name": "c",
    }


def test_a_frozen_class_cannot_be_changed() -> None:
    size = Size(1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'width'"):
        size.width = 2  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'width'"):
        del size.width
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'width'"):
        Size()  # type: ignore[call-arg]


def test_fields_are_inherited_and_own_methods_kept() -> None:
    assert Deep(1, depth=4).depth == 4
    assert Open(1) != Open(1)  # without eq
    assert repr(Deep(1)) == "deep"


def test_frozen_objects_are_copied_and_pickled() -> None:
    for made in (Size(1, 2), Size([1], 2)):  # type: ignore[arg-type]
        assert pickle.loads(pickle.dumps(made)) == copy.copy(made) == copy.deepcopy(made) == made
    wide = Open(2)
    assert wide.double == pickle.loads(pickle.dumps(wide)).double == 4
