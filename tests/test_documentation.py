"""What the documentation shows can be done as shown."""

import importlib.util
import re
from pathlib import Path
from shutil import copytree

import pytest

import accelsim
from accelsim.catalog import load_device_file
from accelsim.catalog.clusters import load_cluster_file
from tools.documented import differences

ROOT = Path(__file__).resolve().parent.parent
#: Ages of prices are those of this day, 2026-11-22.
TODAY = "1795305600"


@pytest.fixture(autouse=True)
def _one_day(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", TODAY)


def blocks(page, language):
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.findall(
        rf"^```{language}(?: [^\n]*)?\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL
    )
    assert found, f"{page} has no {language} block"
    return found


@pytest.mark.parametrize("page", ["docs/devices.md", "device_profiles/README.md"])
def test_device_files_can_be_loaded(page, tmp_path):
    for number, text in enumerate(blocks(page, "yaml")):
        path = tmp_path / f"{number}.yaml"
        path.write_text(text, encoding="utf-8")
        assert (
            accelsim.estimate("resnet-50", load_device_file(path), precision="fp32").latency_s > 0
        )


def test_cluster_files_can_be_loaded(tmp_path):
    path = tmp_path / "mine.yaml"
    for text in blocks("docs/clusters.md", "yaml"):
        path.write_text(text, encoding="utf-8")
        assert load_cluster_file(path).device_count > 0


def test_workload_files_can_be_loaded(tmp_path):
    for number, text in enumerate(blocks("docs/workloads.md", "yaml")):
        path = tmp_path / f"{number}.yaml"
        path.write_text(text, encoding="utf-8")
        assert accelsim.estimate(str(path), "t4").latency_s > 0


def test_readme_figures_are_those_of_today(capsys):
    block = blocks("README.md", "python")[0]
    *calls, last = re.split(r"^# (.*)\n", block, flags=re.MULTILINE)[::2]
    assert not last.strip()
    shown = re.findall(r"^# (.*)$", block, flags=re.MULTILINE)
    names = {}
    for call in calls:
        exec(compile(call, "README.md", "exec"), names)
    printed = capsys.readouterr().out.splitlines()
    winners = names["table"].best("cost_usd_per_1000")
    assert differences("\n".join(shown), "\n".join([*printed, str(winners)])) == []


@pytest.mark.torch
def test_readme_captures_a_module(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    names = {
        "accelsim": accelsim,
        "MyModel": lambda: torch.nn.Linear(8, 4),
        "example_inputs": torch.empty(2, 8, device="meta"),
    }
    first, second = blocks("README.md", "python")
    assert "accelsim.capture" not in first
    exec(compile(second, "README.md", "exec"), names)
    assert names["workload"].captured.parameter_count == 36


def test_readme_shows_what_the_commands_print(monkeypatch, tmp_path):
    """Without the colours and cut where the page cuts, in a folder with the scenario to start from
    and the examples.
    """
    from typer.testing import CliRunner

    from accelsim.cli.app import command_tree
    from accelsim.cli.command_list import COMMANDS

    def words_of(line):
        given = line.split()[2:]
        pair = " ".join(given[:2])
        return [pair, *given[2:]] if pair in COMMANDS else given

    monkeypatch.setenv("COLUMNS", "100")
    named = blocks("README.md", "")
    copytree(ROOT / "examples" / "learn", tmp_path / "examples" / "learn")
    monkeypatch.chdir(tmp_path)
    CliRunner().invoke(command_tree(), ["init", "fleet.yaml"])
    for block in named:
        first, *shown = block.splitlines()
        if not first.startswith("$ accelsim "):
            continue
        printed = CliRunner().invoke(command_tree(), words_of(first)).stdout.splitlines()
        lines = [line.rstrip() for line in shown if line != "…"]
        assert differences("\n".join(lines), "\n".join(printed[: len(lines)])) == []


def test_every_command_is_documented():
    from typer.main import get_command

    from accelsim.cli.app import command_tree

    page = (ROOT / "docs" / "command_line.md").read_text(encoding="utf-8")
    missing = [
        name
        for name in get_command(command_tree()).commands
        if f"`{name}" not in page and f"accelsim {name}" not in page
    ]
    assert not missing


def test_pages_link_to_files_that_exist():
    for page in [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "examples").glob("*.md"),
    ]:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_page_of_the_api_shows_what_options_say():
    from types import SimpleNamespace

    path = ROOT / "docs" / "mkdocs" / "hooks.py"
    spec = importlib.util.spec_from_file_location("hooks", path)
    hooks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hooks)
    page = SimpleNamespace(file=SimpleNamespace(src_uri="api.md"))
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    lines = hooks.on_page_markdown(text, page).splitlines()
    assert "| `seq_len` | int, optional | Input tokens per sequence. |" in lines
    assert any(line.startswith("| `tp` |") and "≤ 100000" in line for line in lines)
    assert set(text.splitlines()) <= set(lines)
