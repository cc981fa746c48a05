"""Runs the command line as ``python -m accelsim.cli``."""

from __future__ import annotations

from accelsim.cli.entry import main

if __name__ == "__main__":
    main()
