"""How a model is trained on many devices: which ranks share what, and in which order they work.

Ranks are numbered with tensor parallelism innermost, then context, data, and pipeline stages
outermost, as Megatron-LM places them (Narayanan et al. 2021, arXiv:2104.04473, section 3). The
ranks of experts are taken from those of a stage. States are sharded as ZeRO does (Rajbhandari et
al. 2020, arXiv:1910.02054); stage 3 is PyTorch's FSDP (Zhao et al. 2023, arXiv:2304.11277).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING

from accelsim.arguments import checked
from accelsim.errors import InvalidValueError, UnknownNameError
from accelsim.frozen import frozen
from accelsim.plain import Document, Values
from accelsim.workloads.sharding import Shard, split_evenly

if TYPE_CHECKING:
    from accelsim.workloads.model import Workload

#: Activations that are computed again in the backward pass: none, those that the trainer chooses
#: (`workloads.recomputation.selectively`), or all but layer inputs.
RECOMPUTE = ("none", "selective", "full")
#: Schedules that are costed in closed form and not simulated.
CLOSED_FORM = ("zb-v", "dualpipe")
#: Schedules of pipelines.
SCHEDULES = ("gpipe", "1f1b", "interleaved", "zb-h1", *CLOSED_FORM)
_CHOICES: Mapping[str, Sequence[object]] = {
    "zero": (0, 1, 2, 3),
    "recompute": RECOMPUTE,
    "schedule": SCHEDULES,
}
_COUNTS = ("dp", "tp", "pp", "cp", "ep", "microbatch", "chunks", "local_steps", "lora_rank")


@checked
@frozen
class ParallelismPlan:
    """A plan; the product of dp, tp, pp and cp is the number of devices.

    Attributes:
        dp: Ranks that work on different samples.
        tp: Ranks that share heads and columns.
        pp: Pipeline stages.
        cp: Ranks that share the tokens of a sequence.
        ep: Ranks that share the experts, of those of a stage.
        etp: Ranks that share the columns of an expert; as many as `tp` where `ep` is 1, else 1.
        sp: Whether the ranks of `tp` also share the tokens between split layers.
        vocabulary: Whether the ranks of `tp` share embedding and logits.
        zero: ZeRO stage: 0 shares nothing, 1 optimizer states, 2 gradients too, 3 weights too.
            Beside a pipeline stages 2 and 3 move gradients and weights with every microbatch.
        shard_group: Data-parallel ranks that share states; all of them where None, fewer is hybrid
            sharding.
        microbatch: Samples of one rank that go through the model together.
        schedule: A name in `SCHEDULES`.
        chunks: Chunks of layers a stage, more than 1 for the interleaved schedule.
        stage_layers: Layers of each stage where they are not even; of plans without chunks.
        recompute: A name in `RECOMPUTE`.
        optimizer_offload: Whether optimizer states and step are the host's (Ren et al. 2021,
            arXiv:2101.06840).
        activation_offload: Whether activations wait in host memory.
        overlap: Whether gradients and weights of data parallelism travel beside computation.
        tensor_overlap: Whether tensor collectives are cut up and overlap with their matrix products
            (Wang et al., ASPLOS 2023).
        expert_overlap: Whether the exchanges of experts run beside the computation of another
            microbatch, as Megatron Core's overlap_moe_expert_parallel_comm does in 1F1B; the
            dualpipe schedule always does (DeepSeek-V3, arXiv:2412.19437, section 3.2.1).
        bucket_bytes: Gradients that are reduced together; 25 MB as in PyTorch's DDP.
        lora_rank: Rank of the adapters that alone are trained (Hu et al. 2021, arXiv:2106.09685);
            None trains all weights.
        local_steps: Steps between two averages of the parameters (local SGD, Stich 2019,
            arXiv:1805.09767); 1 reduces gradients in every step.
    """

    dp: int = 1
    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    etp: int | None = None
    sp: bool = False
    vocabulary: bool = True
    zero: int = 0
    shard_group: int | None = None
    microbatch: int = 1
    schedule: str = "1f1b"
    chunks: int = 1
    stage_layers: tuple[int, ...] | None = None
    recompute: str = "none"
    optimizer_offload: bool = False
    activation_offload: bool = False
    overlap: bool = True
    tensor_overlap: bool = False
    expert_overlap: bool = False
    bucket_bytes: float = 25e6
    local_steps: int = 1
    lora_rank: int | None = None

    def __post_init__(self) -> None:
        """Refuse values out of range and options that contradict each other.

        Raises:
            InvalidValueError: Naming the field.
        """
        check_ranges({spec.name: getattr(self, spec.name) for spec in fields(self)})
        for check in _CONTRADICTIONS:
            check(self)

    @property
    def device_count(self) -> int:
        """Devices it takes.

        Narayanan et al. 2021, arXiv:2104.04473, section 3: n = p t d; context parallelism is a
        fourth factor.
        """
        return self.dp * self.tp * self.pp * self.cp

    @property
    def shard(self) -> Shard:
        """What one rank holds of the model, without pipeline stages."""
        return Shard(
            tp=self.tp,
            sp=self.sp and self.tp > 1,
            cp=self.cp,
            ep=self.ep,
            etp=self.etp if self.ep > 1 else None,
            vocabulary=self.vocabulary,
        )

    @property
    def pipeline_stride(self) -> int:
        """Devices from a stage to the next."""
        return self.dp * self.tp * self.cp

    def microbatch_count(self, global_batch: int) -> int:
        """Microbatches of one iteration.

        m = B / (d b): Narayanan et al. 2021, arXiv:2104.04473, section 3.

        Raises:
            InvalidValueError: If the plan does not divide the batch, or its schedule needs more of
                them.
        """
        samples = self.dp * self.microbatch
        if global_batch % samples:
            allowed = f"a multiple of dp x microbatch = {samples}"
            remedy = f"Take {max(samples, global_batch // samples * samples)}, or another plan."
            raise InvalidValueError("global_batch", global_batch, allowed, remedy)
        count = global_batch // samples
        if self.schedule in CLOSED_FORM and count < 2 * self.pp:
            allowed = (
                f"at least 2 pp = {2 * self.pp} microbatches with {self.schedule}, not {count}"
            )
            raise InvalidValueError("microbatch", self.microbatch, allowed, "Take schedule=1f1b.")
        return count

    def to_dict(self) -> Document:
        """Fields, ready for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        """What differs from one device, as `parse_plan` reads it."""
        usual = ParallelismPlan().to_dict()
        assignments = [
            f"{name}={_word(value)}"
            for name, value in self.to_dict().items()
            if value != usual[name]
        ]
        return ",".join(assignments) or "dp=1"


def _word(value: object) -> str:
    if isinstance(value, bool):
        return str(int(value))
    return ":".join(map(str, value)) if isinstance(value, tuple) else str(value)


def is_count(value: object) -> bool:
    """Whether a value is an integer from 1 on."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def check_ranges(values: Values) -> None:
    """Refuse values that a field has in no plan.

    Args:
        values: Fields of `ParallelismPlan`.

    Raises:
        InvalidValueError: Naming the field.
    """
    for name, value in values.items():
        if name in _CHOICES and value not in _CHOICES[name]:
            allowed = "one of " + ", ".join(map(str, _CHOICES[name]))
            raise InvalidValueError(name, value, allowed)
        if name in _COUNTS and not (is_count(value) or (name == "lora_rank" and value is None)):
            raise InvalidValueError(name, value, "an integer >= 1")
        if name == "bucket_bytes" and not value > 0:
            raise InvalidValueError(name, value, "bytes > 0")


def _check_chunks(plan: ParallelismPlan) -> None:
    is_interleaved = plan.schedule == "interleaved"
    if (plan.chunks > 1) != is_interleaved:
        allowed = "more than 1 with the interleaved schedule, and 1 with others"
        raise InvalidValueError(
            "chunks", plan.chunks, allowed, "Give schedule=interleaved, chunks=2."
        )
    if is_interleaved and plan.pp == 1:
        raise InvalidValueError("schedule", plan.schedule, "1f1b where pp is 1", "Raise pp.")


def _check_zero(plan: ParallelismPlan) -> None:
    if plan.local_steps > 1 and plan.zero > 0:
        allowed = "0 with local steps, between which copies differ"
        raise InvalidValueError("zero", plan.zero, allowed, "Take zero=0, or local_steps=1.")


def _check_group(plan: ParallelismPlan) -> None:
    group, ranks = plan.shard_group, plan.dp * plan.cp
    if group is None:
        return
    if plan.zero == 0:
        raise InvalidValueError("shard_group", group, "no value with zero=0", "Give zero=3.")
    if not is_count(group) or ranks % group:
        raise InvalidValueError("shard_group", group, f"a divisor of dp x cp = {ranks}")


def _check_experts(plan: ParallelismPlan) -> None:
    if plan.etp is not None and (not is_count(plan.etp) or plan.ep == 1):
        raise InvalidValueError("etp", plan.etp, "an integer >= 1 beside ep > 1", "Give ep, too.")
    if plan.ep == 1:
        if plan.expert_overlap:
            allowed = "0 where ep is 1: nothing is exchanged"
            raise InvalidValueError("expert_overlap", plan.expert_overlap, allowed, "Give ep, too.")
        return
    ranks = plan.dp * plan.cp * plan.tp
    if ranks % (plan.ep * plan.shard.expert_tp):
        raise InvalidValueError("ep", plan.ep, f"ep x etp a divisor of dp x cp x tp = {ranks}")
    if plan.tp > 1 and not plan.sp:
        allowed = "1 with expert parallelism beside tp, whose ranks would all send the same tokens"
        raise InvalidValueError("sp", plan.sp, allowed, "Add sp=1.")


def _check_stages(plan: ParallelismPlan) -> None:
    layers = plan.stage_layers
    if layers is None:
        return
    if plan.chunks > 1 or len(layers) != plan.pp or not all(map(is_count, layers)):
        allowed = f"{plan.pp} counts of layers, one a stage, without chunks"
        raise InvalidValueError("stage_layers", layers, allowed)


def _check_schedule(plan: ParallelismPlan) -> None:
    if plan.schedule == "dualpipe" and plan.pp % 2:
        raise InvalidValueError("pp", plan.pp, "an even count with the dualpipe schedule")
    if plan.schedule.startswith("zb") and plan.recompute == "full":
        allowed = "none or selective with zero-bubble schedules, which keep activations"
        raise InvalidValueError("recompute", plan.recompute, allowed, "Take schedule=1f1b.")


_CONTRADICTIONS = (
    _check_chunks,
    _check_zero,
    _check_group,
    _check_experts,
    _check_stages,
    _check_schedule,
)


def parse_plan(text: str) -> Document:
    """Fields of a plan from words such as ``dp=8,tp=4,pp=2,zero=1,recompute=full``.

    Args:
        text: Fields of `ParallelismPlan`; flags are 0 or 1, layers of stages joined by colons.

    Raises:
        UnknownNameError: If a field does not exist.
        InvalidValueError: If a value is no value of its field, or a field is named twice.
    """
    defaults = {f.name: f.default for f in fields(ParallelismPlan)}
    texts = named_texts(text, "field of a plan", defaults, "Fields")
    values: Document = {name: _parsed(name, word, defaults[name]) for name, word in texts.items()}
    if values.get("chunks", 1) > 1:
        values.setdefault("schedule", "interleaved")
    return values


def named_texts(text: str, kind: str, names: Collection[str], title: str) -> dict[str, str]:
    """Texts by name, of a text such as ``tp=2,zero=1``.

    Args:
        text: The text.
        kind: What has such names.
        names: Those that it has.
        title: What they are called.

    Raises:
        UnknownNameError: If there is no such name.
        InvalidValueError: If one comes twice.
    """
    texts: dict[str, str] = {}
    for assignment in filter(None, (word.strip() for word in text.split(","))):
        stated_name, _, word = map(str.strip, assignment.partition("="))
        name = stated_name.lower()
        if name not in names:
            raise UnknownNameError(kind, stated_name, names, f"{title}: {', '.join(names)}.")
        if name in texts:
            raise InvalidValueError(name, word, "one value", "Name the field once.")
        texts[name] = word
    return texts


def plan_on(device_count: int, values: Values) -> ParallelismPlan:
    """A plan on so many devices; a dp that is not given takes what the others leave.

    Args:
        device_count: Devices.
        values: Fields of `ParallelismPlan`.

    Raises:
        InvalidValueError: If the fields contradict each other, or do not use all devices.
    """
    counts = (values.get(name, 1) for name in ("tp", "pp", "cp"))
    ranks = math.prod(count for count in counts if is_count(count))
    filled = dict(values)
    if "dp" not in filled and device_count % ranks == 0:
        filled["dp"] = device_count // ranks
    plan = ParallelismPlan(**filled)
    if plan.device_count != device_count:
        allowed = f"dp x tp x pp x cp = {device_count} devices, not {plan.device_count}"
        raise InvalidValueError("plan", str(plan), allowed, "Change gpus, or the plan.")
    return plan


def _parsed(field: str, word: str, default: object) -> str | bool | int | float | tuple[int, ...]:
    if isinstance(default, str):
        return word
    try:
        if field == "stage_layers":
            return tuple(int(count) for count in word.split(":"))
        if isinstance(default, bool):
            return bool(int(word))
        return float(word) if isinstance(default, float) else int(word)
    except ValueError:
        raise InvalidValueError(field, word, "a number, flags 0 or 1") from None


def check_model(plan: ParallelismPlan, workload: Workload, seq_len: int) -> None:
    """Refuse a plan that the model's family, heads, layers or tokens do not allow.

    Args:
        plan: The plan.
        workload: The model.
        seq_len: Tokens of a sequence.

    Raises:
        InvalidValueError: Naming the field, with a remedy.
    """
    family = workload.family
    if family is None and plan.lora_rank is not None:
        allowed = "no value: captured steps are trained as they were captured"
        raise InvalidValueError("lora_rank", plan.lora_rank, allowed, "Leave it out.")
    if family is None or not family.shards:
        _check_data_parallel(plan, "captured" if family is None else family.name)
        return
    parameters = workload.parameters
    split_evenly("tp", plan.tp, parameters.heads, "attention heads")
    split_evenly("cp", plan.cp, seq_len, "tokens of a sequence")
    if plan.sp:
        split_evenly("tp", plan.tp, seq_len // plan.cp, "tokens, which sp shares")
    if plan.ep > 1 and parameters.mixture is None:
        allowed = f"1: {workload.name} has no experts"
        raise InvalidValueError("ep", plan.ep, allowed, "Leave ep out.")
    _check_layers(plan, parameters.layers)


def _check_data_parallel(plan: ParallelismPlan, kind: str) -> None:
    counts = {"tp": plan.tp, "pp": plan.pp, "cp": plan.cp, "ep": plan.ep}
    for name, count in counts.items():
        if count > 1:
            allowed = f"1: {kind} models are trained data-parallel"
            raise InvalidValueError(name, count, allowed, "Raise dp instead.")


def _check_layers(plan: ParallelismPlan, layers: int) -> None:
    if plan.stage_layers is not None and sum(plan.stage_layers) != layers:
        allowed = f"counts that add up to {layers} layers"
        raise InvalidValueError("stage_layers", plan.stage_layers, allowed)
    count = plan.pp * plan.chunks
    if count > layers and (layers + 2) % count:
        allowed = f"at most {layers} stages x chunks, one a layer"
        raise InvalidValueError("pp", plan.pp, allowed, "Lower pp or chunks.")


def layers_of_chunks(layer_count: int, chunk_count: int) -> list[int]:
    """Layers of each chunk of a pipeline, in the order of the model.

    As even as can be. Where layers with embedding and logits as one more at either end divide, and
    those alone do not, the outer chunks have one layer fewer (Megatron-LM,
    ``--account-for-embedding-in-pipeline-split``); else the first chunks take one more.
    """
    layers, remainder = divmod(layer_count, chunk_count)
    if remainder and (layer_count + 2) % chunk_count == 0:
        layers = (layer_count + 2) // chunk_count
        return [layers - 1, *[layers] * (chunk_count - 2), layers - 1]
    return [layers + (index < remainder) for index in range(chunk_count)]
