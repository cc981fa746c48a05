"""Power of GPUs at work against meters: static power with clocks up, decode traffic, the limit."""

import pytest

from accelsim import catalog, estimate
from accelsim.cost.background import background_power_w
from accelsim.cost.idle import idle_power_w
from accelsim.dtype import Dtype


@pytest.mark.parametrize(
    ("batch", "watts", "joules_per_token"),
    # ML.ENERGY leaderboard (lm-arena-chat, vLLM, one H100 SXM): Llama-3.1-8B in BF16 by mean batch
    [(8, 486.4, 0.4548), (16, 513.3, 0.2627), (32, 559.7, 0.1651)],
)
def test_decoding_draws_what_the_meter_reads(batch, watts, joules_per_token):
    found = estimate(
        "llama-3.1-8b",
        "h100-sxm-80gb",
        precision="bf16",
        batch=batch,
        seq_len=128,
        output_len=396,
        execution="graph",
    )
    assert found.average_power_w == pytest.approx(watts, rel=0.12)
    assert found.energy_j / (batch * 396) == pytest.approx(joules_per_token, rel=0.2)


@pytest.mark.parametrize(("device", "limit_w"), [("t4", 70.0), ("p4", 75.0), ("l4", 72.0)])
def test_a_throttled_board_draws_its_limit(device, limit_w):
    """A T4 at its limit reads 70 W in nvidia-smi: not 44 W of work and 8 W of idling; an L4 waits
    for its memory a fifth of the time.
    """
    found = estimate("bert-large", device, batch=32, seq_len=384, precision="fp32")
    assert 0.93 * limit_w <= found.average_power_w <= limit_w * (1 + 1e-9)


@pytest.mark.parametrize("device", ["t4", "h100-sxm-80gb", "rtx-3090", "mi300x", "apple-m1"])
def test_a_busy_board_holds_its_clocks_up(device):
    profile = catalog.device(device)
    limit_w = profile.power.limit_w.value
    assert 0.05 * limit_w < background_power_w(profile) < 0.4 * limit_w


@pytest.mark.parametrize("device", ["apple-m1", "jetson-agx-xavier"])
def test_a_small_board_has_power_left_for_its_clocks(device):
    """Both hold their clocks in long products; 20 W and a share of the limit left the module a
    third of it and the chip a twentieth.
    """
    run = estimate("bert-large", device, batch=16, seq_len=384, precision="fp32")
    peak = catalog.device(device).peak_flop_per_s[Dtype.FP32]
    assert run.flop / run.latency_s > 0.5 * peak


def test_other_classes_idle_beside_their_work():
    profile = catalog.device("tpu-v4")
    assert background_power_w(profile) == idle_power_w(profile)
