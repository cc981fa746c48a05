"""Damaged files of every kind the command line reads end in a result or in one line that names the
file.
"""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
from functools import lru_cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from accelsim.cli import main
from accelsim.files.datafile import data_root

LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 100,
    "max_position_embeddings": 128,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
}


@lru_cache(maxsize=1)
def captured() -> str:
    """A small module as ``accelsim capture`` saves it."""
    torch = pytest.importorskip("torch")
    from accelsim.workloads.capture.torch.module import capture

    network = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 10)
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.json"
        capture(network, torch.empty(2, 1, 8, 8), training=True).save(path)
        return path.read_text(encoding="utf-8")


def shipped(*parts: str) -> str:
    return data_root().joinpath(*parts).read_text(encoding="utf-8")


FILES = {
    "device.yaml": (
        lambda: shipped("device_profiles", "gpu", "t4.yaml"),
        ("estimate", "lenet-5", "--device-file"),
    ),
    "cpu.yaml": (
        lambda: shipped("device_profiles", "cpu", "epyc-9654.yaml"),
        ("estimate", "lenet-5", "--device-file"),
    ),
    "fpga.yaml": (lambda: shipped("device_profiles", "fpga", "zcu102.yaml"), ("devices", "show")),
    "asic.yaml": (
        lambda: shipped("device_profiles", "asic", "tpu-v4.yaml"),
        ("estimate", "lenet-5", "--device-file"),
    ),
    "workload.yaml": (lambda: shipped("workloads", "lenet-5.yaml"), ("estimate", "-d", "t4")),
    "config.json": (
        lambda: json.dumps(LLAMA, indent=1),
        ("estimate", "-d", "t4", "--seq-len", "8", "--output-len", "2"),
    ),
    "captured.json": (captured, ("estimate", "-d", "t4")),
}
PIECES = [
    "",
    "null",
    "-1",
    "0",
    "1e308",
    "1e400",
    ".nan",
    "NaN",
    "[]",
    "{}",
    "true",
    '"x"',
    "\n",
    "  ",
    ": ",
    "- ",
    "&a",
    "\x00",
]


def run(arguments: list[str]) -> tuple[int, str]:
    out, err = io.StringIO(), io.StringIO()
    code: object = None
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(arguments)
        except SystemExit as stopped:
            code = stopped.code
    return int(code or 0), err.getvalue()  # type: ignore[call-overload]


def damaged(text: str, data: st.DataObject) -> str:
    """The text with up to three spans replaced: tokens, characters or whole lines."""
    for _ in range(data.draw(st.integers(1, 3), label="edits")):
        start = data.draw(st.integers(0, len(text)), label="start")
        kind = data.draw(st.sampled_from(["span", "line", "value"]), label="kind")
        if kind == "span":
            end = start + data.draw(st.integers(0, 12), label="length")
        else:
            start = text.rfind("\n" if kind == "line" else " ", 0, start) + 1
            found = text.find("\n" if kind == "line" else ",", start)
            end = len(text) if found < 0 else found
        text = text[:start] + data.draw(st.sampled_from(PIECES), label="piece") + text[end:]
    return text


@pytest.mark.parametrize("name", FILES)
def test_the_undamaged_file_is_read(tmp_path, name):
    make, command = FILES[name]
    path = tmp_path / name
    path.write_text(make(), encoding="utf-8")
    code, err = run([*command, str(path)])
    assert code == 0, err


@pytest.mark.parametrize("name", FILES)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_damaged_files_are_read_or_refused(tmp_path, name, data):
    make, command = FILES[name]
    path = tmp_path / name
    path.write_bytes(damaged(make(), data).encode("utf-8", "surrogatepass"))
    code, err = run([*command, str(path), "--format", "json"])
    assert code in {0, 2}, err
    assert "Traceback" not in err
    if code == 2:
        assert err.count("\n") == 1
