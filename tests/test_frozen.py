"""Classes of the package are the standard library's frozen dataclasses, with slots unless told."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from functools import cached_property

import pytest

from accelsim.frozen import frozen


@frozen
class Size:
    """One with slots."""

    width: int
    height: int = 1


@frozen(slots=False, eq=False)
class Open:
    """One without slots."""

    width: int

    @cached_property
    def double(self) -> int:
        return 2 * self.width


def test_a_frozen_class_cannot_be_changed_and_has_slots() -> None:
    size = Size(1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'width'"):
        size.width = 2  # type: ignore[misc]
    assert not hasattr(size, "__dict__")
    assert Size(1, 2) == dataclasses.replace(size, height=2) != size


@frozen
class Named:
    """One whose number is not compared, and whose key is not shown."""

    name: str
    number: int = dataclasses.field(default=0, compare=False)
    key: tuple[int, ...] = dataclasses.field(default=(), repr=False)
    table: dict[str, int] = dataclasses.field(default_factory=dict, hash=False, repr=False)


@frozen
class Empty:
    """One without fields."""


@frozen
class Cased:
    """One that compares in its own way."""

    word: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cased) and other.word.lower() == self.word.lower()

    def __hash__(self) -> int:
        return hash(self.word.lower())


def test_frozen_objects_compare_hash_and_show_themselves_by_their_fields() -> None:
    assert hash(Size(1, 2)) == hash(Size(1, 2))
    assert Size(1) != Named("1") != Empty() == Empty()
    assert len({Size(1), Size(1, 1), Size(2), Empty(), Empty()}) == 3
    assert repr(Size(1)) == "Size(width=1, height=1)"
    assert repr(Empty()) == "Empty()"


def test_a_field_may_be_left_out_of_comparison_hash_or_text() -> None:
    assert Named("a", 1) == Named("a", 2) != Named("a", 1, (3,))
    assert hash(Named("a", 1)) == hash(Named("a", 2, table={"b": 1}))
    assert Named("a") != Named("a", table={"b": 1})
    assert repr(Named("a", 1, (3,))) == "Named(name='a', number=1)"


def test_a_class_keeps_what_it_says_itself() -> None:
    assert Cased("A") == Cased("a")
    assert hash(Cased("A")) == hash(Cased("a"))


def test_options_are_those_of_the_standard_library() -> None:
    assert Open(1) != Open(1)  # without eq
    assert Open(2).double == 4  # kept beside the fields, without slots


def test_frozen_objects_are_copied_and_pickled() -> None:
    size = Size(1, 2)
    assert pickle.loads(pickle.dumps(size)) == copy.copy(size) == copy.deepcopy(size) == size
    assert pickle.loads(pickle.dumps(Open(2))).double == 4
