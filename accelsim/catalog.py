"""Finds, reads and validates devices, links, nodes and clusters by name.

Names are looked up in the folders of ``ACCELSIM_DEVICE_PATH`` (separated as ``PATH`` is), then in
the user's configuration folder (``$XDG_CONFIG_HOME/accelsim/devices``), then in the catalogue that
ships with accelsim. A name is case-insensitive, may be an alias, and may take a slice:
``epyc-7763@8vcpu``, ``a100-sxm-80gb@2g.20gb``, ``h100@fraction=0.5``. A file may also define a
slice, with ``slice: {of: ..., vcpu_count: 8}`` instead of a profile.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from accelsim.datafile import data_root, read_mapping, validation_problems
from accelsim.errors import InvalidValueError, ProfileError, UnknownNameError
from accelsim.hardware.local import (
    local_cpu_facts,
    local_cpu_profile,
    local_gpu_names,
    name_candidates,
)
from accelsim.hardware.profile import CpuProfile, DeviceProfile, parse_device
from accelsim.hardware.slice import SliceFile, parse_slice_syntax, slice_device
from accelsim.units import to_si

__all__ = [
    "aliases",
    "clear_cache",
    "data_root",
    "detect_local_devices",
    "device",
    "device_file_problems",
    "device_names",
    "device_search_path",
    "load_device_file",
]

_CLASSES = ("cpu", "gpu", "fpga", "asic")
_NAME = re.compile(r"(?:local/)?[a-z0-9][a-z0-9.+-]{0,79}\Z")
_DEEPEST_SLICE = 4
_SHOWN_PROBLEMS = 5
T = TypeVar("T")
Loader = Callable[[str], DeviceProfile]


def device(name: str) -> DeviceProfile:
    """The profile of a device.

    Args:
        name: Name or alias, in any case; ``local/cpu`` is this machine's; ``name@share`` is a
            slice.

    Returns:
        The frozen profile.

    Raises:
        UnknownNameError: If there is none; near matches are offered.
        ProfileError: If its file does not validate.
        InvalidValueError: If the slice is not possible.
    """
    return _device(name, 0)


def device_names() -> tuple[str, ...]:
    """Canonical names of every device on the search path and in the catalogue, sorted."""
    own = {name for folder in device_search_path() for name in _folder_names(folder)}
    return tuple(sorted(own | set(_catalogue_paths())))


def aliases() -> Mapping[str, str]:
    """Alias -> canonical name, of the catalogue."""
    return _aliases()


def device_search_path() -> tuple[Path, ...]:
    """Folders of the user's own devices, first to last, that exist."""
    listed = [
        Path(part) for part in os.environ.get("ACCELSIM_DEVICE_PATH", "").split(os.pathsep) if part
    ]
    configured = os.environ.get("XDG_CONFIG_HOME")
    config = Path(configured) if configured else Path(os.path.expanduser("~")) / ".config"  # noqa: PTH111
    return tuple(folder for folder in (*listed, config / "accelsim" / "devices") if folder.is_dir())


def device_file_problems() -> tuple[tuple[str, str], ...]:
    """Folders and files of the user's own devices that cannot be listed, each with the reason.

    What can be listed but does not validate is not among them: `device` refuses it by name.
    """
    listed = [part for part in os.environ.get("ACCELSIM_DEVICE_PATH", "").split(os.pathsep) if part]
    missing = [
        (part, "ACCELSIM_DEVICE_PATH names no folder there")
        for part in listed
        if not Path(part).is_dir()
    ]
    files = (
        (str(path), _heading_problem(path))
        for folder in device_search_path()
        for path in _files(folder)
    )
    return (*missing, *((path, problem) for path, problem in files if problem))


def load_device_file(path: str | Path) -> DeviceProfile:
    """Read and validate one device file, a profile or a slice.

    Args:
        path: YAML, or JSON where the name ends in ``.json``.

    Returns:
        The frozen profile.

    Raises:
        ProfileError: If it does not validate; names the line and field of each problem.
        UnknownNameError: If it is a slice of an unknown device.
        InvalidValueError: If it takes more than the whole has.
    """
    return _load(Path(path), 0)


def detect_local_devices() -> list[DeviceProfile]:
    """Profiles of this machine's own CPU and GPUs; what cannot be recognised is left out.

    The CPU is a slice of its catalogue entry where the model is known, else a profile made from
    what the operating system says, named ``local/cpu``. NVIDIA GPUs are those ``nvidia-smi`` lists
    that the catalogue has.
    """
    found: list[DeviceProfile] = []
    facts = local_cpu_facts()
    if facts is not None:
        known = product_device(facts.model_name)
        found.append(local_cpu_profile(facts, known if isinstance(known, CpuProfile) else None))
    found.extend(gpu for gpu in map(product_device, local_gpu_names()) if gpu is not None)
    return found


def clear_cache() -> None:
    """Forget every file read so far."""
    for cached in (
        _catalogue_paths,
        _aliases,
        _mapping,
        _catalogue_device,
    ):
        cached.cache_clear()


def _device(name: str, depth: int) -> DeviceProfile:
    wanted = re.sub(r"[\s_]+", "-", name.strip().lower())
    base, _, share = wanted.partition("@")
    if _NAME.match(base) is None or base.endswith((".yaml", ".yml", ".json")):
        is_path = "/" in base or "." in base
        raise UnknownNameError("device", name, device_names(), _FILE_REMEDY if is_path else _REMEDY)
    profile = _from_search_path(base, depth) or _from_catalogue(base, name)
    if "@" not in wanted:
        return profile
    spec = parse_slice_syntax(base, share, profile)
    return slice_device(profile, spec, f"{profile.name}@{share}")


_REMEDY = "See all with: accelsim devices list."
_FILE_REMEDY = "A profile of yours goes with --device-file, or through load_device_file."


def _from_catalogue(wanted: str, name: str) -> DeviceProfile:
    if wanted == "local/cpu":
        local = next((d for d in detect_local_devices() if d.device_class == "cpu"), None)
        if local is not None:
            return local
    paths = _catalogue_paths()
    canonical = wanted if wanted in paths else _aliases().get(wanted)
    if canonical is None or canonical not in paths:
        raise UnknownNameError(
            "device", name, (*device_names(), *_aliases()), f"{_REMEDY}{_search_problems()}"
        )
    return _catalogue_device(canonical)


@lru_cache(maxsize=512)
def _catalogue_device(canonical: str) -> DeviceProfile:
    return _load(_catalogue_paths()[canonical], 0)


@lru_cache(maxsize=1)
def _catalogue_paths() -> dict[str, Path]:
    root = data_root() / "device_profiles"
    return {
        path.stem: path
        for device_class in _CLASSES
        for path in sorted((root / device_class).glob("*.yaml"))
    }


@lru_cache(maxsize=1)
def _aliases() -> dict[str, str]:
    return dict(read_mapping(data_root() / "device_profiles" / "aliases.yaml"))


def _from_search_path(wanted: str, depth: int) -> DeviceProfile | None:
    for folder in device_search_path():
        for path in _files(folder):
            data = _heading(path)
            if data is not None and wanted in _names_in(data):
                return _load(path, depth)
            if data is None and path.stem.lower() == wanted:
                return _load(path, depth)  # raises, and says what is wrong with it
    return None


def _files(folder: Path) -> list[Path]:
    suffixes = {".yaml", ".yml", ".json"}
    try:
        return sorted(
            path for path in folder.iterdir() if path.suffix.lower() in suffixes and path.is_file()
        )
    except OSError:
        return []


def _folder_names(folder: Path) -> list[str]:
    headings = (_heading(path) for path in _files(folder))
    return [data["name"] for data in headings if data is not None and _is_listed(data.get("name"))]


def _search_problems() -> str:
    """Why a device of the user's own may not have been found, in words."""
    problems = device_file_problems()
    shown = "; ".join(path for path, _ in problems[:_SHOWN_PROBLEMS])
    more = f" and {len(problems) - _SHOWN_PROBLEMS} more" if len(problems) > _SHOWN_PROBLEMS else ""
    return (
        f" These could not be read: {shown}{more}. To see why: accelsim devices validate."
        if problems
        else ""
    )


def _heading_problem(path: Path) -> str:
    """Why a file has no name under which its device could be listed; empty where it has one."""
    try:
        name = _read_known(path).get("name")
    except ProfileError as error:
        return "; ".join(error.problems)
    return (
        "" if _is_listed(name) else f"name: expected a device name, like 'my-gpu', found {name!r}"
    )


def _is_listed(name: object) -> bool:
    return isinstance(name, str) and _NAME.match(name.lower()) is not None


def _heading(path: Path) -> dict[str, Any] | None:
    try:
        return _read_known(path)
    except ProfileError:
        return None


def _names_in(data: Mapping[str, Any]) -> set[str]:
    others = data.get("aliases")
    listed = others if isinstance(others, list) else []
    return {str(entry).lower() for entry in (data.get("name"), *listed) if entry is not None}


def _read_known(path: Path) -> dict[str, Any]:
    try:
        status = path.stat()
    except OSError as error:
        raise ProfileError(str(path), [f"cannot be read: {error.strerror}"]) from None
    return _mapping(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=512)
def _mapping(path: Path, _modified_ns: int, _size: int) -> dict[str, Any]:
    return read_mapping(path)


def _load(path: Path, depth: int) -> DeviceProfile:
    data = read_mapping(path)
    if "slice" in data:
        return _load_slice(path, data, depth)
    return _check(path, lambda: parse_device(data))


def _load_slice(path: Path, data: Mapping[str, Any], depth: int) -> DeviceProfile:
    if depth >= _DEEPEST_SLICE:
        raise ProfileError(
            str(path), [f"slice.of: slices of slices, more than {_DEEPEST_SLICE} deep"]
        )
    entry = _check(path, lambda: SliceFile.model_validate(to_si(data)))
    try:
        sliced = slice_device(
            _device(entry.slice.of, depth + 1), entry.slice, entry.name or path.stem
        )
    except InvalidValueError as error:
        raise ProfileError(str(path), [str(error)]) from None
    texts = {"title": entry.title, "note": entry.note}
    return sliced.model_copy(update={key: text for key, text in texts.items() if text is not None})


def _check(path: Path, parse: Callable[[], T]) -> T:
    try:
        return parse()
    except ValidationError as error:
        raise ProfileError(str(path), validation_problems(path, error)) from None
    except ValueError as error:
        raise ProfileError(str(path), [str(error)]) from None


def product_device(model_name: str) -> DeviceProfile | None:
    """The device of the user's folders or of the catalogue that a product name stands for; None
    where there is none.

    Args:
        model_name: As the operating system or the driver gives it, such as ``NVIDIA
            A100-SXM4-80GB``.
    """
    own = {name for folder in device_search_path() for name in _folder_names(folder)}
    for candidate in name_candidates(model_name):
        if candidate in own:
            return device(candidate)
        canonical = candidate if candidate in _catalogue_paths() else _aliases().get(candidate)
        if canonical is not None:
            return _catalogue_device(canonical)
    return None
