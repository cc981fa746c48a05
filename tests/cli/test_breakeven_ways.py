"""``accelsim breakeven``: rent against chip, and the ways to serve a model."""

from __future__ import annotations

import pytest

SERVICE = ("breakeven", "llama-3.1-8b", "--rate", "2", "--prompt", "300", "--output", "60")
CHIP = ("--asic", "tpu-v4i", "--asic-usd", "300", "--asic-nre-usd", "1e6")


def test_a_service_has_all_ways_in_one_table(run):
    ran = run(*SERVICE)
    assert ran.code == 0
    assert all(word in ran.out for word in ("rent", "buy", "colocate", "call", "a month"))
    rows = run(*SERVICE, "--format", "json").json
    assert {row["way"] for row in rows} == {"rent", "buy", "colocate", "call"}
    assert all(row["source"] for row in rows)


def test_the_reference_may_be_rented(run):
    bought, let = (
        run("breakeven", "resnet-50", *CHIP, *more, "--format", "json").json[0]
        for more in ((), ("--rent",))
    )
    assert let["reference_usd_per_demand"] > bought["reference_usd_per_demand"]
    assert let["volume"] < bought["volume"]


def test_a_reference_that_is_rented_needs_no_price_to_buy_it(run, refused):
    words = ("breakeven", "resnet-50", *CHIP, "--reference", "a10g")
    assert "--reference-usd" in refused(*words)
    assert run(*words, "--rent").code == 0


def test_the_street_price_is_the_default(run):
    own, street = (
        run("breakeven", "resnet-50", "--reference", "t4", *CHIP, *more, "--format", "json").json[0]
        for more in (("--reference-usd", "2000"), ())
    )
    assert own == street


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((*SERVICE, "--asic", "tpu-v4i"), "--rate"),
        (("breakeven", "resnet-50", *CHIP, "--rent", "--reference-usd", "1"), "--rent"),
        (("breakeven", "resnet-50", *CHIP, "--rent", "--reference", "zcu104"), "--rent"),
        ((*SERVICE, "--cached", "2"), "cached_fraction"),
        (("breakeven", "llama-3.1-8b", "--rate", "0"), "rate"),
        (("breakeven", "resnet-50", "--asic", "none.yaml"), "none.yaml"),
    ],
)
def test_what_cannot_be_is_refused_by_name(refused, words, says):
    assert says in refused(*words)
