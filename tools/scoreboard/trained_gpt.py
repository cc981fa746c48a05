"""GPTs of published closed forms, asked of `accelsim.train`: activations, states, sizes, FLOP.

h hidden size, l or L layers, V vocabulary, s sequence length, b microbatch, a heads, t tensor
ranks, p stages, v chunks, B global batch. Layers are those of Megatron-LM in FP16 with dropout,
fused GELU, and attention that writes its scores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from accelsim.errors import InvalidValueError
from accelsim.plain import Document
from accelsim.scoreboard.names import workload_of
from accelsim.training.estimate import TrainingEstimate, train
from accelsim.workloads.model import Workload

Inputs = Mapping[str, float]
_MODEL = "gpt3-175b"
_DEVICE, _CLUSTER = "a100-sxm-80gb", "dgx-superpod-a100"
_WHOLE = "no parallelism"
#: Plans whose activations the table has.
ACTIVATION_PLANS = {
    "none (TP only)": "recompute=none",
    "sequence parallel": "recompute=none,sp=1",
    "selective (TP only)": "recompute=selective",
    "selective+sequence": "recompute=selective,sp=1",
    "full (store layer input, TP)": "recompute=full",
    _WHOLE: "recompute=none",
}
#: Bytes of a mean and a deviation, FP32 each, that a layer norm keeps for a token.
_STATISTICS_BYTES = 8.0
#: Sizes of a model whose bytes for a parameter are asked.
_SMALL = {"h": 1024.0, "l": 4.0, "s": 256.0, "V": 51_200.0}


def activation_bytes(name: str, x: Inputs) -> float:
    """Activations of the first stage's layers: those of a model of twice the layers less the
    model's, so that embedding and loss, which the formulas leave out, stay out.

    Statistics of norms, which they leave out as well (Korthikanti et al. 2022, arXiv:2205.05198,
    section 4.1: "we ignore small buffers"), are taken off by their size.

    Args:
        name: A name in `ACTIVATION_PLANS`.
        x: s, b, h, a, L, t, p, v.

    Raises:
        InvalidValueError: If another stage than the first needs the most memory.
    """
    sizes = tuple(sorted(x.items()))
    whole, twice = (_kept_bytes(name, sizes, ratio) for ratio in (1, 2))
    return twice - whole


@lru_cache(maxsize=64)
def _kept_bytes(name: str, sizes: tuple[tuple[str, float], ...], ratio: int) -> float:
    x = dict(sizes)
    ranks = 1 if name == _WHOLE else int(x["t"])
    stages, chunks, batch = (int(x[symbol]) for symbol in ("p", "v", "b"))
    layers = ratio * x["L"]
    words = [f"tp={ranks},pp={stages},microbatch={batch}", ACTIVATION_PLANS[name]]
    words += [f"schedule=interleaved,chunks={chunks}"] if chunks > 1 else []
    asked: Document = {
        "gpus": ranks * stages,
        "global_batch": 2 * stages * batch,
        "plan": ",".join(words),
    }
    result = _trained(_gpt(x | {"l": layers}, heads=x["a"]), x["s"], **asked)
    if result.worst_rank:
        raise InvalidValueError("worst_rank", result.worst_rank, "0, as the formulas assume")
    kept = result.memory["activation_bytes"]
    if "full" in name:
        return kept  # a layer's input alone
    in_flight = 1.0 + (stages - 1.0) / (stages * chunks) if chunks > 1 else 1.0
    tokens = x["s"] * x["b"] / (ranks if "sequence" in name else 1)
    return kept - 2.0 * _STATISTICS_BYTES * tokens * layers * in_flight


def state_bytes(x: Inputs) -> float:
    """Weights, gradients and states of one rank, on 12 L h^2 parameters: its bytes a parameter."""
    asked: Document = {"gpus": int(x["t"]), "plan": f"tp={int(x['t'])}"}
    each = _bytes_per_parameter(_trained(_gpt(_SMALL), _SMALL["s"], **asked))
    return each * 12.0 * x["L"] * x["h"] ** 2 / (x["t"] * x["p"])


def zero_bytes(stage: int, x: Inputs) -> float:
    """Weights, gradients and states of psi parameters on one of Nd ranks."""
    ranks = int(x["Nd"])
    asked: Document = {"gpus": ranks, "plan": f"dp={ranks},zero={stage}"}
    return _bytes_per_parameter(_trained(_gpt(_SMALL), _SMALL["s"], **asked)) * x["psi"]


def parameter_count(x: Inputs) -> float:
    """Parameters without the last norm's, which the formula leaves out; weights take 2 bytes."""
    result = _trained(_gpt(x), x["s"])
    return result.memory["weight_bytes"] / 2.0 - 2.0 * x["h"]


def model_flop(x: Inputs) -> float:
    """FLOP of an iteration, without what recomputation does again."""
    return _flop(_trained(_gpt(x), x["s"], global_batch=int(x["B"])), "model")


def recompute_flop(x: Inputs) -> float:
    """FLOP of an iteration that computes all activations again."""
    asked: Document = {"global_batch": int(x["B"]), "plan": "recompute=full"}
    return _flop(_trained(_gpt(x), x["s"], **asked), "hardware")


def selective_flop(x: Inputs) -> float:
    """FLOP of an iteration that computes attention again, as the paper counts: what runs again
    thrice, as all that runs forward (its equation has s/(3h), where one more pass of four is 2 s/(9
    h)).
    """
    asked: Document = {"global_batch": int(x["B"]), "plan": "recompute=selective"}
    result = _trained(_gpt(x), x["s"], **asked)
    model, hardware = (_flop(result, name) for name in ("model", "hardware"))
    return model + 3.0 * (hardware - model)


def _gpt(x: Inputs, heads: float | None = None) -> Workload:
    hidden = int(x["h"])
    sizes = {
        "layers": int(x["l"]),
        "hidden_size": hidden,
        "heads": int(heads or 8),
        "intermediate_size": 4 * hidden,
        "vocab_size": int(x.get("V", _SMALL["V"])),
        "max_positions": int(x["s"]),
        "activation": "gelu",
        "dropout": True,
    }
    gpt = workload_of(_MODEL)
    return replace(gpt, name="gpt", parameters=gpt.parameters.model_copy(update=sizes))


def _trained(model: Workload, sequence: float, *, gpus: int = 1, **asked: Any) -> TrainingEstimate:
    """A training step in FP16, whether it fits or not."""
    where: Document = {"device": _DEVICE} if gpus == 1 else {"cluster": _CLUSTER, "gpus": gpus}
    where |= {"precision": "fp16", "fused_attention": False, "seq_len": int(sequence)}
    return train(model, check_memory=False, **where, **asked)


def _bytes_per_parameter(result: TrainingEstimate) -> float:
    held = (result.memory[f"{name}_bytes"] for name in ("weight", "gradient", "optimizer"))
    count = result.memory["weight_bytes"] / 2.0
    if result.plan["zero"] == 3:
        count *= result.device_count
    return sum(held) / count


def _flop(result: TrainingEstimate, name: str) -> float:
    rate: float = getattr(result, f"{name}_flop_per_s_per_device")
    return rate * result.iteration_s * result.device_count
