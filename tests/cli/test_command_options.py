"""Flags are made of what options say, and give the options back."""

from __future__ import annotations

from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from accelsim.cli.options import with_help
from accelsim.estimation.options import PriceChoice, RunOptions
from accelsim.frozen import frozen
from accelsim.option import argument, option, seconds
from accelsim.plain import Document


@frozen
class Wait:
    """A class of options."""

    wait_s: float | None = option("How long.", metavar="TIME", flags="--wait", parse=seconds)
    day_s: float = option("A day.", 86_400.0, flags="--hours", scale=3600.0)
    known: bool = option("Nothing is known.", True, flags="--unknown")
    count: int = option("How many.", 3)
    inner: str = "no flag"


taken: dict[str, object] = {}


@with_help
def command(
    wait: Wait,
    run: RunOptions,
    price: PriceChoice,
    name: str = argument("A name."),
    batch: str = option("In place of the run's.", "all"),
) -> None:
    """Take them."""
    taken.update(wait=wait, run=run, price=price, name=name, batch=batch)


@with_help
def given(wait: Annotated[Document, Wait, "count"], name: str = argument("A name.")) -> None:
    """Take what is given."""
    taken.update(wait=wait, name=name)


def called(function, *words):
    taken.clear()
    app = typer.Typer()
    app.command()(function)
    ran = CliRunner().invoke(app, list(words))
    assert ran.exit_code == 0, ran.output
    return ran.output


def test_what_is_left_out_is_the_class_s_default():
    called(command, "x")
    assert taken == {
        "wait": Wait(),
        "run": RunOptions(),
        "price": PriceChoice(),
        "name": "x",
        "batch": "all",
    }


def test_flags_are_read_as_their_fields():
    words = ("--wait", "500ms", "--hours", "2", "--unknown", "--count", "4", "--seq-len", "7")
    called(command, "x", *words, "--batch", "some", "--unfused-attention", "--region", "eu-*")
    assert taken["wait"] == Wait(wait_s=0.5, day_s=7200.0, known=False, count=4)
    assert taken["run"].shape.seq_len == 7
    assert taken["run"].shape.batch is None
    assert not taken["run"].model.fused_attention
    assert taken["price"].region == "eu-*"
    assert taken["batch"] == "some"


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ((), {}),
        (("--wait", "2s", "--hours", "24"), {"wait_s": 2.0}),
        (("--unknown",), {"known": False}),
    ],
)
def test_what_is_given_is_what_differs(words, found):
    called(given, "x", *words)
    assert taken["wait"] == found


def test_the_help_says_what_the_options_say():
    page = called(command, "--help")
    assert "--hours" in page
    assert "[default: 24.0]" in page
    assert "In place of the run's." in page
    assert "Samples or sequences per batch." not in page
    assert "--count" not in called(given, "--help")
