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


def test_options_are_those_of_the_standard_library() -> None:
    assert Open(1) != Open(1)  # without eq
    assert Open(2).double == 4  # kept beside the fields, without slots


def test_frozen_objects_are_copied_and_pickled() -> None:
    size = Size(1, 2)
    assert pickle.loads(pickle.dumps(size)) == copy.copy(size) == copy.deepcopy(size) == size
    assert pickle.loads(pickle.dumps(Open(2))).double == 4
