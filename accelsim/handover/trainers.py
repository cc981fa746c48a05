"""What the options of a trainer's line say of a plan, and the other way round."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields

from accelsim import catalog
from accelsim.capacity.assignment import Assignment
from accelsim.errors import InvalidValueError
from accelsim.plain import Document, Values
from accelsim.training.plan import ParallelismPlan
from accelsim.workloads.model import Workload

#: Fields of a plan that options of trainers say by themselves.
_PLAIN = ("tp", "pp", "cp", "ep", "etp", "sp", "chunks", "recompute", "schedule")
#: Parameters of a model that Megatron-LM has options for.
_MODEL_FIELDS = (
    *("layers", "heads", "hidden_size", "intermediate_size", "kv_heads", "norm", "positions"),
    *("max_positions", "gated", "tied_embeddings", "feed_forward_bias"),
)
#: Axes of MaxText's mesh.
_AXES = ("shards", "copies", "tp", "cp", "ep", "pp", "nodes")


def device_count(trainer: str, settings: Values) -> int:
    """Devices that a line takes.

    Args:
        trainer: Its program.
        settings: What its options say.

    Raises:
        InvalidValueError: If counts of torchrun are no plain numbers.
    """
    if trainer == "maxtext":
        return math.prod(max(1, int(settings.get(name, 1))) for name in _AXES)
    counts = [settings.get(name, 1) for name in ("nodes", "node_devices")]
    try:
        nodes, devices_per_node = map(int, counts)
    except ValueError:
        options = "--nnodes, --nproc-per-node"
        raise InvalidValueError(options, counts, "plain numbers", "Write them out.") from None
    return nodes * devices_per_node


def plan_of(trainer: str, settings: Values, devices: int) -> tuple[Document, int]:
    """Fields of the plan that a trainer's settings say, and samples of an iteration.

    Data-parallel ranks are what the other degrees leave (Narayanan et al. 2021, arXiv:2104.04473,
    section 3: n = p t d; context parallelism is a fourth factor).

    Args:
        trainer: Its program.
        settings: What its options say.
        devices: How many.

    Raises:
        InvalidValueError: If tp, pp and cp do not divide the devices.
    """
    plan: Document = {name: settings[name] for name in _PLAIN if name in settings}
    shared = math.prod(int(plan.get(name, 1)) for name in ("tp", "pp", "cp"))
    if devices % shared:
        raise InvalidValueError("devices", devices, f"a multiple of tp x pp x cp = {shared}")
    plan["dp"] = dp = devices // shared
    local = _READ[trainer](plan, settings, dp)
    if plan.get("chunks", 1) > 1:
        plan["schedule"] = "interleaved"
    batch = int(settings.get("global_batch", -1))
    return plan, batch if batch > 0 else local * dp


def _read_torchtitan(plan: Document, settings: Values, dp: int) -> int:
    """Of FSDP2; ranks of tp share the tokens (torchtitan/models/llama3/infra/parallelize.py)."""
    local_batch = int(settings.get("local_batch", 8))
    copies = int(settings.get("copies", 1))
    is_sharded = dp > 1 and settings.get("shards") != 1
    is_piped = plan.get("pp", 1) > 1
    plan["sp"] = plan.get("tp", 1) > 1
    plan["zero"] = int(settings.get("reshards", 3)) if is_sharded else 0
    plan["microbatch"] = int(settings.get("pipeline_microbatch", 1)) if is_piped else local_batch
    if copies > 1 and is_sharded:
        plan["shard_group"] = dp // copies
    return local_batch


def _read_megatron(plan: Document, settings: Values, _: int) -> int:
    microbatch = int(settings.get("microbatch", 1))
    plan["microbatch"] = microbatch
    plan["zero"] = int(settings.get("sharding", bool(settings.get("shards_optimizer"))))
    plan["optimizer_offload"] = bool(settings.get("optimizer_offload"))
    return microbatch


def _read_maxtext(plan: Document, settings: Values, _: int) -> int:
    microbatch = max(1, round(float(settings.get("device_batch", 1))))
    plan["zero"] = 3 if int(settings.get("shards", 1)) > 1 else 0
    plan["microbatch"] = microbatch
    return microbatch * int(settings.get("accumulation", 1))


_READ: Mapping[str, Callable[[Document, Values, int], int]] = {
    "torchtitan": _read_torchtitan,
    "megatron": _read_megatron,
    "maxtext": _read_maxtext,
}


def trainer_settings(assignment: Assignment, workload: Workload, trainer: str) -> Document:
    """What a trainer's options may say of an assignment.

    Args:
        assignment: The assignment, with the fields of its plan.
        workload: The model.
        trainer: The program.
    """
    unwritten_ones = {"pp", "cp", "ep", "etp", "chunks"}
    settings = {
        name: value
        for name, value in assignment.settings.items()
        if value != 1 or name not in unwritten_ones
    }
    settings |= {"precision": assignment.precision, "bf16": True}
    settings["accumulation"] = settings.get("microbatch_count", 1)
    match trainer:
        case "torchtitan":
            return settings | _torchtitan_settings(settings)
        case "megatron":
            return settings | _megatron_settings(settings, workload)
        case "maxtext":
            return settings | _maxtext_settings(settings, assignment.device)
        case "deepspeed":
            return settings | {"offloads": "cpu" if settings["optimizer_offload"] else None}
    return settings


def _torchtitan_settings(settings: Values) -> Document:
    zero, dp, group = settings["zero"], settings["dp"], settings["shard_group"]
    microbatch, is_piped = settings["microbatch"], "pp" in settings
    copies = dp if not zero else dp // group if group else 1
    return {
        "copies": copies,
        "shards": -1 if zero else 1,
        "reshards": {3: 3, 0: None}.get(zero, 2),
        "local_batch": microbatch * settings["microbatch_count"] if is_piped else microbatch,
        "pipeline_microbatch": microbatch if is_piped else None,
        "schedule": settings["schedule"] if is_piped else None,
    }


def _megatron_settings(settings: Values, workload: Workload) -> Document:
    zero = settings["zero"]
    sizes: Document = {name: getattr(workload.parameters, name, None) for name in _MODEL_FIELDS}
    is_grouped = sizes["kv_heads"] not in {None, sizes["heads"]}
    is_full = settings["recompute"] == "full"
    return sizes | {
        "shards_optimizer": zero > 0,
        "fsdp": zero > 1,
        "sharding": zero,
        "overlaps_gradients": zero > 0,
        "overlaps_weights": zero > 0,
        "recompute_method": "uniform" if is_full else None,
        "recompute_layers": 1 if is_full else None,
        "max_positions": max(sizes["max_positions"] or 0, settings["seq_len"]),
        "groups": is_grouped,
        "kv_heads": sizes["kv_heads"] if is_grouped else None,
        "gated": bool(sizes["gated"]),
        "untied": sizes["tied_embeddings"] is False,
        "unbiased": sizes["feed_forward_bias"] is False,
    }


def _maxtext_settings(settings: Values, device: str) -> Document:
    is_sharded = bool(settings["zero"])
    return {
        "shards": settings["dp"] if is_sharded else 1,
        "copies": 1 if is_sharded else settings["dp"],
        "nodes": 1,
        "device_batch": settings["microbatch"],
        "hardware": catalog.device(device).device_class,
    }


def unsaid(trainer: str, assignment: Assignment, settings: Values) -> Iterator[str]:
    """Fields of a plan that a trainer's line says otherwise, or not at all.

    Args:
        trainer: The program.
        assignment: The assignment.
        settings: What the line's options say.
    """
    read_plan = plan_of(trainer, settings, assignment.devices)[0] if trainer in _READ else {}
    for field in fields(ParallelismPlan):
        wanted = assignment.settings.get(field.name, field.default)
        stated = read_plan.get(field.name, field.default)
        if wanted not in {field.default, stated} or stated not in {field.default, wanted}:
            yield f"no option says {field.name}={wanted}"
