"""The scoreboard of a checkout is a program of its own, and says so."""

import pytest

from accelsim.cli.entry import main
from accelsim.cli.report_file import command_text

PROGRAM = "python -m tools.scoreboard"


@pytest.mark.parametrize("words", [["--help"], ["--nosuch"]])
def test_help_and_refusals_name_the_program(words, capsys):
    with pytest.raises(SystemExit):
        main(words, program=PROGRAM, command="validate")
    told = capsys.readouterr()
    assert f"Usage: {PROGRAM} [OPTIONS] [SUITE]..." in told.out + told.err
    assert "accelsim validate" not in told.out + told.err


def test_pages_name_the_command_that_made_them():
    with pytest.raises(SystemExit):
        main(["tpu-v1", "--tier", "nosuch", "--force"], program=PROGRAM, command="validate")
    assert command_text() == f"{PROGRAM} tpu-v1 --tier nosuch"
