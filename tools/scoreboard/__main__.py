"""``accelsim validate`` with all suites, those over tables that do not ship included."""

from accelsim.cli.entry import main

main(program="python -m tools.scoreboard", command="validate")
