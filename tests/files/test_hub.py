"""Checkpoints by their id: a cache that is stored here, answers of a Hub that is none."""

from __future__ import annotations

import importlib
import json
import shutil

import pytest

import accelsim
from accelsim.cli import main
from accelsim.errors import InvalidValueError, MissingDependencyError, UnknownNameError
from accelsim.files.hub import hub_folder
from accelsim.files.plainfile import READ_BELOW

hub = pytest.importorskip("huggingface_hub")
httpx = importlib.import_module(type(hub.get_session()).__module__)  # differs by version
constants = pytest.importorskip("huggingface_hub.constants")

CONFIG = {
    "model_type": "qwen3",
    "vocab_size": 1000,
    "hidden_size": 128,
    "intermediate_size": 320,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "torch_dtype": "bfloat16",
}
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture(autouse=True)
def _no_network(tmp_path, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))


@pytest.fixture
def cached(tmp_path):
    """The folder of a repository in the cache."""
    folder = tmp_path / "hub" / "models--Qwen--Qwen3-Small"
    snapshot = folder / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(COMMIT)
    (snapshot / "config.json").write_text(json.dumps(CONFIG))
    return snapshot


def answering(monkeypatch, answer):
    """A Hub that gives an answer to everything."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    client = httpx.Client(transport=httpx.MockTransport(answer))
    hub.set_client_factory(lambda: client)


@pytest.fixture(autouse=True)
def _own_client():
    yield
    hub.set_client_factory(httpx.Client)


def test_a_repository_in_the_cache_is_estimated_under_its_own_name(cached):
    answer = accelsim.estimate("hub:Qwen/Qwen3-Small", "rtx-4090")
    same = accelsim.estimate(str(cached), "rtx-4090")
    assert answer.workload == "qwen3-small"
    assert answer.latency_s == pytest.approx(same.latency_s)
    assert not answer.warnings


def test_the_index_says_what_is_left_out(cached):
    index = cached / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {"total_size": 9_000_000}, "weight_map": {}}))
    answer = accelsim.estimate("hub:Qwen/Qwen3-Small", "rtx-4090")
    assert any("its files hold 9.00 MB" in one for one in answer.warnings), answer.warnings


def test_what_is_not_there_is_said(cached):
    with pytest.raises(InvalidValueError, match=r"hub = 'Qwen/Other'.* in the cache"):
        accelsim.workload("hub:Qwen/Other")
    with pytest.raises(InvalidValueError, match="an id of the Hub"):
        accelsim.workload("hub:Qwen//Qwen3..")
    shutil.rmtree(cached)
    with pytest.raises(InvalidValueError, match="in the cache"):
        accelsim.workload("hub:Qwen/Qwen3-Small")
    with pytest.raises(UnknownNameError, match="Hub: hub:Qwen/Qwen3-Small"):
        accelsim.workload("Qwen/Qwen3-Small")


@pytest.mark.parametrize(
    ("status", "code", "words"),
    [
        (401, "RepoNotFound", "a repository of the Hub"),
        (403, "GatedRepo", "Accept its terms"),
        (404, "EntryNotFound", r"with a config\.json"),
    ],
)
def test_refusals_of_the_hub_are_typed(monkeypatch, status, code, words):
    def answer(request):
        return httpx.Response(status, headers={"X-Error-Code": code}, request=request)

    answering(monkeypatch, answer)
    with pytest.raises(InvalidValueError, match=words):
        hub_folder("Qwen/Qwen3-Small")


def test_without_a_network_the_cache_is_read(cached, monkeypatch):
    asked = []

    def answer(request):
        asked.append(request.url.path)
        raise httpx.ConnectError("no route")

    answering(monkeypatch, answer)
    assert hub_folder("Qwen/Qwen3-Small") == cached
    assert asked == ["/Qwen/Qwen3-Small/resolve/main/config.json"]


def test_weights_are_never_fetched(tmp_path, monkeypatch):
    def answer(request):
        name = request.url.path.rpartition("/")[2]
        raw = json.dumps(CONFIG).encode()
        about = {"ETag": '"1"', "X-Repo-Commit": COMMIT, "Content-Length": str(len(raw))}
        if name != "config.json":
            code = {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT}
            return httpx.Response(404, headers=code, request=request)
        asked.append((request.method, name))
        return httpx.Response(200, headers=about, content=raw, request=request)

    asked: list[tuple[str, str]] = []
    answering(monkeypatch, answer)
    folder = hub_folder("Qwen/Qwen3-Small")
    assert [path.name for path in folder.iterdir()] == ["config.json"]
    assert ("GET", "config.json") in asked


def test_the_extra_and_the_folder_of_a_server_are_named(monkeypatch, tmp_path):
    token = READ_BELOW.set((tmp_path,))
    with pytest.raises(InvalidValueError, match="nothing is fetched here"):
        hub_folder("Qwen/Qwen3-Small")
    READ_BELOW.reset(token)
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    with pytest.raises(MissingDependencyError, match=r"accelsim\[hub\]"):
        hub_folder("Qwen/Qwen3-Small")


def test_the_command_line_asks_with_a_flag(cached, capsys):
    for words in (["estimate"], ["fits", "--format", "json"]):
        with pytest.raises(SystemExit) as ended:
            main([*words, "Qwen/Qwen3-Small", "--hub", "-d", "rtx-4090"])
        told = capsys.readouterr()
        assert (ended.value.code, told.err) == (0, "")
        assert "qwen3-small" in told.out
    assert "vllm serve Qwen/Qwen3-Small " in told.out
    with pytest.raises(SystemExit) as ended:
        main(["estimate", "Qwen/Other", "--hub", "-d", "rtx-4090"])
    told = capsys.readouterr().err
    assert ended.value.code == 2
    assert told.startswith("error: hub = 'Qwen/Other' is not allowed")
    assert told.count("\n") == 1
