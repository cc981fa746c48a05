"""Types of plain values by name, as JSON and YAML have them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

#: What is read.
Values: TypeAlias = Mapping[str, Any]
#: What is made.
Document: TypeAlias = dict[str, Any]
