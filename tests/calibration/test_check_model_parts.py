"""What the parts of the check list's networks compute, against what they stand for."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from accelsim.calibration.check_models.fifth.language_models import _LocalBlock  # noqa: E402
from accelsim.calibration.check_models.fifth.pixels import _Raft  # noqa: E402
from accelsim.calibration.check_models.fifth.sequences import Tagger  # noqa: E402
from accelsim.calibration.check_models.fourth.language_models import Experts, GatedMlp, Gpt, Llama  # noqa: E402
from accelsim.calibration.check_models.fourth.transformers import (  # noqa: E402
    Attention,
    WrittenAttention,
    joined,
    shift_mask,
    windows,
)
from accelsim.calibration.check_models.language_models import _Olmoe, weighed  # noqa: E402
from accelsim.calibration.check_models.pixels import standardized  # noqa: E402
from accelsim.calibration.check_models.sequences import RecurrentConvolution, stretched  # noqa: E402
from accelsim.calibration.check_models.seventh.language_models import (  # noqa: E402
    Dispatched,
    _FunnelAttention,
    _halved_places,
    shifted,
)
from accelsim.calibration.check_models.seventh.pixels import correlated  # noqa: E402
from accelsim.calibration.check_models.seventh.sequences import (  # noqa: E402
    StateSpaceModel,
    _Demucs,
    demucs_length,
    stroke_density,
)
from accelsim.calibration.check_models.seventh.tables_and_graphs import Summary, softmax_of_groups  # noqa: E402
from accelsim.calibration.check_models.sixth.language_models import (  # noqa: E402
    _Dbrx,
    _LandmarkAttention,
    _StableLm,
    scanned,
)
from accelsim.calibration.check_models.sixth.pixels import _FlowStep  # noqa: E402
from accelsim.calibration.check_models.sixth.sequences import SimpleUnit  # noqa: E402
from accelsim.calibration.check_models.sixth.tables_and_graphs import gathered  # noqa: E402
from accelsim.calibration.check_models.tables_and_graphs import Policy, pairs_by_matrices  # noqa: E402
from accelsim.calibration.check_models.transformers import (  # noqa: E402
    _WindowAttention,
    linear_attention,
    log_spaced,
)

pytestmark = pytest.mark.torch


def kept(attention, x, turns):
    """Rotated keys and values that a layer would keep."""
    k, v = (
        part.view(*x.shape[:2], -1, attention.size).transpose(1, 2)
        for part in attention._parts(x)[1:]
    )
    return attention._turned(k, turns), v


def gated(count=2):
    return [GatedMlp(32, 48) for _ in range(count)]


@pytest.mark.parametrize(
    "decoder",
    [
        lambda: Llama(32, (4, 2), gated(), 50, tied=True, base=1e4),
        lambda: Llama(32, (4, 2), gated(), 50, tied=True, base=1e4, biased=True, scale=0.5),
        lambda: _StableLm(64, 4, [GatedMlp(64, 48)], 50),
        lambda: _Dbrx(32, (4, 2), gated(), 50),
        lambda: _Olmoe(32, 4, gated(), 50),
    ],
    ids=["plain", "biased and scaled", "partly turned", "clipped", "normed"],
)
def test_a_step_with_a_cache_equals_the_whole_sequence(decoder):
    torch.manual_seed(0)
    module = decoder().eval()
    assert_a_step_equals_the_whole(module, module.attention, lambda own, args: kept(own, *args[:2]))


def assert_a_step_equals_the_whole(module, layers, cached):
    """The last word given the keys and values that `layers` kept of the words before, as `cached`
    finds them.
    """
    ids, past = torch.randint(50, (3, 6)), []
    hooks = [
        layer.register_forward_pre_hook(lambda own, args: past.extend(cached(own, args)))
        for layer in layers
    ]
    with torch.no_grad():
        whole = module(ids)
        for hook in hooks:
            hook.remove()
        step = module(ids[:, -1:], *[x[:, :, :-1] for x in past])
    assert torch.allclose(step, whole, atol=1e-5)


def test_states_scanned_in_stretches_equal_one_step_at_a_time():
    torch.manual_seed(0)
    x, a = torch.randn(2, 12, 3, 5), -torch.rand(2, 12, 3)
    b, c = torch.randn(2, 2, 12, 3, 4)
    state, expected = torch.zeros(2, 3, 5, 4), []
    for t in range(12):
        state = state * a[:, t].exp()[..., None, None] + x[:, t, :, :, None] * b[:, t, :, None, :]
        expected.append((state * c[:, t, :, None, :]).sum(-1))
    assert torch.allclose(scanned(x, a, b, c, 4), torch.stack(expected, 1), atol=1e-5)


def test_landmarks_are_inverted_step_by_step():
    torch.manual_seed(0)
    x = (torch.eye(8) * 4 + torch.randn(8, 8)).softmax(-1).expand(1, 2, 8, 8)
    assert torch.allclose(
        _LandmarkAttention.inverted(x) @ x, torch.eye(8).expand(1, 2, 8, 8), atol=1e-3
    )


def test_a_flow_knows_what_it_does_to_volumes():
    torch.manual_seed(0)
    step, x = _FlowStep(4, 8), torch.randn(1, 4, 2, 2)
    for parameter in step.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    jacobian = torch.autograd.functional.jacobian(lambda y: step(y, torch.zeros(1))[0], x).view(
        16, 16
    )
    assert step(x, torch.zeros(1))[1].item() == pytest.approx(
        torch.linalg.slogdet(jacobian)[1].item(), abs=1e-4
    )


def test_a_simple_unit_that_forgets_all_is_a_highway():
    torch.manual_seed(0)
    unit, x = SimpleUnit(6, 6, 0.0).eval(), torch.randn(5, 2, 6)
    with torch.no_grad():
        unit.bias[:6] = -1e9  # forgets the state
        unit.bias[6:] = 1e9  # lets all of the new out
        assert torch.allclose(unit(x), (x @ unit.weight).view(5, 2, 6, 3)[..., 0], atol=1e-6)
        unit.bias[6:] = -1e9
        assert torch.allclose(unit(x), x)


def test_experts_in_groups_equal_one_token_at_a_time():
    torch.manual_seed(0)
    module, x = Experts(16, 24, experts=5), torch.randn(1, 11, 16)
    expected = torch.zeros(11, 16)
    weights, found = module.router(x[0]).softmax(-1).topk(2, -1)
    for token in range(11):
        for weight, expert in zip(weights[token] / weights[token].sum(), found[token], strict=True):
            gate, up = (module.wide[expert] @ x[0, token]).chunk(2)
            expected[token] += weight * (
                module.narrow[expert] @ (torch.nn.functional.silu(gate) * up)
            )
    assert torch.allclose(module(x)[0], expected, atol=1e-5)


@pytest.mark.parametrize("tokens", [11, 1])
def test_experts_by_one_hot_products_equal_one_token_at_a_time(tokens):
    torch.manual_seed(0)
    module, x = Dispatched(16, 24, 5).eval(), torch.randn(1, tokens, 16)
    expected = torch.zeros(tokens, 16)
    weights, found = module.router(x[0]).softmax(-1).topk(2, -1)
    for token in range(tokens):
        for weight, expert in zip(weights[token] / weights[token].sum(), found[token], strict=True):
            expected[token] += weight * module.experts[expert](x[0, token])
    assert torch.allclose(module(x)[0], expected, atol=1e-5)


def test_experts_have_no_room_for_more_than_twice_their_share_in_training():
    torch.manual_seed(0)
    module = Dispatched(16, 24, 4).train()
    with torch.no_grad():
        module.router.weight[2:] = 0.0
        module.router.weight[:2] = torch.ones(2, 16) * torch.tensor([[2.0], [1.0]])
    shares = module._shares(torch.ones(9, 16))  # all want the first two
    assert shares.shape == (9, 4, 6)
    assert (shares > 0).sum((0, 2)).tolist() == [6, 6, 0, 0]
    assert torch.allclose(shares[:6].sum((1, 2)), torch.ones(6), atol=1e-5)


def test_a_step_of_gpt_with_a_cache_equals_the_whole_sequence():
    def cached(own, args):
        parts = own.parts(own.norm1(args[0])).chunk(3, -1)[1:]
        return [t.unflatten(-1, (4, 8)).transpose(1, 2) for t in parts]

    torch.manual_seed(0)
    module = Gpt(32, 4, 2, 50, last=True).eval()
    assert_a_step_equals_the_whole(module, module.blocks, cached)


def test_distances_become_places():
    n, m = 3, 7
    x = torch.arange(m - 1.0, -1.0, -1.0)[None, :, None].expand(
        n, m, 1
    )  # each column holds its distance
    found = shifted(x)[..., 0]
    places, queries = torch.arange(m)[None, :], torch.arange(n)[:, None] + m - n
    assert torch.equal(found[places <= queries], (queries - places)[places <= queries].float())


def test_places_of_a_shrunk_sequence_are_looked_up_by_their_distance():
    torch.manual_seed(0)
    module = _FunnelAttention(8, 2, 0.0)
    torch.nn.init.normal_(module.distance)
    q, sines = torch.randn(1, 4, 2, 4), torch.randn(100, 8)
    places = [0, 1, 2, 3, 4, 5, 6, 7]
    halved = _halved_places(places, 1)
    assert halved == [-1, 1, 3, 5]
    most = halved[0] - places[0] + 2 * len(halved)
    rows = sines[[50 + d for d in range(most, halved[0] - places[-1] - 1, -1)]]
    with torch.no_grad():
        found = module._placed(q, rows, len(places), 2)
        scores = torch.einsum("binh,dnh,td->bnit", q, module.distance, sines)
    for i, asking in enumerate(halved):
        for j, place in enumerate(places):
            assert torch.allclose(
                found[0, :, i, j], scores[0, :, i, 50 + asking - place], atol=1e-5
            )


def test_a_correlation_compares_each_pixel_with_those_around_the_same():
    torch.manual_seed(0)
    a, b = torch.randn(2, 1, 5, 6, 7)
    found = correlated(a, b)
    assert found.shape == (1, 81, 6, 7)
    assert torch.allclose(found[:, 40], (a * b).mean(1))
    assert torch.allclose(found[0, 40 + 9 + 2, 2, 3], (a[0, :, 2, 3] * b[0, :, 3, 5]).mean())


def test_strokes_are_of_a_mixture_of_normal_distributions():
    torch.manual_seed(0)
    parts = [torch.randn(4, 3) for _ in range(6)]
    weight, spread_x, spread_y, together = (
        parts[0].softmax(1),
        parts[3].exp(),
        parts[4].exp(),
        torch.tanh(parts[5]),
    )
    x, y = torch.randn(2, 4, 1)
    cross = together * spread_x * spread_y
    spread = torch.stack([spread_x**2, cross, cross, spread_y**2], -1).view(4, 3, 2, 2)
    normal = torch.distributions.MultivariateNormal(torch.stack(parts[1:3], -1), spread)
    expected = (weight * normal.log_prob(torch.stack([x, y], -1)).exp()).sum(1)
    assert torch.allclose(
        stroke_density(x, y, (weight, *parts[1:3], spread_x, spread_y, together)),
        expected,
        rtol=1e-4,
    )


def test_a_softmax_of_groups_is_that_of_each():
    torch.manual_seed(0)
    x, group = torch.randn(7, 1), torch.tensor([0, 1, 0, 2, 1, 0, 2])
    found = softmax_of_groups(x, group, 3)
    for number in range(3):
        assert torch.allclose(found[group == number], x[group == number].softmax(0))


def test_a_summary_does_not_depend_on_the_order_of_its_rows():
    torch.manual_seed(0)
    module, x, group = Summary(4), torch.randn(6, 4), torch.tensor([0, 0, 0, 1, 1, 1])
    order = torch.tensor([4, 2, 0, 5, 1, 3])
    assert torch.allclose(module(x, group, 2), module(x[order], group[order], 2), atol=1e-6)


def test_neighbours_are_gathered_as_by_a_matrix():
    torch.manual_seed(0)
    near, far = torch.randint(5, (2, 12))
    x, weights, matrix = torch.randn(5, 3), torch.rand(12), torch.zeros(5, 5)
    matrix.index_put_((far, near), weights, accumulate=True)
    assert torch.allclose(gathered(x, near, far, weights), matrix @ x, atol=1e-6)


@pytest.mark.parametrize("samples", [1, 30_000, 44_100])
def test_sound_is_padded_until_all_strides_divide_and_enough_comes_out(samples):
    length = demucs_length(samples)
    with torch.device("meta"):
        module, x = _Demucs(2), torch.randn(1, 2, length)
        found, inner = module(x), x
        for layer in module.down:
            assert (inner.shape[-1] - 8) % 4 == 0
            inner = layer(inner)
    assert length >= found.shape[-1] >= samples
    assert found.shape[:-1] == (1, 4, 2)


def test_a_state_that_sees_nothing_follows_the_one_foretold():
    torch.manual_seed(0)
    module = StateSpaceModel(5, 2, 3, 8)
    with torch.no_grad():
        module.look[0].weight[:, 8:] = 0.0
        module.look[0].weight[:, :8] = module.foretell[0].weight
        module.look[0].bias.copy_(module.foretell[0].bias)
        module.look[2].load_state_dict(module.foretell[2].state_dict())
        found = module(torch.randn(2, 4, 5), torch.randn(2, 4, 2))
    assert found.shape == (2, 4, 6 * 3 + 8)
    assert torch.allclose(found[..., :6], found[..., 9:15])


def test_written_attention_equals_the_fused():
    torch.manual_seed(0)
    fused, x, mask = Attention(32, 4).eval(), torch.randn(2, 9, 32), torch.randn(2, 1, 1, 9)
    written = WrittenAttention(32, 4).eval()
    written.load_state_dict(fused.state_dict())
    assert torch.allclose(written(x, mask=mask), fused(x, mask=mask), atol=1e-5)


def test_a_shift_parts_what_was_not_beside_each_other():
    mask = shift_mask(14, 3, 7)
    assert mask.shape == (4, 49, 49)
    assert not mask[0].any()  # the first window was not wrapped around
    assert (
        mask[3] == 0
    ).sum() == 4 * 4 * 16 + 2 * 12 * 12 + 9 * 9  # areas of 16, 12, 12 and 9 patches


def test_probabilities_of_all_tags_of_a_sentence_sum_to_one():
    torch.manual_seed(0)
    module = Tagger(50, 20, 3, 8).eval()
    torch.nn.init.normal_(module.steps)
    words, letters = torch.randint(50, (1, 4)), torch.randint(20, (1, 4, 6))
    tags = torch.cartesian_prod(*[torch.arange(3)] * 4)
    count = len(tags)
    assert count == 3**4
    # the tags that begin and end a sentence may stand within it too, so they are made impossible
    # there
    with torch.no_grad():
        module.head.bias[3:] = -1e9
        found = module(words.expand(count, -1), letters.expand(count, -1, -1), tags)
    assert torch.exp(-found).sum() == pytest.approx(1.0, rel=1e-4)


def test_a_window_sees_the_last_tokens_alone():
    sees = _LocalBlock(8, 2, 12, 3).sees
    assert sees.sum(1).tolist() == [1, 2, *([3] * 10)]
    assert _LocalBlock(8, 2, 12, None).sees.sum(1).tolist() == list(range(1, 13))


def test_all_pairs_are_looked_up_where_the_flow_points():
    torch.manual_seed(0)
    module, (a, b) = _Raft(1), torch.randn(2, 1, 16, 16, 24)
    pairs = module._pairs(a, b)
    rows, columns = torch.meshgrid(torch.arange(16.0), torch.arange(24.0), indexing="ij")
    seen = module._looked_up(pairs, torch.stack([columns, rows]).unsqueeze(0))
    assert seen.shape == (1, 4 * 49, 16, 24)
    own = (a * b).sum(
        1
    ) / 16**0.5  # each pixel and the same in the other image: the middle of the finest window
    assert torch.allclose(seen[:, 24], own, atol=1e-4)


def test_windows_are_joined_as_they_were_parted():
    x = torch.randn(2, 14, 21, 3)
    parted = windows(x, 7)
    assert parted.shape == (2 * 2 * 3, 49, 3)
    assert torch.equal(parted[1].view(7, 7, 3), x[0, :7, 7:14])
    assert torch.equal(joined(parted, x.shape, 7), x)


def test_relative_places_grow_by_their_logarithm():
    places = log_spaced(8)
    assert places.shape == (1, 15, 15, 2)
    assert torch.equal(places[0, 7, 7], torch.zeros(2))
    assert places[0, 0, 14].tolist() == pytest.approx([-1.0566417, 1.0566417])  # log2(9) / 3
    assert torch.allclose(places, -places.flip(1, 2))


def test_biases_looked_up_once_are_those_of_training():
    attention, x = _WindowAttention(32, 2, 4), torch.randn(3, 16, 32)
    with torch.no_grad():
        attention.biases.normal_()
        assert torch.equal(attention.train()(x), attention.eval()(x))


def test_linear_attention_weighs_by_products_that_are_not_negative():
    q, k, v = torch.rand(2, 5, 4), torch.rand(2, 5, 4), torch.randn(2, 5, 4)
    weights = q @ k.transpose(1, 2)
    expected = weights @ v / (weights.sum(-1, keepdim=True) + 1e-5)
    assert torch.allclose(
        linear_attention(q, k, torch.nn.functional.pad(v, (0, 1), value=1.0)), expected, atol=1e-6
    )


def test_values_are_weighed_by_keys_that_fade():
    keys, values, rate, bonus = (
        torch.randn(2, 6, 3),
        torch.randn(2, 6, 3),
        torch.rand(3),
        torch.randn(3),
    )
    found = weighed(torch.log(rate), bonus, keys, values)
    for step in range(6):
        logs = [keys[:, n] - (step - 1 - n) * rate for n in range(step)] + [keys[:, step] + bonus]
        shares = torch.stack(logs, 1).softmax(1)
        assert torch.allclose(found[:, step], (shares * values[:, : step + 1]).sum(1), atol=1e-5)


def test_filters_are_standardized():
    filters = standardized(3.0 + 2.0 * torch.randn(4, 8, 3, 3)).flatten(1)
    assert torch.allclose(filters.mean(1), torch.zeros(4), atol=1e-5)
    assert torch.allclose(filters.var(1, unbiased=False), torch.ones(4), atol=1e-3)


def test_letters_last_as_many_frames_as_said():
    assert stretched(torch.tensor([[[1.0], [2.0]], [[3.0], [4.0]]]), (2, 3)).squeeze(
        -1
    ).tolist() == [
        [1, 1, 2, 2, 2],
        [3, 3, 4, 4, 4],
    ]


def test_each_word_has_what_is_before_and_behind_it():
    network, ids = RecurrentConvolution(20, 4, 3, 5, 2).eval(), torch.randint(20, (1, 6))
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


def test_every_pair_of_fields_has_its_own_matrix():
    x, matrices = (
        torch.randn(2, 3, 4),
        torch.nn.ModuleList(torch.nn.Linear(4, 4, bias=False) for _ in range(3)),
    )
    found = pairs_by_matrices(x, matrices)
    for n, (a, b) in enumerate(((0, 1), (0, 2), (1, 2))):
        assert torch.allclose(found[:, n], (x[:, a] @ matrices[n].weight.t()) * x[:, b])


def test_actions_are_as_surprising_as_their_distribution_says():
    policy, x = Policy(5, 3, 8, 1.0), torch.randn(4, 5)
    torch.manual_seed(0)
    actions, surprise = policy(x)
    y = policy.layers(x)
    normal = torch.distributions.Normal(policy.mean(y), policy.spread(y).clamp(-20, 2).exp())
    bent = torch.distributions.TransformedDistribution(
        normal, [torch.distributions.TanhTransform()]
    )
    assert torch.allclose(surprise, bent.log_prob(actions).sum(-1), atol=1e-3)
