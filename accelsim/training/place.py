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


def _devices(
    cluster: str | Cluster | None, device: str | DeviceProfile | None, gpus: int | None
) -> tuple[DeviceProfile, Cluster | None, int]:
    """The device, what joins several of it, and how many there are."""
    if cluster is not None:
        profile_of_cluster = (
            cluster_catalog.cluster(cluster) if isinstance(cluster, str) else cluster
        )
        profile = catalog.device(profile_of_cluster.device_name)
        named_device = catalog.device(device) if isinstance(device, str) else device
        if named_device is not None and named_device.name != profile.name:
            allowed = f"{profile.name}, the device of {profile_of_cluster.name}"
            raise InvalidValueError("device", named_device.name, allowed, "Leave device out.")
        count = profile_of_cluster.device_count if gpus is None else gpus
        return named_device or profile, profile_of_cluster.with_devices(count), count
    if device is None:
        remedy = "See: accelsim clusters list, accelsim devices list."
        raise InvalidValueError("cluster", None, "a cluster or a device", remedy)
    profile = catalog.device(device) if isinstance(device, str) else device
    bought = 1 if profile.instance is None else profile.instance.device_count
    count = gpus or bought
    return profile, None if count == 1 else joined(profile, count), count


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
    profile, together, device_count = _devices(where.cluster, where.device, where.gpus)
    refuse_several(profile, "give gpus")
    _check_planned(options)
    batch = options.shape.batch if where.global_batch is None else where.global_batch
    resolved_options = run_options(options, {"batch": batch, "lora_rank": lora_rank})
    run = replace(resolve(workload, profile, resolved_options), lora_rank=None)
    around = conditions or Conditions()
    if together is not None:
        together = together.with_contention(1.0 / around.network_share)
    return TrainingSetup(run, together, device_count, around)


def _check_planned(options: RunOptions) -> None:
    """Refuse what the plan decides, or what one plan cannot say."""
    trained = options.training
    for name, usual, why in (
        ("accumulation", 1, "microbatches are the plan's: give microbatch"),
        ("recompute", "none", "recomputation is the plan's: give it there"),
        ("lora_rank", None, "adapters are the plan's: give lora_rank there"),
    ):
        value = getattr(trained, name)
        if value not in {None, usual}:
            raise InvalidValueError(name, value, f"no value: {why}")
