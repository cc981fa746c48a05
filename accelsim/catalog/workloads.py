"""Finds and reads workloads: catalogue files, users' own files and folders, captured modules, model
configurations.

A name is looked up in the folders of ``ACCELSIM_WORKLOAD_PATH``, then in the catalogue; each holds
one YAML per workload, named after it, and optionally ``aliases.yaml``. A name that ends in
``.yaml``, ``.yml``, ``.json``, ``.onnx``, ``.gguf`` or ``.safetensors`` is a path instead: a
workload file, a captured module saved as JSON, the ``config.json`` of a published checkpoint, a
network in ONNX's format, or weights, of which the header is read. The folder of a checkpoint stands
for its ``config.json``; that of ``hub:Qwen/Qwen3-8B`` is fetched from the Hugging Face Hub.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from accelsim.arguments import checked
from accelsim.catalog.workload_spec import parse_workload
from accelsim.errors import InvalidValueError, ProfileError, UnknownNameError
from accelsim.files.datafile import (
    MAX_BYTES,
    FileStamp,
    data_root,
    file_stamp,
    name_key,
    read_mapping,
    validated,
)
from accelsim.workloads.model import Workload

#: Environment variable with further folders of workload files, separated like ``PATH``.
SEARCH_PATH_VARIABLE = "ACCELSIM_WORKLOAD_PATH"
#: File that maps aliases to names, beside the workloads.
ALIASES_FILE = "aliases.yaml"
#: No workload's name is longer; file systems refuse names above 255.
_LONGEST_NAME = 100
#: The file that describes a checkpoint in its folder.
_CONFIG = "config.json"
#: File of ModelOpt's older checkpoints beside it.
_APART = "hf_quant_config.json"
#: Start of a name that is an id of the Hugging Face Hub.
HUB = "hub:"
#: Ends of the names of checkpoints that differ from their base in their weights alone.
_TUNED = re.compile(r"(?:-(?:hf|instruct|chat|it))+\Z")
_SUFFIXES = (".yaml", ".yml", ".json", ".onnx", ".gguf", ".safetensors")
#: A captured module holds a row per operator, so its JSON may be larger than a hand-written file.
_MAX_JSON_BYTES = 64 * MAX_BYTES


@checked
def workload(name: str, shapes: Mapping[str, Sequence[int]] | None = None) -> Workload:
    """Find a workload.

    Args:
        name: A name or alias (case and underscores do not matter; an organisation may stand in
            front, as in ``meta-llama/Llama-3.1-8B``), a path ending in .yaml, .yml, .json, .onnx,
            .gguf or .safetensors, a folder with a ``config.json``, or ``hub:`` and an id of the
            Hugging Face Hub.
        shapes: Sizes of the inputs of an ONNX network by name, for those that it leaves open: all
            but the batch.

    Raises:
        UnknownNameError: If there is none of that name; near matches are offered.
        InvalidValueError: If it is a path of something else, or shapes are wrong.
        ProfileError: If its file does not validate.
    """
    if shapes is not None:
        return _onnx(name, shapes)
    if name.startswith(HUB):
        return _of_hub(name.removeprefix(HUB))
    if Path(name).suffix.lower() in _SUFFIXES:
        return load_workload_file(Path(name))
    key = _without_organisation(name_key(name))
    path = _direct_file(key) or _listed_file(key) or _config_in(name, key)
    if path is not None:
        return load_workload_file(path)
    names = sorted({*_files(), *workload_aliases()})
    hub = f", or ask the Hugging Face Hub: {HUB}{name}" * ("/" in name)
    raise UnknownNameError("workload", name, names, f"List them with: accelsim workloads list{hub}")


def _listed_file(key: str) -> Path | None:
    """The file of a name or alias, or of the base of a tuned checkpoint."""
    files, aliases = _files(), workload_aliases()
    base = key if key in files or key in aliases else _TUNED.sub("", key)
    return files.get(base) or files.get(aliases.get(base, ""))


def _config_in(name: str, key: str) -> Path | None:
    """The configuration in a folder; None for a name that is no path.

    Raises:
        InvalidValueError: If it is a path of something else.
    """
    is_path = bool(name) and os.path.exists(name)  # noqa: PTH110  (Path's raises on long names)
    config = Path(name) / _CONFIG
    if is_path and config.is_file():
        return config
    if "/" in key or is_path:
        ends = " or ".join(_SUFFIXES)
        allowed = f"a name, a folder with a {_CONFIG}, or a path that ends in {ends}"
        raise InvalidValueError("workload", name, allowed)
    return None


def _of_hub(repo_id: str) -> Workload:
    """The workload of a checkpoint of the Hub, called as it is there."""
    from accelsim.files.hub import hub_folder

    title = repo_id.rpartition("/")[2]
    loaded = load_workload_file(hub_folder(repo_id) / _CONFIG)
    return replace(loaded, name=name_key(title), title=title)


def _onnx(name: str, shapes: Mapping[str, Sequence[int]]) -> Workload:
    if Path(name).suffix.lower() != ".onnx":
        allowed = f"no value: {name} is no ONNX network"
        raise InvalidValueError("shapes", dict(shapes), allowed, "Leave it out.")
    from accelsim.workloads.capture.onnx.door import capture_onnx

    return capture_onnx(name, shapes)


def _without_organisation(key: str) -> str:
    """A model's own name, of one with its organisation (``org/model``) or of that name alone."""
    match = re.fullmatch(r"[a-z0-9][a-z0-9.-]*/([a-z0-9][a-z0-9.-]*)", key)
    return key if match is None else match[1]


def workload_names() -> tuple[str, ...]:
    """Names of all workloads on the search path, sorted."""
    return tuple(sorted(_files()))


def workload_aliases() -> dict[str, str]:
    """Aliases of all workloads on the search path, each with the name it stands for."""
    aliases: dict[str, str] = {}
    for folder in reversed(_folders()):
        aliases.update(_folder_aliases(folder))
    return aliases


def load_workload_file(path: Path | str) -> Workload:
    """Read one file: a workload, a captured module, a model configuration, or an ONNX network.

    Args:
        path: The file; JSON if its name ends in ``.json``, ONNX in ``.onnx``, else YAML.

    Raises:
        ProfileError: If it cannot be read or does not validate; names the line and field.
        CaptureError: If it is an ONNX network with operators that are not known.
        MissingDependencyError: If it is one and the extra ``onnx`` is not installed.
    """
    apart = Path(path).with_name(_APART)
    return _load(Path(path), file_stamp(Path(path)), file_stamp(apart))


def _folders() -> tuple[Path, ...]:
    listed = os.environ.get(SEARCH_PATH_VARIABLE, "")
    return (
        *(Path(folder) for folder in listed.split(os.pathsep) if folder),
        data_root() / "workloads",
    )


def _direct_file(key: str) -> Path | None:
    """The file named after a workload, without listing the folders; None where a listing has to
    find it.
    """
    if len(key) > _LONGEST_NAME or not key.replace("-", "").replace(".", "").isalnum():
        return None
    for folder in _folders():
        path = folder / f"{key}.yaml"
        if not folder.is_dir() or path.name == ALIASES_FILE:
            return None
        if path.is_file():
            return path
    return None


def _files() -> dict[str, Path]:
    """Workload files by name; folders named first win."""
    files: dict[str, Path] = {}
    for folder in _folders():
        if not folder.is_dir():
            remedy = f"Mend {SEARCH_PATH_VARIABLE}."
            raise ProfileError(str(folder), [f"not a folder of workload files. {remedy}"])
        for entry in os.scandir(folder):
            stem, _, suffix = entry.name.rpartition(".")
            if suffix in {"yaml", "yml"} and entry.name != ALIASES_FILE:
                files.setdefault(stem, Path(entry.path))
    return files


def _folder_aliases(folder: Path) -> dict[str, str]:
    listed = folder / ALIASES_FILE
    if listed.is_file():
        return _read_aliases(listed, file_stamp(listed))
    loaded = [load_workload_file(entry) for entry in folder.glob("*.y*ml")]
    return {alias: entry.name for entry in loaded for alias in entry.aliases}


@lru_cache(maxsize=64)
def _read_aliases(path: Path, _stamp: FileStamp | None) -> dict[str, str]:
    data = read_mapping(path)
    wrong = [
        f"{key}: expected the name of a workload"
        for key, value in data.items()
        if not isinstance(value, str)
    ]
    if wrong:
        raise ProfileError(str(path), wrong)
    return data


@lru_cache(maxsize=256)
def _load(path: Path, *_stamps: FileStamp | None) -> Workload:
    if path.suffix.lower() == ".onnx":
        from accelsim.workloads.capture.onnx.door import capture_onnx

        return capture_onnx(path)
    if path.suffix.lower() == ".gguf":
        from accelsim.catalog.checkpoints.gguf import workload_from_gguf

        return validated(path, lambda: workload_from_gguf(path))
    if path.suffix.lower() == ".safetensors":
        return _of_weights(path)
    is_json = path.suffix.lower() == ".json"
    data = read_mapping(path, max_bytes=_MAX_JSON_BYTES if is_json else MAX_BYTES)
    apart = path.with_name(_APART)
    if path.name == _CONFIG and not data.get("quantization_config") and apart.is_file():
        quantization = read_mapping(apart, max_bytes=_MAX_JSON_BYTES).get("quantization")
        data = {**data, "quantization_config": quantization}
    return validated(path, lambda: _parse(data, path))


def _of_weights(path: Path) -> Workload:
    """The workload of a file of weights, whose header is read, and of the configuration beside."""
    from accelsim.files.tensorfile import read_safetensors

    read_safetensors(path)
    config = path.with_name(_CONFIG)
    if not config.is_file():
        problem = f"has no {_CONFIG} beside it, which says what its tensors are of"
        raise ProfileError(str(path), [problem])
    return load_workload_file(config)


def _parse(data: Mapping[str, Any], path: Path) -> Workload:
    if data.get("format") == "accelsim-workload":
        from accelsim.workloads.capture.workload import load_captured

        return load_captured(data)
    if "family" not in data and ("model_type" in data or "architectures" in data):
        from accelsim.catalog.checkpoints.huggingface import workload_from_config

        name = data.get("_name_or_path")
        parsed = workload_from_config(data, None if name else _file_title(path))
        if path.name != _CONFIG:
            return parsed
        from accelsim.catalog.checkpoints.stored import stored_bytes, with_stored

        return with_stored(parsed, data, stored_bytes(path.parent))
    return parse_workload(_completed(data))


def _completed(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """A workload's file, completed by the one that it has the architecture of."""
    base_name = data.get("same_as")
    if base_name is None:
        return data
    files = {name: path for name, path in _files().items() if name != data.get("name")}
    if str(base_name) not in files:
        raise UnknownNameError("workload", str(base_name), sorted(files), "same_as names it.")
    base = read_mapping(files[str(base_name)])
    if "same_as" in base:
        allowed = "a workload whose own file writes its layers"
        raise InvalidValueError("same_as", base_name, allowed, f"Name {base['same_as']}.")
    changes = data.get("parameters", {})
    parameters = {**base["parameters"], **changes} if isinstance(changes, Mapping) else changes
    return {**base, "aliases": [], **data, "parameters": parameters}


def _file_title(path: Path) -> str | None:
    """What a configuration without a name is called: its file, or its folder where the file is just
    "config".
    """
    return (path.resolve().parent.name if path.stem == "config" else path.stem) or None
