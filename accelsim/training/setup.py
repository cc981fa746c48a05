"""What plans of one model on one set of devices share: rates of the machine, units priced once."""

from __future__ import annotations

from dataclasses import field, replace
from functools import cached_property
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from accelsim import catalog
from accelsim.arguments import checked
from accelsim.catalog.clusters import joined
from accelsim.errors import InvalidValueError
from accelsim.estimation.passes import training_step
from accelsim.estimation.run import ResolvedRun
from accelsim.estimation.schedule import device_settings, host_link_bytes_per_s
from accelsim.estimation.sharded_costs import rank_costs
from accelsim.frozen import frozen
from accelsim.hardware.profile import CpuProfile, GpuProfile
from accelsim.hardware.sourced import value_of
from accelsim.option import option
from accelsim.plain import Document
from accelsim.training.candidates import CandidatePlans
from accelsim.training.layers import BlockCosts, block_costs
from accelsim.training.plan import is_count
from accelsim.workloads.families.trees import BoostedTreesParameters
from accelsim.workloads.graph import FloatArray, IntArray
from accelsim.workloads.operator import OperatorKind
from accelsim.workloads.sharding import Shard
from accelsim.workloads.training import optimizer_graph

if TYPE_CHECKING:
    from accelsim.hardware.cluster import Cluster
    from accelsim.hardware.profile import DeviceProfile

#: Fields of a plan that decide how one rank runs a microbatch.
_UNIT_FIELDS = ("tp", "cp", "ep", "etp", "sp", "vocabulary", "microbatch", "lora_rank")
#: Share of the power of hosts, fans and cards at most that they draw in training: an estimate.
_HOST_LOAD_FRACTION = 0.6
#: Power of hosts at most over their devices' limits: the median of the eight nodes of the catalogue
#: that state their power (0.39 to 1.03).
_HOST_OVER_DEVICES = 0.79
#: Sums of gradients and hessians of one bin, FP64 each.
_HISTOGRAM_ENTRY_BYTES = 16.0
#: Share of activations' memory that the allocator of a GPU in parallel training cannot give out:
#: estimate, between the 3 % of plain training and the 15 % that recomputation, sharding, offloading
#: and adapters cost eight language models on A100 (Guo et al., GMLake, ASPLOS 2024,
#: arXiv:2401.08156, abstract), as trainers turn expandable segments on.
_FRAGMENTATION_FRACTION = 0.09
#: Buffers of NCCL for each group that a rank is in: 544 MB in a group of two, 688 MB in a larger
#: one on four A100 with NVLink (github.com/NVIDIA/nccl/issues/964).
_GROUP_BYTES = (544e6, 688e6)
#: Above any number of devices, for codes of groups.
_LARGEST_STRIDE = 2**32
_OPTIMIZER_PROBE = 10_000_000
#: A tensor of a model has about so many parameters: an estimate, for launches of the update.
_TENSOR_PARAMETERS = 4_000_000


@checked
@frozen
class TrainingPlace:
    """Where a model is trained, and how much of it at a time; the library takes profiles too.

    One microbatch of each data-parallel rank is a batch where None; several devices without a
    cluster take a node of the catalogue that has them.
    """

    cluster: str | Cluster | None = option(
        "Cluster or node; see: accelsim clusters list.", metavar="NAME", flags="--cluster -c"
    )
    device: str | DeviceProfile | None = option(
        "Device, if no cluster is named.", metavar="NAME", flags="--device -d"
    )
    gpus: int | None = option(
        "Number of devices. Default: all of the cluster or cloud instance, else one.",
        flags="--gpus -n",
    )
    global_batch: int | None = option("Samples of an iteration, on all devices.")

    def __post_init__(self) -> None:
        """Refuse counts below one.

        Raises:
            InvalidValueError: Naming the field.
        """
        for name, count in (("gpus", self.gpus), ("global_batch", self.global_batch)):
            if count is not None and not is_count(count):
                raise InvalidValueError(name, count, "an integer >= 1")


@checked
@frozen
class Conditions:
    """What else slows an iteration of training.

    Attributes:
        straggler_fraction: Standard deviation of the ranks' speeds; all wait for the slowest.
        loader_samples_per_s: Samples that the input pipeline of one device prepares; None where it
            never binds.
        network_share: Share of the links beyond the nearest ones that this job has; other jobs have
            the rest.
        reserve_bytes: Memory of each device that is kept beside the context; what the communication
            library takes where None.
        fragmentation_fraction: Activations' memory that the allocator cannot use; what it loses in
            parallel training where None.
        pue: Power usage effectiveness of the site.
    """

    straggler_fraction: float = 0.0
    loader_samples_per_s: float | None = None
    network_share: float = 1.0
    reserve_bytes: float | None = None
    fragmentation_fraction: float | None = None
    pue: float = 1.0

    def __post_init__(self) -> None:
        """Refuse values out of range.

        Raises:
            InvalidValueError: Naming the field.
        """
        loader, reserve = self.loader_samples_per_s, self.reserve_bytes
        fragmentation = self.fragmentation_fraction
        for name, is_allowed, allowed in (
            ("straggler_fraction", 0 <= self.straggler_fraction < 1, "0 to 1"),
            ("loader_samples_per_s", loader is None or loader > 0, "above 0"),
            ("network_share", 0 < self.network_share <= 1, "above 0, at most 1"),
            ("reserve_bytes", reserve is None or reserve >= 0, "bytes >= 0"),
            ("fragmentation_fraction", fragmentation is None or 0 <= fragmentation < 1, "0 to 1"),
            ("pue", self.pue >= 1, "at least 1"),
        ):
            if not is_allowed:
                raise InvalidValueError(name, getattr(self, name), allowed)

    def slowest_ratio(self, ranks: IntArray | int) -> FloatArray:
        """Time of the slowest of n ranks over the mean.

        Expected largest of n normal deviates (Blom, Statistical Estimates and Transformed
        Beta-Variables, 1958).
        """
        counts, index = np.unique(np.atleast_1d(ranks), return_inverse=True)
        normal = NormalDist()
        largest = [normal.inv_cdf((n - 0.375) / (n + 0.25)) for n in counts.tolist()]
        ratio: FloatArray = 1.0 + self.straggler_fraction * np.maximum(largest, 0.0)
        return ratio[index.ravel()]


@frozen(slots=False, eq=False)
class TrainingSetup:
    """A model, its devices and the batch.

    Attributes:
        run: The run of the whole batch on one device, resolved.
        cluster: What joins the devices; None for one device.
        device_count: Devices.
        conditions: What else slows an iteration.
    """

    run: ResolvedRun
    cluster: Cluster | None
    device_count: int
    conditions: Conditions = field(default_factory=Conditions)
    _units: dict[tuple[int, ...], int] = field(default_factory=dict)
    _runs: list[ResolvedRun] = field(default_factory=list)
    _costs: dict[int, BlockCosts] = field(default_factory=dict)

    @cached_property
    def capacity_bytes(self) -> float:
        """Memory that a run can allocate on one device."""
        return self.run.available_bytes

    @property
    def _shares_gpus(self) -> bool:
        return self.cluster is not None and isinstance(self.run.device, GpuProfile)

    @property
    def fragmentation_fraction(self) -> float:
        """Share of activations' memory that the allocator cannot give out."""
        stated = self.conditions.fragmentation_fraction
        usual = _FRAGMENTATION_FRACTION if self._shares_gpus else 0.0
        return usual if stated is None else stated

    def reserve_bytes(self, plans: CandidatePlans) -> FloatArray:
        """Memory that no plan can use beside the context, shape (k,)."""
        stated = self.conditions.reserve_bytes
        if stated is not None or not self._shares_gpus:
            return np.full(len(plans), stated or 0.0)
        pair, many = _GROUP_BYTES
        groups = (plans[name] for name in ("dp", "tp", "pp", "cp", "ep"))
        bytes_of_groups = (np.select([ranks > 2, ranks > 1], [many, pair], 0.0) for ranks in groups)
        return np.asarray(sum(bytes_of_groups))

    @cached_property
    def gradient_bytes(self) -> float:
        """Bytes of one gradient in an iteration of one microbatch."""
        return self.run.precision.trained.held_bytes

    @cached_property
    def state_bytes(self) -> float:
        """Bytes of one parameter's optimizer states and master copy."""
        policy, rule = self.run.precision.trained, self.run.optimizer
        master = 0.0 if policy.master_weight is None else policy.master_weight.bytes
        return policy.state_bytes * rule.state_count + master

    @cached_property
    def communication_share(self) -> float:
        """Share of a device's multiprocessors that collectives beside computation take."""
        device = self.run.device
        if not isinstance(device, GpuProfile):
            return 0.0
        return self.run.stack.communication_sms / int(device.sm_count.value)

    @cached_property
    def host_link_bytes_per_s(self) -> float:
        """Bandwidth between a device and its host, one direction."""
        return host_link_bytes_per_s(self.run.device)

    @cached_property
    def idle_w(self) -> float | None:
        """Power of one device that does not depend on what it computes; None where unknown."""
        return device_settings(self.run, is_decode=False).idle_w

    @cached_property
    def host_w(self) -> float | None:
        """Power of hosts, fans, cards and losses for each device; None where unknown, and for CPUs,
        which are the hosts.

        As metered, where the node says it. Estimate elsewhere: a fixed share of the node's power at
        most less that of its devices, and of what the nodes that state it have where it does not.
        """
        node = None if self.cluster is None else self.cluster.node
        limit_w = value_of(self.run.device.power.limit_w, None)
        if node is None or limit_w is None or isinstance(self.run.device, CpuProfile):
            return None
        if node.host_load_w is not None:
            return node.host_load_w / node.device_count
        most_w = _HOST_OVER_DEVICES * limit_w
        if node.host_power_w is not None:
            most_w = node.host_power_w / node.device_count
        return _HOST_LOAD_FRACTION * most_w

    def energy_j(self, dynamic_j: Any, seconds: Any) -> Any:
        """Energy of devices, hosts and site of one or many iterations; None where the devices' idle
        power is unknown.

        Estimate: idle power and that of the hosts are drawn all the time, and the site adds its
        PUE.

        Args:
            dynamic_j: What computation and transfers take on all devices.
            seconds: How long it goes on.
        """
        if self.idle_w is None:
            return None
        still_w = self.device_count * (self.idle_w + (self.host_w or 0.0))
        return (dynamic_j + still_w * seconds) * self.conditions.pue

    @cached_property
    def host_memory_bytes_per_s(self) -> float | None:
        """Host memory bandwidth for each device; None where unknown. One device alone has its part
        of the hosts of a server.
        """
        try:
            node = (self.cluster or joined(self.run.device, 1)).node
        except InvalidValueError:
            return None
        rate = catalog.device(node.host_name).memory_bandwidth_bytes_per_s
        return None if rate is None else rate * node.host_count / node.device_count

    @cached_property
    def histograms(self) -> tuple[int, float]:
        """Levels of all boosted trees, and bytes of one level's histograms; none for others.

        Histograms of each feature's bins: Ke et al. 2017 (LightGBM), algorithm 1. Estimate: the
        nodes of a level have one of them in common.
        """
        if not isinstance(self.run.workload.parameters, BoostedTreesParameters):
            return 0, 0.0
        step = training_step(self.run, folds=True)
        rows = step.rows.kind == int(OperatorKind.TREE_HISTOGRAM)
        _, features, trees, depth, bins = step.rows.dims[rows][0, :5].tolist()
        return trees * depth, _HISTOGRAM_ENTRY_BYTES * features * bins

    @cached_property
    def update_per_parameter(self) -> tuple[float, float, float]:
        """Seconds and joules of the optimizer's step for one parameter, and seconds besides.

        Estimate: a line through the times of two sizes.
        """
        run, sizes = self.run, (_OPTIMIZER_PROBE, 10 * _OPTIMIZER_PROBE)
        graphs = [
            optimizer_graph(n, n // _TENSOR_PARAMETERS, run.precision.trained, run.optimizer)
            for n in sizes
        ]
        tables = rank_costs(graphs, [run, run])
        (t0, e0), (t1, e1) = ((table.total_time_s, table.total_energy_j) for table in tables)
        step = sizes[1] - sizes[0]
        slope = (t1 - t0) / step
        return slope, (e1 - e0) / step, max(t0 - slope * sizes[0], 0.0)

    def units(self, candidates: CandidatePlans) -> IntArray:
        """How each plan's ranks run one microbatch: a number per distinct way.

        Raises:
            InvalidValueError: If a shard does not exist.
        """
        keys = np.stack([candidates[name] for name in _UNIT_FIELDS], axis=1)
        distinct, inverse = np.unique(keys, axis=0, return_inverse=True)
        numbers = [self._unit(tuple(row)) for row in distinct.tolist()]
        return np.array(numbers)[inverse.ravel()]

    def _unit(self, key: tuple[int, ...]) -> int:
        if key not in self._units:
            tp, cp, ep, etp, sp, vocabulary, microbatch, lora_rank = key
            shard = Shard(
                tp=tp,
                sp=bool(sp) and tp > 1,
                cp=cp,
                ep=ep,
                etp=etp or None if ep > 1 else None,
                vocabulary=bool(vocabulary),
            )
            changes: Document = {"batch": microbatch, "accumulation": 1, "shard": shard}
            changes["lora_rank"] = lora_rank or None
            self._runs.append(replace(self.run, cluster=self.cluster, **changes))
            self._units[key] = len(self._runs) - 1
        return self._units[key]

    def run_of(self, unit: int) -> ResolvedRun:
        """How a rank runs one microbatch, by its number."""
        return self._runs[unit]

    def costs(self) -> BlockCosts:
        """Costs of all units named so far."""
        count = len(self._runs)
        if count not in self._costs:
            self._costs.clear()
            self._costs[count] = block_costs(tuple(self._runs))
        return self._costs[count]

    def collective_s(
        self, kind: OperatorKind, payload_bytes: FloatArray, size: IntArray, stride: IntArray
    ) -> FloatArray:
        """Times of collectives of many groups, shape (k,); 0 for groups of one.

        Args:
            kind: A collective kind.
            payload_bytes: Payload of each, shape (k,).
            size: Ranks of each group, shape (k,).
            stride: Devices from one rank to the next, shape (k,).
        """
        from accelsim.cost.collective import collectives_s

        if self.cluster is None:
            return np.zeros(len(payload_bytes))
        return collectives_s(kind, payload_bytes, size, stride, self.cluster)[0]
