"""The ``accelsim`` command: parse, call the library, print."""

from __future__ import annotations

from accelsim.cli.entry import main

__all__ = ["main"]
