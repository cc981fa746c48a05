"""On 80 columns every command shows each figure that it shows on a wide terminal, and no line is
longer than the terminal.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

#: A number with what belongs to it: a sign, a prefix of its unit, a mark of the best.
_FIGURE = re.compile(r"\$?\d[\d,.]*\d|\d")

_COMMANDS = (
    "estimate llama-3.1-8b --device h100-sxm-80gb --batch 4",
    "estimate llama-3.1-8b --device h100-sxm-80gb --batches 1,4,16",
    "compare resnet-50 --devices t4,l4,zcu104,tpu-v5e --slo 20ms",
    "compare llama-3.1-8b --devices a100-sxm-80gb,h100-sxm-80gb",
    "train llama-3.1-8b --device h100-sxm-80gb --gpus 8 --batch 64 --search",
    "serve llama-3.1-8b --device h100-sxm-80gb --rate 2 --requests 20",
    "serve search llama-3.1-8b --devices h100-sxm-80gb,l4 --rate 2 --slo-tpot 50ms",
    "breakeven llama-3.1-8b --rate 20",
    "fits llama-3.1-8b --device rtx-3090",
    "devices list",
    "devices show t4",
    "workloads list",
    "workloads show resnet-50",
    "clusters list",
    "clusters show dgx-superpod-a100",
    "stacks list",
    "stacks show vllm",
    "offers list --device h100-sxm-80gb",
    "claims list",
    "accuracy",
    "accuracy --device t4",
    "doctor",
)


@pytest.mark.parametrize("command", _COMMANDS)
def test_no_figure_is_lost_on_eighty_columns(
    run: Callable[..., object], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    shown = {}
    for width in (80, 400):
        monkeypatch.setenv("COLUMNS", str(width))
        ran = run(*command.split(), "--quiet")
        assert ran.code == 0, ran.err
        assert max(map(len, ran.out.splitlines())) <= width
        assert "…" not in ran.out
        shown[width] = set(_FIGURE.findall(_without_times_of_the_run(ran.out)))
    assert shown[400] - shown[80] == set()


def _without_times_of_the_run(text: str) -> str:
    """A search says how long it took."""
    return re.sub(r"in [\d.,]+ m?s,|at [\d,]+ per s", "", text)
