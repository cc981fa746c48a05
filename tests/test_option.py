"""What options say of themselves, and the texts that their values are read from."""

from dataclasses import fields

import pytest

from accelsim.errors import InvalidValueError
from accelsim.estimation.options import PriceChoice, RunKeywords, RunOptions
from accelsim.option import argument, gigabytes, integers, option, read_texts, seconds, words
from accelsim.serving.loads.arrivals import Arrivals
from accelsim.serving.options import (
    Adapters,
    PoolOptions,
    ServiceClass,
    ServingOptions,
)
from accelsim.serving.replicas.autoscaling import ScalingPolicy
from accelsim.serving.speculation import Speculation


def parse(name: str):
    return next(one for one in fields(ServingOptions) if one.name == name).metadata["parse"]


@pytest.mark.parametrize(
    ("text", "time_s"), [("500ms", 0.5), ("2s", 2.0), ("3min", 180.0), ("500h", 1.8e6)]
)
def test_times_have_their_unit(text, time_s):
    assert seconds("slo", text) == pytest.approx(time_s)


@pytest.mark.parametrize("text", ["5", "ms", "5 days", ""])
def test_times_without_one_are_refused(text):
    with pytest.raises(InvalidValueError, match="a time with its unit"):
        seconds("slo", text)


def test_lists_and_sizes():
    assert words("devices", "l4, h100,") == ("l4", "h100")
    assert integers("tp", "1,2") == (1, 2)
    assert gigabytes("host_cache", "64GB") == 64e9
    with pytest.raises(InvalidValueError, match="whole numbers"):
        integers("tp", "1,x")
    with pytest.raises(InvalidValueError, match="a size in gigabytes"):
        gigabytes("host_cache", "64TB")


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("speculation", "4:0.8", Speculation(4, 0.8)),
        ("speculation", "4:0.8:llama-3.2-1b", Speculation(4, 0.8, "llama-3.2-1b")),
        ("adapters", "8", Adapters(8)),
        ("adapters", "8:32", Adapters(8, 32)),
        ("autoscale", "utilisation:0.7", ScalingPolicy("utilisation", 0.7)),
        ("autoscale", "queue:8:1-16", ScalingPolicy("queue", 8.0, 1, 16)),
        ("autoscale", "ttft:500ms", ScalingPolicy("ttft", 0.5)),
        ("autoscale", "itl:50ms:2-4", ScalingPolicy("itl", 0.05, 2, 4)),
        (
            "pools",
            "device=l4,replicas=4,model=llama-3.2-1b,share=0.3",
            PoolOptions("l4", 4, "llama-3.2-1b", 0.3),
        ),
        (
            "classes",
            "name=chat,ttft=300ms,share=0.3,priority=1",
            ServiceClass("chat", 0.3, 1, 0.3),
        ),
    ],
)
def test_values_with_parts_are_read_once(name, text, value):
    assert parse(name)(name, text) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("speculation", "4"),
        ("speculation", "x:0.8"),
        ("adapters", "many"),
        ("autoscale", "queue"),
        ("autoscale", "queue:8:1"),
        ("autoscale", "ttft:0.5"),
        ("autoscale", "itl"),
        ("pools", "replicas=4"),
        ("pools", "device=l4,colour=red"),
        ("pools", "device=l4,replicas=x"),
        ("classes", "ttft=300ms"),
        ("classes", "name=a,priority=x"),
    ],
)
def test_texts_of_another_form_are_refused_by_the_flag_s_name(name, text):
    with pytest.raises(InvalidValueError, match=rf"^{name}\b"):
        parse(name)(name, text)


def test_a_sweep_reads_the_same_texts():
    read = read_texts(ServingOptions, {"autoscale": "queue:8:1-16", "tp": 2, "pools": "device=l4"})
    assert ServingOptions(**read) == ServingOptions(
        autoscale=ScalingPolicy("queue", 8.0, 1, 16), tp=2, pools=(PoolOptions("l4"),)
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ServingOptions(tp=0), "tp = 0 .* a whole number from 1 to 100,000"),
        (lambda: Adapters(0), "count = 0 .* a whole number from 1 to 100,000"),
        (lambda: Arrivals(rate_per_s=1, cv=1000.0), "cv = 1000.0 .* 0.001 to 100"),
        (lambda: Arrivals(rate_per_s=1, prefixes=-1), "prefixes = -1 .* from 0 to 100,000,000"),
    ],
)
def test_values_out_of_their_range_are_refused(make, message):
    with pytest.raises(InvalidValueError, match=message):
        make()


def test_a_default_is_kept_and_an_argument_has_no_flag():
    assert option("Sizes.", 3).default == 3
    assert option("Sizes.").default is None
    assert argument("A file.").metadata["flags"] == ""


@pytest.mark.parametrize("kind", [RunOptions, PriceChoice, ServingOptions, Arrivals])
def test_options_say_what_they_are(kind):
    for entry in fields(kind):
        about = entry.metadata.get("help", "Of the library alone.")
        assert about.endswith((".", "..."))


def test_keywords_are_the_fields():
    groups = {"model", "shape", "training"}
    own = {entry.name for entry in fields(RunOptions)} - groups
    for entry in fields(RunOptions):
        if entry.name in groups:
            own |= {one.name for one in fields(entry.default_factory)}
    assert own == set(RunKeywords.__annotations__)
