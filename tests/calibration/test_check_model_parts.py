"""What the parts of the check list's networks compute, against what they stand for."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from accelsim.calibration.check_models.language_models import (  # noqa: E402
    _Experts,
    _GatedMlp,
    _GroupedAttention,
    _Llama,
    _rotated,
)

pytestmark = pytest.mark.torch


def kept(attention, x, turns):
    """Rotated keys and values that a layer would keep."""
    keys, values = (
        part.view(*x.shape[:2], -1, attention.size).transpose(1, 2)
        for part in (attention.key_norm(attention.key(x)), attention.value(x))
    )
    return _rotated(keys, *turns), values


@pytest.mark.parametrize(
    "attention",
    [
        lambda: _GroupedAttention(32, 4, 2),
        lambda: _GroupedAttention(32, 4, 4, normed=True),
    ],
    ids=["plain", "normed"],
)
def test_a_step_with_a_cache_equals_the_whole_sequence(attention):
    torch.manual_seed(0)
    layers = [(attention(), _GatedMlp(32, 48)) for _ in range(2)]
    module = _Llama(32, layers, 50, base=1e4).eval()
    ids, past = torch.randint(50, (3, 6)), []
    hooks = [
        layer.register_forward_pre_hook(lambda own, args: past.extend(kept(own, *args[:2])))
        for layer in module.attention
    ]
    with torch.no_grad():
        whole = module(ids)
        for hook in hooks:
            hook.remove()
        step = module(ids[:, -1:], *[x[:, :, :-1] for x in past])
    assert torch.allclose(step, whole, atol=1e-5)


def test_experts_in_groups_equal_one_token_at_a_time():
    torch.manual_seed(0)
    module, x = _Experts(16, 24, experts=5, chosen=2), torch.randn(1, 11, 16)
    expected = torch.zeros(11, 16)
    weights, found = module.router(x[0]).softmax(-1).topk(2, -1)
    for token in range(11):
        for weight, expert in zip(weights[token], found[token], strict=True):
            gate, up = (module.wide[expert] @ x[0, token]).chunk(2)
            gated = torch.nn.functional.silu(gate) * up
            expected[token] += weight * (module.narrow[expert] @ gated)
    assert torch.allclose(module(x)[0], expected, atol=1e-5)
