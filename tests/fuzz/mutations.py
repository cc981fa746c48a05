"""Damage: values of a document replaced, dropped, doubled or put in other places, and its text cut
and spliced; everything drawn from one generator.
"""

from __future__ import annotations

import copy
import random
from typing import Any

__all__ = ["damaged", "spoiled"]

_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 2, 7, 10**3, 10**9, 2**53, 10**15, 10**30, -(10**20)),
    *(0.0, -0.5, 1e-300, 1e300, 1.5, float("nan"), float("inf"), float("-inf")),
    *("", " ", "x", "t4", "0", "1e9", "nan", "a/b/c", "=1+1", "\x1b[31m", "\u202e", "ü" * 300),
    *("../../etc/passwd", "fp16", "int8", "gpu", "2024-13-45", "lognormal:1e9:9", "9" * 400),
    *([], {}, [None], [[]], [1, 2, 3], {"a": {}}, {"value": 1}, [[[[[[[]]]]]]], ["x"] * 50),
)
_PIECES = ("", "null", "-1", "1e400", ".nan", "[]", "{}", '"', "\n", ": ", "- ", "&a", "*a", "\x00")
_PIECES += ("\ud800", "!!python/object:os.system", "<<", "9" * 50, ",", ",,,,", "\ufeff")


def damaged(document: Any, draw: random.Random) -> Any:
    """A copy with one to four places changed."""
    changed = copy.deepcopy(document)
    for _ in range(draw.randint(1, 4)):
        changed = _changed(changed, draw)
    return changed


def _changed(document: Any, draw: random.Random) -> Any:
    """The document with one place changed, at any depth."""
    if not isinstance(document, dict | list) or not document or draw.random() < 0.1:
        return _other(document, draw)
    keys = list(document) if isinstance(document, dict) else list(range(len(document)))
    key = draw.choice(keys)
    action = draw.random()
    if action < 0.75:
        document[key] = _changed(document[key], draw)
    elif action < 0.85:
        del document[key]
    elif isinstance(document, list):
        document.insert(draw.randrange(len(document) + 1), copy.deepcopy(document[key]))
    else:
        document[draw.choice(["x", "name", "value", "", key, draw.choice(keys)])] = copy.deepcopy(
            document[key]
        )
    return document


def _other(value: Any, draw: random.Random) -> Any:
    """Another value: any, or a number near the old one."""
    if isinstance(value, dict | list) and draw.random() < 0.2:
        return _levelled(value, draw.choice([0, 0.0, -1, 1e-300, 1e300, None]))
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and draw.random() < 0.5:
        scale = draw.choice([-1, 0, 0.5, 2, 1e3, 1e6, 1e12])
        return type(value)(value * scale) if abs(value) < 1e15 else value
    return copy.deepcopy(draw.choice(_VALUES))


def _levelled(value: Any, number: Any) -> Any:
    """The value with one number for all of its own."""
    if isinstance(value, dict):
        return {name: _levelled(one, number) for name, one in value.items()}
    if isinstance(value, list):
        return [_levelled(one, number) for one in value]
    return number if isinstance(value, int | float) and not isinstance(value, bool) else value


def spoiled(text: str, draw: random.Random) -> str:
    """The text with one to three spans replaced."""
    for _ in range(draw.randint(1, 3)):
        start = draw.randint(0, len(text))
        end = min(len(text), start + draw.choice([0, 0, 1, 3, 12, 80]))
        text = text[:start] + draw.choice(_PIECES) + text[end:]
    return text
