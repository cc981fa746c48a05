"""Finds, reads and validates devices, links, nodes and clusters by name.

Names are looked up in the folders of ``ACCELSIM_DEVICE_PATH`` (separated as ``PATH`` is), then in
the user's configuration folder (``$XDG_CONFIG_HOME/accelsim/devices``), then in the catalogue that
ships with accelsim. A name is case-insensitive, may be an alias, may be joined in any way
(``4060ti``, ``RTX 4060 Ti``), may be a cloud instance's (``p5.48xlarge``), which means its board
with its count and price (`accelsim.catalog.instances`), and may take a slice:
``epyc-7763@8vcpu``, ``a100-sxm-80gb@2g.20gb``, ``h100@fraction=0.5``. A file may also define a
slice, with ``slice: {of: ..., vcpu_count: 8}`` instead of a profile.
"""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Mapping
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from accelsim.arguments import checked
from accelsim.errors import AccelsimWarning, InvalidValueError, ProfileError, UnknownNameError
from accelsim.files.datafile import (
    FileStamp,
    data_root,
    file_stamp,
    name_key,
    read_mapping,
    validated,
)
from accelsim.files.plainfile import user_folder
from accelsim.hardware.profile import CpuProfile, DeviceProfile, Identity, parse_device
from accelsim.plain import Document, Values
from accelsim.units import to_si

if TYPE_CHECKING:
    from accelsim.hardware.local import CpuFacts

_CLASSES = ("cpu", "gpu", "fpga", "asic")
_NAME = re.compile(r"(?:local/)?[a-z0-9][a-z0-9.+$-]{0,79}\Z")
_DEEPEST_SLICE = 4
_SHOWN_PROBLEMS = 5
#: A name of several devices, and the most of them.
_SEVERAL = re.compile(r"(\d{1,6})\s*x\s+(\S.*)")
_MOST_JOINED = 1024
#: Words for a class of devices, each with a few that span its vendors and generations.
DEVICE_GROUPS: Mapping[str, tuple[str, ...]] = {
    "cpu": ("xeon-platinum-8380", "xeon-platinum-8480+", "epyc-9654", "graviton3"),
    "gpu": ("t4", "l4", "v100-sxm2-16gb", "a100-sxm-80gb", "h100-sxm-80gb", "mi300x"),
    "fpga": ("zcu102", "zcu104", "alveo-u250", "alveo-u280"),
    "tpu": ("tpu-v2", "tpu-v3", "tpu-v4", "tpu-v5e"),
    "asic": ("tpu-v4", "tpu-v5e", "inferentia2", "trainium1", "gaudi2"),
}


@checked
def device(name: str) -> DeviceProfile:
    """The profile of a device.

    Args:
        name: Name or alias, in any case; ``local/cpu`` is this machine's; ``name@share`` is a
            slice, ``2 x name`` are devices that share a model.

    Returns:
        The frozen profile.

    Raises:
        UnknownNameError: If there is none; near matches are offered.
        ProfileError: If its file does not validate.
        InvalidValueError: If the slice is not possible.
    """
    several = _SEVERAL.fullmatch(name)
    return _device(name, 0) if several is None else _several(int(several[1]), several[2])


@lru_cache(maxsize=128)
def _several(count: int, name: str) -> DeviceProfile:
    return joined_devices(count, _device(name, 0))


def joined_devices(count: int, profile: DeviceProfile) -> DeviceProfile:
    """Devices that share a model.

    Args:
        count: How many.
        profile: Each of them.

    Raises:
        InvalidValueError: If the count is out of range, or the profile is of several.
    """
    refuse_several(profile, "give gpus")
    if not 1 <= count <= _MOST_JOINED:
        raise InvalidValueError("gpus", count, f"1 to {_MOST_JOINED} devices")
    return profile.model_copy(update={"joined_count": count})


def refuse_several(profile: DeviceProfile, otherwise: str) -> None:
    """Refuse devices that share a model where one is asked for.

    Args:
        profile: The device.
        otherwise: What says their number in its place.

    Raises:
        InvalidValueError: If it is of several.
    """
    if profile.joined_count > 1:
        remedy = f"Name one, and {otherwise} = {profile.joined_count}."
        raise InvalidValueError("device", profile.label, "one device", remedy)


def device_names() -> tuple[str, ...]:
    """Canonical names of every device on the search path and in the catalogue, sorted."""
    return tuple(sorted(_own_names() | set(_catalogue_paths())))


def device_search_path() -> tuple[Path, ...]:
    """Folders of the user's own devices, first to last, that exist."""
    folders = (*_listed_folders(), user_folder() / "devices")
    return tuple(folder for folder in folders if folder.is_dir())


def device_file_problems() -> tuple[tuple[str, str], ...]:
    """Folders and files of the user's own devices that cannot be listed, each with the reason.

    What can be listed but does not validate is not among them: `device` refuses it by name.
    """
    missing = [
        (str(folder), "ACCELSIM_DEVICE_PATH names no folder there")
        for folder in _listed_folders()
        if not folder.is_dir()
    ]
    files = ((str(path), _heading_problem(path)) for path in _own_files())
    return (*missing, *((path, problem) for path, problem in files if problem))


def _listed_folders() -> list[Path]:
    listed = os.environ.get("ACCELSIM_DEVICE_PATH", "").split(os.pathsep)
    return [Path(folder) for folder in listed if folder]


def load_device_file(path: str | Path) -> DeviceProfile:
    """Read and validate one device file, a profile or a slice.

    Warns (`AccelsimWarning`) of each number far from the shipped devices of its class.

    Args:
        path: YAML, or JSON where the name ends in ``.json``.

    Returns:
        The frozen profile.

    Raises:
        ProfileError: If it does not validate; names the line and field of each problem.
        UnknownNameError: If it is a slice of an unknown device.
        InvalidValueError: If it takes more than the whole has.
    """
    return _load_own(Path(path), 0)


def detect_local_devices() -> list[DeviceProfile]:
    """Profiles of this machine's own CPU and GPUs; what cannot be recognised is left out.

    The CPU is a slice of its catalogue entry where the model is known, else a profile made from
    what the operating system says, named ``local/cpu``. GPUs are those that the tools of NVIDIA,
    AMD, Intel and Apple list and the catalogue has; a memory that is the host's too is as large
    as this machine's.
    """
    from accelsim.hardware.local import local_cpu_facts, local_gpu_names

    profiles: list[DeviceProfile] = []
    facts = local_cpu_facts()
    if facts is not None:
        profile = product_device(facts.model_name)
        profiles.append(
            _local_cpu(facts, Identity(profile if isinstance(profile, CpuProfile) else None))
        )
    for names in local_gpu_names():
        profile = next((gpu for gpu in map(product_device, names) if gpu is not None), None)
        if profile is not None:
            profiles.append(_as_sold(profile))
    return profiles


def _as_sold(gpu: DeviceProfile) -> DeviceProfile:
    """A GPU of this machine with the memory that it has."""
    from accelsim.hardware.local import machine_memory_bytes
    from accelsim.hardware.slice import with_memory

    memory = machine_memory_bytes() if gpu.memory.is_unified else None
    is_less = memory is not None and memory < gpu.memory.capacity_bytes.value
    return with_memory(gpu, memory) if is_less and memory is not None else gpu


@lru_cache(maxsize=8)
def _local_cpu(facts: CpuFacts, catalogued: Identity[CpuProfile | None]) -> CpuProfile:
    """The same profile as long as nothing changes: what was priced on it is found again."""
    from accelsim.hardware.local import local_cpu_profile

    return local_cpu_profile(facts, catalogued.value)


def group_devices(word: str) -> tuple[str, ...]:
    """Names a word stands for: those of its group ("gpu", "tpu", "all"), or itself."""
    if word.lower() == "all":
        return tuple(dict.fromkeys(name for names in DEVICE_GROUPS.values() for name in names))
    return DEVICE_GROUPS.get(word.lower(), (word,))


def is_of_class(profile: DeviceProfile, word: str) -> bool:
    """Whether a device is of a class: cpu, gpu, fpga, asic, or tpu among the last."""
    return profile.device_class == word or (word == "tpu" and profile.name.startswith("tpu-"))


def clear_cache() -> None:
    """Forget every file read and every result kept so far, in all of accelsim."""
    modules = [m for name, m in sys.modules.items() if name.partition(".")[0] == "accelsim"]
    for entry in [value for module in modules for value in vars(module).values()]:
        clear = getattr(entry, "cache_clear", None)
        if callable(clear):
            clear()


def _device(name: str, depth: int) -> DeviceProfile:
    wanted = name_key(name)
    base, _, share = wanted.partition("@")
    if _NAME.match(base) is None or base.endswith((".yaml", ".yml", ".json")):
        is_path = "/" in base or "." in base
        raise UnknownNameError("device", name, device_names(), _FILE_REMEDY if is_path else _REMEDY)
    profile = _from_search_path(base, depth) or _from_catalogue(base, name)
    if "@" not in wanted:
        return profile
    from accelsim.hardware.slice import parse_slice_syntax, slice_device

    spec = parse_slice_syntax(base, share, profile)
    return slice_device(profile, spec, f"{profile.name}@{share}")


_REMEDY = "See all with: accelsim devices list."
_FILE_REMEDY = "A profile of yours goes with --device-file, or through load_device_file."


def _from_catalogue(wanted: str, name: str) -> DeviceProfile:
    if wanted == "local/cpu":
        local = next((d for d in detect_local_devices() if d.device_class == "cpu"), None)
        if local is not None:
            return local
    profile = _catalogued(wanted) or _instance(wanted)
    if profile is None:
        from accelsim.catalog.instances import instance_names

        names = (*device_names(), *aliases(), *instance_names())
        if wanted in {*DEVICE_GROUPS, "all"}:
            examples = ", ".join(group_devices(wanted))
            remedy = f"It stands for several: name one ({examples}), or compare them."
            raise UnknownNameError("device", name, (), remedy)
        raise UnknownNameError("device", name, names, f"{_REMEDY}{_search_problems()}")
    return profile


def _instance(wanted: str) -> DeviceProfile | None:
    """A device of the cloud instance of a name; None where no price list has one.

    Raises:
        UnknownNameError: If the price list does not say which device the instance has.
    """
    from accelsim.catalog.instances import instance_device, sold_as

    sold = sold_as(wanted)
    if sold is None:
        return None
    if not sold.device:
        reason = sold.reason or "its price list does not say which CPU it has"
        raise UnknownNameError("device", sold.instance, (), f"It is an instance: {reason}.")
    return instance_device(sold, _catalogue_device(sold.device))


def _catalogued(wanted: str) -> DeviceProfile | None:
    """The catalogue's device of a name or alias, however its words are joined."""
    canonical = wanted if wanted in _catalogue_paths() else aliases().get(wanted)
    canonical = canonical or _joined_names().get(_joined(wanted))
    return _catalogue_device(canonical) if canonical in _catalogue_paths() else None


def _joined(name: str) -> str:
    """A name as people type it in a hurry, ``4060ti`` or ``NVIDIA RTX4090``: without the maker's
    word and what joins words.
    """
    return re.sub(r"^(?:nvidia|amd|intel)-|[-_\s]+", "", name)


@cache
def _joined_names() -> dict[str, str]:
    """Joined name -> canonical name, of the catalogue."""
    return {_joined(name): canonical for name, canonical in aliases().items()} | {
        _joined(name): name for name in _catalogue_paths()
    }


@lru_cache(maxsize=512)
def _catalogue_device(canonical: str) -> DeviceProfile:
    return _load(_catalogue_paths()[canonical], 0)


@cache
def _catalogue_paths() -> dict[str, Path]:
    root = data_root() / "device_profiles"
    return {
        path.stem: path
        for device_class in _CLASSES
        for path in sorted((root / device_class).glob("*.yaml"))
    }


@cache
def aliases() -> Mapping[str, str]:
    """Alias -> canonical name, of the catalogue."""
    return dict(read_mapping(data_root() / "device_profiles" / "aliases.yaml"))


def _from_search_path(wanted: str, depth: int) -> DeviceProfile | None:
    for path in _own_files():
        data = _heading(path)
        if wanted in ({path.stem.lower()} if data is None else _names_in(data)):
            return _load_own(path, depth)  # where it cannot be read, this says why
    return None


def _own_files() -> list[Path]:
    suffixes = {".yaml", ".yml", ".json"}
    files: list[Path] = []
    for folder in device_search_path():
        with suppress(OSError):
            paths = sorted(path for path in folder.iterdir() if path.suffix.lower() in suffixes)
            files += [path for path in paths if path.is_file()]
    return files


def _own_names() -> set[str]:
    """Names of the devices in the user's folders."""
    headings = (_heading(path) for path in _own_files())
    return {data["name"] for data in headings if data and _is_listed(data.get("name"))}


def _search_problems() -> str:
    """Why a device of the user's own may not have been found, in words."""
    problems = [path for path, _ in device_file_problems()]
    if not problems:
        return ""
    hidden_count = len(problems) - _SHOWN_PROBLEMS
    shown = "; ".join(problems[:_SHOWN_PROBLEMS]) + (
        f" and {hidden_count} more" if hidden_count > 0 else ""
    )
    return f" These could not be read: {shown}. To see why: accelsim devices validate."


def _heading_problem(path: Path) -> str:
    """Why a file has no name under which its device could be listed; empty where it has one."""
    try:
        name = _read_known(path).get("name")
    except ProfileError as error:
        return "; ".join(error.problems)
    wanted = f"name: expected a device name, like 'my-gpu', found {name!r}"
    return "" if _is_listed(name) else wanted


def _is_listed(name: object) -> bool:
    return isinstance(name, str) and _NAME.match(name.lower()) is not None


def _heading(path: Path) -> Document | None:
    with suppress(ProfileError):
        return _read_known(path)
    return None


def _names_in(data: Values) -> set[str]:
    others = data.get("aliases")
    listed = others if isinstance(others, list) else []
    return {str(entry).lower() for entry in (data.get("name"), *listed) if entry is not None}


def _read_known(path: Path) -> Document:
    return _mapping(path, file_stamp(path))


@lru_cache(maxsize=512)
def _mapping(path: Path, _stamp: FileStamp | None) -> Document:
    return read_mapping(path)


def _load_own(path: Path, depth: int) -> DeviceProfile:
    """A device of the user's, with a warning of each number that is far from its class."""
    from accelsim.hardware.plausible import far_numbers

    profile = _load(path, depth)
    if getattr(profile, "slice_of", None) is None:  # a slice is small beside whole devices
        for problem in far_numbers(profile, _class_ranges(profile.device_class)):
            warnings.warn(f"{path}: {problem}", AccelsimWarning, stacklevel=3)
    return profile


@cache
def _class_ranges(device_class: str) -> Mapping[str, tuple[float, float]]:
    from accelsim.hardware.plausible import field_ranges

    paths = _catalogue_paths().items()
    names = [name for name, path in paths if path.parent.name == device_class]
    return field_ranges(map(_catalogue_device, names))


def _load(path: Path, depth: int) -> DeviceProfile:
    data = read_mapping(path)
    if "slice" in data:
        return _load_slice(path, data, depth)
    return validated(path, lambda: parse_device(data))


def _load_slice(path: Path, data: Values, depth: int) -> DeviceProfile:
    from accelsim.hardware.slice import SliceFile, slice_device

    if depth >= _DEEPEST_SLICE:
        raise ProfileError(
            str(path), [f"slice.of: slices of slices, more than {_DEEPEST_SLICE} deep"]
        )
    entry = validated(path, lambda: SliceFile.model_validate(to_si(data)))
    try:
        sliced = slice_device(
            _device(entry.slice.of, depth + 1), entry.slice, entry.name or path.stem
        )
    except InvalidValueError as error:
        raise ProfileError(str(path), [str(error)]) from None
    texts = {"title": entry.title, "note": entry.note}
    return sliced.model_copy(update={key: text for key, text in texts.items() if text is not None})


def product_device(model_name: str) -> DeviceProfile | None:
    """The device of the user's folders or of the catalogue that a product name stands for; None
    where there is none.

    Args:
        model_name: As the operating system or the driver gives it, such as ``NVIDIA
            A100-SXM4-80GB``.
    """
    from accelsim.hardware.local import name_candidates

    own_names = _own_names()
    for candidate in name_candidates(model_name):
        profile = device(candidate) if candidate in own_names else _catalogued(candidate)
        if profile is not None:
            return profile
    return None
