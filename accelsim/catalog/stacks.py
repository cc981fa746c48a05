"""Finds, reads and validates software stacks: the YAML files of ``calibration/stacks``.

A stack says what runs a network on a device: which operators its compiler joins, how it issues
them, how convolutions are laid out, and how far whole networks on it lie from the model of kernels.
These ratios are fitted to published whole-model rows of several boards
(``python -m tools.refit --whole-models``); where no such row is, operators take the model's time.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from accelsim.catalog.versions import Span, covers
from accelsim.dtype import PRECISIONS, Precision
from accelsim.errors import ProfileError, UnknownNameError
from accelsim.files.datafile import data_root, name_key, read_mapping, validated
from accelsim.hardware.profile import DeviceProfile, GpuProfile
from accelsim.hardware.sourced import FrozenModel, Positive
from accelsim.plain import Document

DeviceClass = Literal["cpu", "gpu", "fpga", "asic"]
Mode = Literal["inference", "training"]
#: Families of operators whose ratios are told apart; all rows of a decode step are one.
FAMILIES = ("convolution", "product", "memory", "decode")
Family = Literal["convolution", "product", "memory", "decode"]
_Ratio = Annotated[float, Field(ge=0.2, le=5.0)]
_Share = Annotated[float, Field(ge=0.0, le=1.0)]
_Source = Annotated[str, Field(min_length=8)]


class StackPath(FrozenModel, strict=False):
    """One way in which a stack runs a network.

    Attributes:
        launch: Eager issues operators one after the other from the host; graph and compiled replay
            them with one launch; compiled calls are issued from the host.
        library_call_us: Host time of compiled calls for each kernel of a library, and the generated
            ones around it.
        fuses: What elementwise operators are joined with: nothing, each other and reductions
            ("pointwise"), or also the matrix products and convolutions before them ("epilogues"),
            where sums of two tensors join convolutions alone ("activations").
        merges: Whether products that read the same input (query, key and value; gate and up) are
            one product.
        fused_quantisation: Share of the products of a format whose input the kernel before them
            (norm, activation, attention) quantises; FP8 has a scale per tensor or per block.
        stream_threads: Threads of a CPU that run a batch, beside as many batches as there are such
            streams: what is predicted is then their throughput. None where a batch has all.
        lays_out: Whether it chooses the layout of convolutions itself, whatever its input's.
        source: Where that is documented.
    """

    launch: Literal["eager", "graph", "compiled", "compiled-calls"]
    fuses: Literal["nothing", "pointwise", "epilogues", "activations"]
    merges: bool = False
    fused_quantisation: Mapping[Literal["fp8", "fp8-block", "fp4"], _Share] = {}
    stream_threads: Annotated[int, Field(ge=1, le=1024)] | None = None
    lays_out: bool = False
    library_call_us: Annotated[float, Field(gt=0.0, le=1000.0)] | None = None
    source: _Source


class FeatureMapLayout(FrozenModel, strict=False):
    """Order of a feature map's dimensions in memory.

    Attributes:
        transform_us: Least time to turn a map into the layout of the matrix cores' convolutions, or
            back; None where it is that.
        group_norm_passes: Times that a group norm goes over its map besides one read and one write,
            copies into the order it needs and back included.
        source: Where it comes from.
    """

    transform_us: Annotated[float, Field(ge=0.0, le=1000.0)] | None = None
    group_norm_passes: Annotated[int, Field(ge=0, le=10)] = 0
    source: _Source

    @property
    def transform_s(self) -> float | None:
        """The least time in seconds."""
        return None if self.transform_us is None else self.transform_us * 1e-6


class OwnKernels(FrozenModel, strict=False):
    """Kernels for products of few rows that a stack brings for GPUs.

    Attributes:
        rows: Most rows that they take.
        operations_per_weight: Instructions of a vector lane that widen one weight and scale it.
        sums_in_16_bits: Whether larger products of 16 bits are summed up in 16 bits.
        activations_in_32_bits: Whether activations are, and products convert theirs.
        core_bytes: Most bytes that an SM reads per clock in them, of weights that stay as they are;
            None for no limit.
        source: Where it comes from.
    """

    rows: Annotated[int, Field(ge=1, le=1024)]
    operations_per_weight: Annotated[float, Field(ge=0.0, le=100.0)]
    sums_in_16_bits: bool
    activations_in_32_bits: bool
    core_bytes: Annotated[float, Field(gt=0.0)] | None
    source: _Source


class Achieved(FrozenModel, strict=False):
    """How far operators of one family lie from the model of kernels, on one class of devices.

    Attributes:
        device_class: Class of devices.
        mode: Inference or training.
        family: Family of operators.
        time_ratio: Their time over the model's; its inverse is the achieved fraction.
    """

    device_class: DeviceClass
    mode: Mode
    family: Family
    time_ratio: _Ratio


class Spread(FrozenModel, strict=False):
    """How far networks lie from the prediction with these ratios.

    Attributes:
        device_class: Class of devices.
        mode: Inference or training.
        family: Family of operators, of whose time it is the spread; of all where None.
        log_sigma: Standard deviation of ln(measured / predicted).
        rows: Whole-model rows behind it that spend most of their time in the family, each predicted
            with its board left out; 0 where operators themselves were measured on the stack.
    """

    device_class: DeviceClass
    mode: Mode
    family: Family | None = None
    log_sigma: Annotated[float, Field(ge=0.0, le=2.0)]
    rows: Annotated[int, Field(ge=0)]


class StackVersion(FrozenModel, strict=False):
    """What is known to differ from one version of a stack to another.

    Attributes:
        version: The version, or the first of those that are alike.
        through: The last version that is known to be like it.
        lacks_paths: Ways of the stack that it does not have.
        lacks_precisions: Precisions that it does not run.
        is_eager: Whether it issues operators one after the other where the stack replays them.
        fused_attention: Whether attention is one operator.
        plain_loss: Whether a loss over a vocabulary runs operator by operator where the network is
            compiled.
        gpu_host_ratio: Time to issue an operator to a GPU over the class's.
        stage_us: Host time of a microbatch on a stage of a pipeline, forward and backward, beside
            its operators: sends, receipts and their synchronization.
        experts_wait: Whether the host waits for the counts of tokens of each expert before it
            issues what follows, so that the device waits for it.
        rank_part_us: Host time for each rank of a gather or scatter whose parts are a list of
            tensors, one a rank.
        source: Where that is documented.
    """

    version: Annotated[str, Field(pattern=r"^[a-z0-9.-]+$", max_length=20)]
    through: str | None = None
    lacks_paths: tuple[str, ...] = ()
    lacks_precisions: tuple[str, ...] = ()
    is_eager: bool = False
    fused_attention: bool = True
    plain_loss: bool = False
    gpu_host_ratio: _Ratio = 1.0
    stage_us: Annotated[float, Field(ge=0.0, le=100_000.0)] = 0.0
    experts_wait: bool = False
    rank_part_us: Annotated[float, Field(ge=0.0, le=1000.0)] = 0.0
    source: _Source

    def holds(self, version: str) -> bool:
        """Whether a version is this one, or between it and the last that is like it."""
        through = self.through
        return version == self.version or (
            through is not None and covers(Span(self.version, through), version)
        )


class Stack(FrozenModel, strict=False):
    """A software stack, in one of its versions.

    Attributes:
        name: As users name it.
        title: Name for people.
        versions: The first is the default; all answer alike but for what each says.
        measured: Versions that its ratios were measured on.
        runs_on: Vendors by device class; all of a class where empty.
        modes: What it runs.
        generation_only: Whether it runs language models that generate tokens alone.
        paths: Ways it runs a network, by mode of execution; the first is the default.
        layouts: Layouts that can be chosen, the default first; none where the stack chooses.
        llama_cpp_files: Whether it runs llama.cpp's formats.
        precisions: What it runs beside those; all others where empty.
        own_kernels: Products that do not go to the maker's library.
        memory_fraction: Share of a GPU's memory that it takes, its context included.
        all_reduce_start_us: Start of its own all-reduce between devices whose memory each other can
            read, by their architecture, of all others under "other"; none where it has none.
        gathers_tokens: Whether all ranks of a node that share the experts get all tokens; else each
            is sent to the ranks of its experts.
        selective: Which rows selective recomputation makes again; see `recomputation.selectively`.
            None is "attention" where that keeps scores, and "products" where it is fused and has
            none to drop.
        recompute: Activations that it computes again where a plan does not say.
        attention: Kernels of attention by architecture of the GPU (`cost.attention_kernels`); the
            model's where there is none.
        cast_bytes: Bytes that are moved for each element cast to 8 bits or fewer for a product, its
            largest value and its transposed copy included.
        communication_sms: Multiprocessors of a GPU that collectives take while they run beside
            computation.
        gathers: What sharded weights are gathered by: a layer, or a tensor at a time.
        libraries_of: Stack whose libraries it calls, and whose ratios it has where it has none.
        achieved: Ratios by operator family; 1 where there is none.
        spreads: Spread of networks by device class and mode, and by operator family.
        suites: Suites of the scoreboard whose training ran on it.
        source: Where versions and properties come from; of the ratios, too.
    """

    name: Annotated[str, Field(pattern=r"^[a-z0-9]+(?:-[a-z0-9]+)*$", max_length=40)]
    title: str
    measured: str
    versions: tuple[StackVersion, ...] = Field(min_length=1)
    runs_on: Mapping[DeviceClass, tuple[str, ...]]
    modes: tuple[Mode, ...] = ("inference",)
    generation_only: bool = False
    paths: Mapping[str, StackPath] = Field(min_length=1)
    layouts: Mapping[str, FeatureMapLayout] = {}
    llama_cpp_files: bool = False
    precisions: tuple[str, ...] = ()
    own_kernels: OwnKernels | None = None
    memory_fraction: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    all_reduce_start_us: Mapping[str, Positive] = {}
    gathers_tokens: bool = False
    selective: Literal["attention", "products", "projections"] | None = None
    recompute: Literal["none", "selective", "full"] = "none"
    attention: Mapping[str, str] = {}
    cast_bytes: Annotated[float, Field(ge=0.0, le=100.0)] = 0.0
    communication_sms: Annotated[int, Field(ge=0, le=64)] = 0
    gathers: Literal["layer", "tensor"] = "layer"
    libraries_of: str | None = None
    achieved: tuple[Achieved, ...] = ()
    spreads: tuple[Spread, ...] = ()
    suites: tuple[str, ...] = ()
    source: _Source

    @property
    def trains(self) -> bool:
        """Whether training is what it is for."""
        return self.modes == ("training",)

    @property
    def version(self) -> StackVersion:
        """The version that runs."""
        return self.versions[0]

    @property
    def label(self) -> str:
        """Its name, with the version where that is not the default."""
        usual = _read(_folder() / f"{self.name}.yaml").version.version
        version = self.version.version
        return self.name if version == usual else f"{self.name}@{version}"

    def at(self, version: str) -> Stack:
        """The stack in another of its versions.

        Raises:
            UnknownNameError: If there is none of that name.
        """
        release = next((release for release in self.versions if release.holds(version)), None)
        if release is None:
            names = [f"{self.name}@{release.version}" for release in self.versions]
            label = f"{self.name}@{version}"
            raise UnknownNameError("stack version", label, names, f"There are {', '.join(names)}.")
        paths = {
            name: path.model_copy(update={"launch": "eager"}) if release.is_eager else path
            for name, path in self.paths.items()
            if name not in release.lacks_paths
        }
        return self.model_copy(update={"versions": (release,), "paths": paths})

    def runs(self, device: DeviceProfile) -> bool:
        """Whether the stack runs on a device."""
        vendors = self.runs_on.get(device.device_class)
        return vendors is not None and (not vendors or device.vendor in vendors)

    def all_reduce_start_s(self, device: DeviceProfile) -> float | None:
        """Start of the stack's own all-reduce between devices of a kind; None where it has none."""
        architecture = device.architecture if isinstance(device, GpuProfile) else ""
        start = self.all_reduce_start_us.get(architecture, self.all_reduce_start_us.get("other"))
        return None if start is None else start.value * 1e-6

    def lacking(self, policy: Precision) -> str:
        """Format of a precision, or of its cached keys, that the stack has not; empty if none."""
        cached = PRECISIONS.get(policy.kv_cache.label)
        if cached is not None and cached.is_file and not self.llama_cpp_files:
            return cached.name
        if policy.experts is not None and (lacking := self.lacking(policy.experts)):
            return lacking
        is_run = not self.precisions or policy.name in self.precisions
        if policy.is_file:
            is_run = self.llama_cpp_files
        return "" if is_run and policy.name not in self.version.lacks_precisions else policy.name

    def ratios(self, device_class: str, mode: str) -> dict[str, float]:
        """Time over the model's by operator family; where none was measured products and
        convolutions take what their class sustains (``default-stacks.yaml``).

        Args:
            device_class: Class of the device.
            mode: Inference or training.
        """
        usual = _defaults()["sustained"].get(mode, {}).get(device_class)
        base = {} if usual is None else dict.fromkeys(("convolution", "product"), usual)
        if self.libraries_of is not None:
            base |= stack(self.libraries_of).ratios(device_class, mode)
        return base | {
            entry.family: entry.time_ratio
            for entry in self.achieved
            if (entry.device_class, entry.mode) == (device_class, mode)
        }

    def log_sigmas(self, device_class: str, mode: str) -> dict[str, float]:
        """Spread of networks on this stack by operator family, and of whole ones under "whole".

        Where none was measured it is that of the class (``default-stacks.yaml``), else
        `UNMEASURED_LOG_SIGMA`. A family of few rows widens that of whole networks, it does not
        narrow it.

        Args:
            device_class: Class of the device.
            mode: Inference or training.
        """
        spreads: dict[str, Spread] = {
            entry.family or "whole": entry
            for entry in self.spreads
            if (entry.device_class, entry.mode) == (device_class, mode)
        }
        if "whole" not in spreads:
            of_class = _defaults()["unmeasured_log_sigma"].get(device_class, UNMEASURED_LOG_SIGMA)
            return dict.fromkeys(("whole", *FAMILIES), of_class)
        network = spreads.pop("whole")
        usual = max(network.log_sigma, UNMEASURED_LOG_SIGMA if network.rows else 0.0)
        families = {
            family: entry.log_sigma
            if entry.rows >= _LEAST_ROWS
            else max(entry.log_sigma, network.log_sigma)
            for family, entry in spreads.items()
        }
        return {"whole": network.log_sigma, **dict.fromkeys(FAMILIES, usual), **families}


#: Rows that say something of a family's spread.
_LEAST_ROWS = 5
#: Spread of a stack of which no whole network was measured, and of a family in which none spends
#: its time. Estimate: as far as stacks differ on one board, 0.2 in ln(time) between TensorRT,
#: PyTorch and inductor on the same networks.
UNMEASURED_LOG_SIGMA = 0.2


def stack(name: str) -> Stack:
    """A stack by name.

    Args:
        name: In any case; ``name@version`` for another version than the default.

    Raises:
        UnknownNameError: If there is no such stack or version; near matches are offered.
        ProfileError: If its file does not validate.
    """
    key, _, version = name_key(name).partition("@")
    if key not in stack_names():
        names = ", ".join(stack_names())
        raise UnknownNameError("stack", name, stack_names(), f"Known stacks: {names}.")
    return _of_version(key, version)


@lru_cache(maxsize=64)
def _of_version(key: str, version: str) -> Stack:
    newest = _read(_folder() / f"{key}.yaml")
    return newest.at(version) if version else newest


@cache
def stack_names() -> tuple[str, ...]:
    """Names of all stacks, sorted."""
    return tuple(sorted(path.stem for path in _folder().glob("*.yaml")))


def default_stack(
    device: DeviceProfile, policy: Precision | None = None, *, is_served: bool = False
) -> Stack:
    """The stack of a device where none is named (``calibration/class/default-stacks.yaml``):
    PyTorch on CPUs and GPUs, the maker's compiler elsewhere; for files of llama.cpp's the stack
    that runs them, where it runs on the device.

    Args:
        device: The device.
        policy: Formats of the model.
        is_served: Whether it is a language model that generates tokens, which an engine serves
            where one runs on the device and in the formats.
    """
    by_vendor = _defaults()[device.device_class]
    usual = by_vendor.get(device.vendor, by_vendor["other"])
    special = _file_stack(device) if policy is not None and policy.is_file else None
    if special is None and is_served:
        special = _serving_stack(device, policy)
    return special or stack(usual)


def _file_stack(device: DeviceProfile) -> Stack | None:
    """The stack that runs files of llama.cpp's on a device."""
    stacks = map(stack, stack_names())
    return next((s for s in stacks if s.llama_cpp_files and s.runs(device)), None)


def _serving_stack(device: DeviceProfile, policy: Precision | None) -> Stack | None:
    """The engine that serves language models on a GPU with matrix units, in the model's formats."""
    name = _defaults()["served"].get(device.device_class, {}).get(device.vendor)
    if name is None or not isinstance(device, GpuProfile) or not device.matrix_flop_per_s:
        return None
    engine = stack(name)
    return None if policy is not None and engine.lacking(policy) else engine


def default_path(paths: Mapping[str, StackPath], mode: str) -> StackPath:
    """The way that a stack runs a network where none is named: the device's as it is deployed.

    Args:
        paths: Its ways.
        mode: Inference or training.
    """
    usual = _defaults()["execution"].get(mode)
    return paths.get(usual) or next(iter(paths.values()))


@cache
def _defaults() -> Document:
    return read_mapping(data_root() / "calibration" / "class" / "default-stacks.yaml")


def _folder() -> Path:
    return data_root() / "calibration" / "stacks"


@lru_cache(maxsize=64)
def _read(path: Path) -> Stack:
    entry = validated(path, lambda: Stack.model_validate(read_mapping(path)))
    if entry.name != path.stem:
        raise ProfileError(str(path), [f"name: {entry.name!r}, but the file is {path.name}"])
    return entry
