"""``accelsim validate`` with all suites, those over tables that do not ship included."""

import sys

from accelsim.cli.entry import main

main(["validate", *sys.argv[1:]])
