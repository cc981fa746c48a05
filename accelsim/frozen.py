"""Frozen dataclasses that are defined in a third of the time.

`dataclasses` compiles each method of a class on its own: six for a frozen one, 1.2 ms against 0.35
ms here, and a command defines about 80 classes before it starts. Here only ``__init__`` is compiled
(what it does depends on the fields); the other methods are shared by all classes.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any, NoReturn, TypeVar, dataclass_transform, overload

_T = TypeVar("_T")


@overload
def frozen(cls: type[_T], /) -> type[_T]: ...
@overload
def frozen(
    *, slots: bool = ..., eq: bool = ..., repr: bool = ..., kw_only: bool = ...
) -> Callable[[type[_T]], type[_T]]: ...
@dataclass_transform(frozen_default=True)
def frozen(cls: Any = None, /, **options: Any) -> Any:
    """A frozen dataclass with slots; options, fields and functions (`replace`, `fields`, `asdict`)
    are those of the standard library. All fields are parameters of the constructor.
    """
    if cls is None:
        return partial(frozen, **options)
    return _frozen(cls, **options)


def _frozen(
    cls: type,
    *,
    slots: bool = True,
    eq: bool = True,
    repr: bool = True,  # noqa: A002
    **options: Any,
) -> type:
    """A frozen class of the fields of a plain one."""
    cls.__doc__ = cls.__doc__ or cls.__name__  # else it is made of a signature
    made: type = dataclasses.dataclass(
        cls, init=False, repr=False, eq=False, slots=slots, **options
    )
    methods = {"__init__": _constructor(made), **_FROZEN}
    methods |= {"__repr__": _text} if repr else {}
    methods |= _compared(made) if eq else {}
    for name, method in methods.items():
        if cls.__dict__.get(name) is None:  # a class keeps what it defines itself
            setattr(made, name, method)
    return made


def _constructor(cls: type) -> Callable[..., None]:
    """``__init__`` that sets each field of a frozen class, then calls ``__post_init__``."""
    names: dict[str, Any] = {"_set": object.__setattr__, "_missing": dataclasses.MISSING}
    positional, keyword_only = ["self"], list[str]()
    body: list[str] = []
    for entry in dataclasses.fields(cls):
        name, given, value = entry.name, entry.name, entry.name
        if entry.default is not dataclasses.MISSING:
            names[f"_default_{name}"] = entry.default
            given = f"{name}=_default_{name}"
        elif entry.default_factory is not dataclasses.MISSING:
            names[f"_make_{name}"] = entry.default_factory
            given = f"{name}=_missing"
            value = f"_make_{name}() if {name} is _missing else {name}"
        (keyword_only if entry.kw_only else positional).append(given)
        body.append(f"  _set(self, {name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        body.append("  self.__post_init__()")
    listed = ", ".join([*positional, *(["*", *keyword_only] if keyword_only else [])])
    # within a function of those names, so that its globals are the module's
    source = [f"def make({', '.join(names)}):", f" def __init__({listed}):", *body]
    found: dict[str, Any] = {}
    exec("\n".join([*source, " return __init__"]), vars(sys.modules[cls.__module__]), found)  # noqa: S102
    constructor: Callable[..., None] = found["make"](**names)
    constructor.__qualname__ = f"{cls.__qualname__}.__init__"
    types = {entry.name: entry.type for entry in dataclasses.fields(cls)}
    constructor.__annotations__ = {**types, "return": None}
    return constructor


def _compared(cls: type) -> dict[str, Callable[..., Any]]:
    """``__eq__`` and ``__hash__`` over the fields that are compared."""
    entries = dataclasses.fields(cls)
    compared = _values([entry.name for entry in entries if entry.compare])
    hashed = _values(
        [entry.name for entry in entries if (entry.compare if entry.hash is None else entry.hash)]
    )

    def is_equal(self: Any, other: object) -> Any:
        if other.__class__ is self.__class__:
            return compared(self) == compared(other)
        return NotImplemented

    return {"__eq__": is_equal, "__hash__": lambda self: hash(hashed(self))}


def _values(names: list[str]) -> Callable[[Any], Any]:
    """What reads the attributes of those names as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda self: tuple([getattr(self, name) for name in names])


def _text(self: Any) -> str:
    shown = (entry.name for entry in dataclasses.fields(self) if entry.repr)
    values = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
    return f"{type(self).__qualname__}({values})"


def _refuse_set(_self: Any, name: str, _value: Any) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_delete(_self: Any, name: str) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> dict[str, Any]:
    """Fields by name, for pickles and copies, and what a class without slots keeps beside them."""
    fields = {entry.name: getattr(self, entry.name) for entry in dataclasses.fields(self)}
    return {**getattr(self, "__dict__", {}), **fields}


def _restore(self: Any, state: dict[str, Any]) -> None:
    for name, value in state.items():
        object.__setattr__(self, name, value)


_FROZEN = {
    "__setattr__": _refuse_set,
    "__delattr__": _refuse_delete,
    "__getstate__": _state,
    "__setstate__": _restore,
}
