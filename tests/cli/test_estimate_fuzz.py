"""Any arguments of ``accelsim estimate`` end in a result or in one line: exit code 0 or 2, never a
traceback.
"""

from __future__ import annotations

import contextlib
import io
import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accelsim.cli import main

MODELS = ("resnet-18", "lenet-5", "bert-base", "gpt2", "no-such", "", "-", "x.json", "/")
DEVICES = (
    "t4",
    "epyc-9654",
    "tpu-v4",
    "zcu102",
    "t4@fraction=0.5",
    "epyc-7763@4vcpu",
    "no-such",
    "",
    "@",
    "a@b@c",
)
numbers = st.one_of(
    st.integers(1, 64).map(str),
    st.integers(-(10**20), 10**20).map(str),
    st.sampled_from(["0", "1e3", "nan", "inf", "", "0x10", "1_000", "٣", "²"]),
)
words = st.one_of(
    st.text(max_size=12),
    st.sampled_from(["fp16", "int8", "fp32", "training", "eager", "graph", "sgd"]),
)
OPTIONS = {
    "--batch": numbers,
    "--seq-len": numbers,
    "--output-len": numbers,
    "--image-size": numbers,
    "--usd-per-hour": numbers,
    "--precision": words,
    "--mode": st.one_of(st.sampled_from(["training", "inference"]), words),
    "--execution": st.one_of(st.sampled_from(["eager", "graph", "compiled"]), words),
    "--optimizer": words,
    "--host": st.one_of(st.sampled_from(DEVICES), words),
    "--offer": words,
}


def run(arguments: list[str]) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    code: object = None
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(arguments)
        except SystemExit as stopped:
            code = stopped.code
    return int(code or 0), out.getvalue(), err.getvalue()  # type: ignore[call-overload]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    model=st.one_of(st.sampled_from(MODELS), st.text(max_size=20)),
    device=st.one_of(st.sampled_from(DEVICES), st.text(max_size=20)),
    names=st.lists(st.sampled_from(sorted(OPTIONS)), max_size=4, unique=True),
    data=st.data(),
)
def test_any_arguments_end_in_a_result_or_a_line(model, device, names, data):
    arguments = ["estimate", "--device", device, "--format", "json"]
    for name in names:
        arguments += [name, data.draw(OPTIONS[name], label=name)]
    code, out, err = run([*arguments, "--", model])
    assert code in {0, 2}, err
    assert "Traceback" not in err
    if code == 0:
        json.loads(out, parse_constant=lambda name: (_ for _ in ()).throw(AssertionError(name)))
    else:
        assert out == ""
        assert err
