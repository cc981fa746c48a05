"""Where a model is trained: the devices asked for, what joins them, and the run resolved there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from accelsim import catalog
from accelsim.catalog import clusters as cluster_catalog
from accelsim.catalog.clusters import joined
from accelsim.catalog.devices import refuse_several
from accelsim.errors import InvalidValueError
from accelsim.estimation.options import RunOptions, run_options
from accelsim.estimation.resolution import resolve
from accelsim.hardware.cluster import Cluster
from accelsim.hardware.profile import DeviceProfile
from accelsim.training.setup import Conditions, TrainingPlace, TrainingSetup
from accelsim.workloads.model import Workload


def _devices(place: TrainingPlace) -> tuple[DeviceProfile, Cluster | None, int]:
    """The device, what joins several of it, and how many there are."""
    device = place.device
    profile = catalog.device(device) if isinstance(device, str) else device
    if place.cluster is not None:
        return _of_cluster(place.cluster, profile, place.gpus)
    if profile is None:
        remedy = "See: accelsim clusters list, accelsim devices list."
        raise InvalidValueError("cluster", None, "a cluster or a device", remedy)
    bought = 1 if profile.instance is None else profile.instance.device_count
    count = place.gpus or bought
    return profile, None if count == 1 else joined(profile, count), count


def _of_cluster(
    named: str | Cluster, profile: DeviceProfile | None, gpus: int | None
) -> tuple[DeviceProfile, Cluster, int]:
    cluster = cluster_catalog.cluster(named) if isinstance(named, str) else named
    own_device = catalog.device(cluster.device_name)
    if profile is not None and profile.name != own_device.name:
        allowed = f"{own_device.name}, the device of {cluster.name}"
        raise InvalidValueError("device", profile.name, allowed, "Leave device out.")
    count = cluster.device_count if gpus is None else gpus
    return profile or own_device, cluster.with_devices(count), count


def training_setup(
    workload: str | Path | Workload,
    options: RunOptions,
    where: TrainingPlace,
    conditions: Conditions | None = None,
    lora_rank: int | None = None,
) -> TrainingSetup:
    """Look up and check what all plans of a training run share; see `train`. Plans that train
    adapters alone may have weights that are too narrow to be trained.

    Raises:
        InputError: If a name, size or choice is wrong; its subclasses say which.
    """
    profile, cluster, device_count = _devices(where)
    refuse_several(profile, "give gpus")
    _check_planned(options)
    batch = options.shape.batch if where.global_batch is None else where.global_batch
    options = run_options(options, {"batch": batch, "lora_rank": lora_rank})
    run = replace(resolve(workload, profile, options), lora_rank=None)
    conditions = conditions or Conditions()
    if cluster is not None:
        cluster = cluster.with_contention(1.0 / conditions.network_share)
    return TrainingSetup(run, cluster, device_count, conditions)


def _check_planned(options: RunOptions) -> None:
    """Refuse what the plan decides, or what one plan cannot say."""
    trained = options.training
    if trained.accumulation not in {None, 1}:
        allowed = "no value: microbatches are the plan's: give microbatch"
        raise InvalidValueError("accumulation", trained.accumulation, allowed)
    if trained.recompute not in {None, "none"}:
        allowed = "no value: recomputation is the plan's: give it there"
        raise InvalidValueError("recompute", trained.recompute, allowed)
    if trained.lora_rank is not None:
        allowed = "no value: adapters are the plan's: give lora_rank there"
        raise InvalidValueError("lora_rank", trained.lora_rank, allowed)
