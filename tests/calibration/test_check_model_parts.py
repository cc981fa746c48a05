"""What the parts of the check list's networks compute, against what they stand for."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from accelsim.calibration.check_models.language_models import (  # noqa: E402
    _Experts,
    _GatedMlp,
    _Llama,
    _Olmoe,
    _rotated,
)
from accelsim.calibration.check_models.sequences import _RecurrentConvolution  # noqa: E402
from accelsim.calibration.check_models.tables_and_graphs import (  # noqa: E402
    _gathered,
    _Policy,
)

pytestmark = pytest.mark.torch


def kept(attention, x, turns):
    """Rotated keys and values that a layer would keep."""
    _, keys, values = (
        part.view(*x.shape[:2], -1, attention.size).transpose(1, 2) for part in attention._parts(x)
    )
    return _rotated(keys, *turns), values


@pytest.mark.parametrize(
    "decoder",
    [
        lambda layers: _Llama(32, (4, 2), layers, 50, base=1e4),
        lambda layers: _Olmoe(32, 4, layers, 50),
    ],
    ids=["plain", "normed"],
)
def test_a_step_with_a_cache_equals_the_whole_sequence(decoder):
    torch.manual_seed(0)
    module = decoder([_GatedMlp(32, 48) for _ in range(2)]).eval()
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


def test_neighbours_are_gathered_as_by_a_matrix():
    torch.manual_seed(0)
    near, far = torch.randint(5, (2, 12))
    x, weights, matrix = torch.randn(5, 3), torch.rand(12), torch.zeros(5, 5)
    matrix.index_put_((far, near), weights, accumulate=True)
    assert torch.allclose(_gathered(x, near, far, weights), matrix @ x, atol=1e-6)


def test_each_word_has_what_is_before_and_behind_it():
    network, ids = _RecurrentConvolution(20, 4, 3, 5, 2).eval(), torch.randint(20, (1, 6))
    with torch.no_grad():
        x, layer = network.word(ids)[0], network.layer
        ways = []
        for order, end in ((range(6), ""), (range(5, -1, -1), "_reverse")):
            weights = [
                getattr(layer, f"{name}_l0{end}")
                for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            ]
            h, seen = torch.zeros(3), {}
            for n in order:
                seen[n] = h
                h = torch.tanh(weights[0] @ x[n] + weights[2] + weights[1] @ h + weights[3])
            ways.append(torch.stack([seen[n] for n in range(6)]))
        y = torch.tanh(network.join(torch.cat([ways[0], x, ways[1]], 1)))
        assert torch.allclose(network(ids)[0], network.head(y.amax(0)), atol=1e-6)


def test_actions_are_as_surprising_as_their_distribution_says():
    policy, x = _Policy(5, 3, 8, 1.0), torch.randn(4, 5)
    torch.manual_seed(0)
    actions, surprise = policy(x)
    y = policy.layers(x)
    normal = torch.distributions.Normal(policy.mean(y), policy.spread(y).clamp(-20, 2).exp())
    bent = torch.distributions.TransformedDistribution(
        normal, [torch.distributions.TanhTransform()]
    )
    assert torch.allclose(surprise, bent.log_prob(actions).sum(-1), atol=1e-3)
