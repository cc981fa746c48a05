"""Refuses arguments of a wrong type by name, as callers without a type checker pass them.

Annotations are the rule. They are texts (PEP 563) and name their classes: whether a value is of a
class is seen from the names of its own, so that nothing is imported for a check.
"""

from __future__ import annotations

import ast
import math
import os
from collections.abc import Callable, Iterable, Mapping
from functools import cache, wraps
from numbers import Integral, Real
from typing import Any, TypeVar, cast

import numpy as np

from accelsim.errors import InvalidValueError

_T = TypeVar("_T", bound=Callable[..., Any])
_Test = Callable[[object], bool]


def checked(target: _T) -> _T:
    """A function, or a class, that refuses arguments which are not of the types it names.

    Numbers of numpy are numbers; a truth value is none, nor is NaN or infinity.

    Raises:
        InvalidValueError: When called with one, by name.
    """
    if not isinstance(target, type):
        return _checked(target)
    wrapped: Any = target
    wrapped.__init__ = _checked(wrapped.__init__)
    return cast("_T", wrapped)


def _checked(function: _T) -> _T:
    code, types = function.__code__, function.__annotations__
    positional = code.co_varnames[: code.co_argcount]
    names = {*positional, *code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]}

    @wraps(function)
    def call(*args: Any, **keywords: Any) -> Any:
        for name, value in (*zip(positional, args, strict=False), *keywords.items()):
            if name in names and name in types and not _test(types[name])(value):
                raise InvalidValueError(name, value, _words(types[name]))
        return function(*args, **keywords)

    return cast("_T", call)


def _is_truth(value: object) -> bool:
    return isinstance(value, bool | np.bool_)


def _is_finite(value: object) -> bool:
    return isinstance(value, Real) and not _is_truth(value) and math.isfinite(value)


def _is_several(value: object) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim > 0
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)


def _is_array(kinds: str) -> _Test:
    return lambda value: isinstance(value, np.ndarray) and value.dtype.kind in kinds


def _is_numeric(value: object) -> bool:
    """Whether it is a number, or an array of finite ones is made of it."""
    try:
        numbers: Any = np.asarray(value)
    except (TypeError, ValueError):
        return False
    return numbers.dtype.kind in "iuf" and bool(np.isfinite(numbers).all())


_INTEGERS: tuple[str, _Test] = "an array of integers", _is_array("iu")
_MAPPING: tuple[str, _Test] = "a mapping", lambda value: isinstance(value, Mapping)
_SEVERAL: tuple[str, _Test] = "a sequence", _is_several
_TUPLE: tuple[str, _Test] = "a tuple", lambda value: isinstance(value, list | tuple)
_FUNCTION: tuple[str, _Test] = "a function", callable
#: Names of types that are no classes of their own -> the words for one, and whether a value is one.
_KINDS: Mapping[str, tuple[str, _Test]] = {
    "Any": ("any value", lambda _: True),
    "ArrayLike": ("finite numbers", _is_numeric),
    "bool": ("True or False", _is_truth),
    "int": ("an integer", lambda value: isinstance(value, Integral) and not _is_truth(value)),
    "float": ("a finite number", _is_finite),
    "str": ("text", lambda value: isinstance(value, str)),
    "Path": ("a path", lambda value: isinstance(value, os.PathLike)),
    "FloatArray": ("an array of numbers", _is_array("iuf")),
    "IntArray": _INTEGERS,
    "CodeArray": _INTEGERS,
    "Mapping": _MAPPING,
    "Values": _MAPPING,
    "Iterable": _SEVERAL,
    "Sequence": _SEVERAL,
    "tuple": _TUPLE,
    "Callable": _FUNCTION,
    "Progress": _FUNCTION,
    "DeviceProfile": ("a device profile", lambda value: hasattr(value, "device_class")),
    "StepTimes": ("a StepTimes", lambda value: hasattr(value, "decode_run")),
}


@cache
def _test(annotation: str) -> _Test:
    """Whether a value is of a type."""
    tests = [_test_of(node) for node in _union(annotation)]
    return tests[0] if len(tests) == 1 else lambda value: any(test(value) for test in tests)


def _union(annotation: str) -> list[ast.expr]:
    """Types that are joined by bars."""
    node, types = ast.parse(annotation, mode="eval").body, list[ast.expr]()
    while isinstance(node, ast.BinOp):
        types.insert(0, node.right)
        node = node.left
    return [node, *types]


def _name(node: ast.expr) -> str:
    """Name of a type without what it holds, "None" of nothing."""
    return ast.unparse(node).partition("[")[0].rpartition(".")[2]


def _test_of(node: ast.expr) -> _Test:
    name = _name(node)
    if name == "None":
        return lambda value: value is None
    if name not in _KINDS:
        return lambda value: name in {kind.__name__ for kind in type(value).__mro__}
    is_of_kind = _KINDS[name][1]
    if _KINDS[name] not in (_SEVERAL, _TUPLE) or not isinstance(node, ast.Subscript):
        return is_of_kind
    item = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) else node.slice
    is_item = _test(ast.unparse(item))
    return lambda value: is_of_kind(value) and all(map(is_item, _items(value)))


def _items(value: object) -> Iterable[object]:
    """Items to test: one of a column of numpy, which are of one type, but for its numbers that may
    be none.
    """
    if not isinstance(value, list | tuple | np.ndarray):
        return ()
    is_alike = isinstance(value, np.ndarray) and value.dtype.kind not in "fO"
    return value[:1] if is_alike else value


def _words(annotation: str) -> str:
    """What is expected, in words."""
    names = [_name(node) for node in _union(annotation)]
    return " or ".join(_KINDS.get(name, (f"a {name}",))[0] for name in names if name != "None")
