"""Published closed forms of training large transformers: sizes, FLOP, activations, days, bubbles.

h hidden size, l layers, V vocabulary, s sequence length, b microbatch, a heads, t tensor-parallel
ranks, p stages, v chunks, B global batch. Activations are FP16 with an attention that writes its
scores. What `accelsim.train` predicts is made from rows; these are yardsticks beside it.
"""

from __future__ import annotations

from accelsim.errors import InvalidValueError

_GPT_STATE_BYTES = 18.0
#: Ways to keep activations that `activation_bytes` knows.
ACTIVATION_FORMS = ("whole", "tensor", "sequence", "selective", "selective sequence", "full")


def activation_bytes(
    form: str,
    *,
    sequence: float,
    batch: float,
    hidden: float,
    heads: float,
    layers: float,
    tensor_ranks: float,
    stages: float = 1,
    chunks: float = 1,
) -> float:
    """Activations of the first stage, whose p microbatches in flight make all layers' worth.

    Korthikanti et al. 2022, arXiv:2205.05198, table 2 and section 4.2.3.

    Args:
        form: A name in `ACTIVATION_FORMS`: without parallelism, with tensor parallelism, with
            sequence parallelism too, with attention computed again, or all but layer inputs.
        sequence: Tokens.
        batch: Microbatch.
        hidden: Hidden size.
        heads: Attention heads.
        layers: Layers of the model.
        tensor_ranks: Tensor-parallel ranks.
        stages: Stages.
        chunks: Chunks a stage; more than 1 keep 1 + (p - 1)/(p v) times as much.

    Raises:
        InvalidValueError: If there is no such form.
    """
    scores = 5.0 * heads * sequence / hidden
    factors = {
        "whole": 34.0 + scores,
        "tensor": 10.0 + (24.0 + scores) / tensor_ranks,
        "sequence": (34.0 + scores) / tensor_ranks,
        "selective": 10.0 + 24.0 / tensor_ranks,
        "selective sequence": 34.0 / tensor_ranks,
        "full": 2.0,
    }
    if form not in factors:
        raise InvalidValueError("form", form, f"one of {', '.join(ACTIVATION_FORMS)}")
    interleaved = 1.0 + (stages - 1.0) / (stages * chunks) if chunks > 1 else 1.0
    return sequence * batch * hidden * layers * factors[form] * interleaved


def gpt_state_bytes(*, hidden: float, layers: float, tensor_ranks: float, stages: float) -> float:
    """Weights, FP32 gradients and Adam's states of one rank, on 12 l h^2 parameters.

    Korthikanti et al. 2022, arXiv:2205.05198, figure 1: 18 bytes a parameter.
    """
    return _GPT_STATE_BYTES * 12.0 * layers * hidden**2 / (tensor_ranks * stages)


def gpt_parameter_count(
    *, hidden: float, layers: float, vocabulary: float, sequence: float
) -> float:
    """12 l h^2 (1 + 13/(12 h) + (V + s)/(12 l h)).

    Narayanan et al. 2021, arXiv:2104.04473, equation 2.
    """
    per_layer = 1.0 + 13.0 / (12.0 * hidden)
    embeddings = (vocabulary + sequence) / (12.0 * layers * hidden)
    return 12.0 * layers * hidden**2 * (per_layer + embeddings)


def gpt_recompute_flop(
    *, batch: float, hidden: float, layers: float, vocabulary: float, sequence: float
) -> float:
    """FLOP of an iteration that computes all activations again: 96 B s l h^2 (1 + s/(6 h) + V/(16 l
    h)).

    Narayanan et al. 2021, arXiv:2104.04473, equation 3.
    """
    inner = 1.0 + sequence / (6.0 * hidden) + vocabulary / (16.0 * layers * hidden)
    return 96.0 * batch * sequence * layers * hidden**2 * inner


def gpt_model_flop(
    *, batch: float, hidden: float, layers: float, vocabulary: float, sequence: float
) -> float:
    """FLOP of an iteration without recomputation: 72 B s l h^2 (1 + s/(6 h) + V/(12 l h)).

    Korthikanti et al. 2022, arXiv:2205.05198, appendix A.
    """
    inner = 1.0 + sequence / (6.0 * hidden) + vocabulary / (12.0 * layers * hidden)
    return 72.0 * batch * sequence * layers * hidden**2 * inner


def gpt_selective_flop(
    *, batch: float, hidden: float, layers: float, vocabulary: float, sequence: float
) -> float:
    """FLOP of an iteration that computes attention again: 72 B s l h^2 (1 + s/(3 h) + V/(12 l h)).

    Korthikanti et al. 2022, arXiv:2205.05198, appendix A.
    """
    inner = 1.0 + sequence / (3.0 * hidden) + vocabulary / (12.0 * layers * hidden)
    return 72.0 * batch * sequence * layers * hidden**2 * inner


def training_days(*, parameters: float, tokens: float, devices: float, flop_per_s: float) -> float:
    """8 T P/(n X) in days.

    Narayanan et al. 2021, arXiv:2104.04473, equation 4.
    """
    return 8.0 * tokens * parameters / (devices * flop_per_s) / 86_400.0


def one_forward_one_backward_bubble_s(stages: float, forward_s: float, backward_s: float) -> float:
    """Bubble of GPipe and of 1F1B in one iteration: (p - 1)(F + B).

    Huang et al. 2019, arXiv:1811.06965; Narayanan et al. 2021, arXiv:2104.04473, section 2.2.
    """
    return (stages - 1) * (forward_s + backward_s)


def zero_bubble_h1_bubble_s(
    stages: float, forward_s: float, backward_s: float, weight_s: float
) -> float:
    """Bubble of ZB-H1 (ZB1P): (p - 1)(F + B - 2 W), B with its weight part, at least 2 p
    microbatches.

    Qi et al. 2024, arXiv:2401.10241, section 2.
    """
    return (stages - 1) * (forward_s + backward_s - 2 * weight_s)
