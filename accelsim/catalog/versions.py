"""Versions of software whose data covers ranges of them: which range a version asked for is in.

A range is stated as the version it starts at and the last one that was read. Patches, candidates
and post-releases (``0.5.6.post2``, ``1.1.0rc2``) are the release that they belong to.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

_RELEASE = re.compile(r"v?(\d+(?:\.\d+)*)(?:\.?(?:a|b|rc|post|dev)\d*(?:\.?(?:post|dev)\d*)?)?\Z")


class Span(NamedTuple):
    """Versions that are alike.

    Attributes:
        first: The first of them.
        last: The last that was read; the first where no other was.
    """

    first: str
    last: str

    @property
    def text(self) -> str:
        """Both ends, for people."""
        return self.first if self.last == self.first else f"{self.first} to {self.last}"


def release(version: str) -> tuple[int, ...] | None:
    """Numbers of a version's release; None if it is not numbered."""
    match = _RELEASE.match(version.strip().lower())
    return None if match is None else tuple(int(number) for number in match.group(1).split("."))


def span_below(version: str, spans: Sequence[Span]) -> Span | None:
    """The range that a version is in, or the nearest below it.

    Args:
        version: The version asked for.
        spans: Ranges, the newest first.

    Returns:
        None for versions before the first range, after the last, and without numbers.
    """
    if release(version) is None:
        return None
    if not (covers(spans[0], version) or is_before(version, spans[0])):
        return None
    return next((span for span in spans if not is_before(version, span)), None)


def is_before(version: str, span: Span) -> bool:
    """Whether a version is older than a range; one without numbers is not."""
    numbers, first = release(version), _numbers(span.first)
    return numbers is not None and numbers + (0,) * (len(first) - len(numbers)) < first


def covers(span: Span, version: str) -> bool:
    """Whether a version lies in a range; patches of its last release do."""
    numbers, last = release(version), _numbers(span.last)
    if numbers is None or is_before(version, span):
        return False
    return numbers[: len(last)] <= last


def _numbers(version: str) -> tuple[int, ...]:
    return release(version) or ()
