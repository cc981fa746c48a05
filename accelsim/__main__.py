"""``python -m accelsim``: the command, where its script is not on the path."""

from accelsim.cli import main

main()
