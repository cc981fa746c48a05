"""Which devices and modes a comparison takes, from the words of its options."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path

from accelsim import catalog
from accelsim.errors import InvalidValueError, UnknownNameError
from accelsim.hardware.profile import DeviceProfile

_MODES = ("inference", "training")


def chosen_devices(texts: Iterable[str], files: Sequence[Path] = ()) -> list[DeviceProfile]:
    """Devices of comma-separated names and group words, then those of files; each once.

    Args:
        texts: Values of the option, each a list of names.
        files: Device profiles.

    Raises:
        InvalidValueError: If there is no device at all.
        UnknownNameError: If a name does not exist.
        ProfileError: If a file does not validate.
    """
    names = chain(*map(catalog.group_devices, _names(texts)))
    profiles = [catalog.device(name) for name in dict.fromkeys(names)]
    profiles += [catalog.load_device_file(path) for path in files]
    if not profiles:
        allowed = f"device names, or any of the words {', '.join((*catalog.DEVICE_GROUPS, 'all'))}"
        raise InvalidValueError(
            "devices", None, allowed, "For example: --devices t4,h100-sxm-80gb,tpu-v4."
        )
    return list({(profile.label, profile.instance): profile for profile in profiles}.values())


def _names(texts: Iterable[str]) -> list[str]:
    """Names of comma-separated lists, each once."""
    names = (name.strip() for text in texts for name in text.split(","))
    return list(dict.fromkeys(filter(None, names)))


def chosen_batches(text: str) -> list[int]:
    """Batches of comma-separated numbers, each once.

    Raises:
        InvalidValueError: If there is none, or one is no whole number above 0.
    """
    items = _names([text])
    allowed = "whole numbers above 0, separated by commas, such as 1,8,64"
    if not items or not all(
        item.isascii() and item.isdigit() and len(item) <= 9 and int(item) for item in items
    ):
        raise InvalidValueError("--batches", text, allowed)
    return [int(item) for item in items]


def chosen_modes(texts: Iterable[str]) -> tuple[str, ...]:
    """Modes of the option's values, in the order inference, training.

    Raises:
        InvalidValueError: If a word is none.
    """
    modes: set[str] = set()
    for text in texts:
        if text not in {*_MODES, "both"}:
            raise InvalidValueError("mode", text, "one of inference, training, both")
        modes |= set(_MODES) if text == "both" else {text}
    return tuple(mode for mode in _MODES if mode in modes)


def groups_note(texts: Iterable[str]) -> str:
    """How many devices the group words among some names stand for; empty where there are none."""
    groups = [
        name for name in _names(map(str.lower, texts)) if name in {*catalog.DEVICE_GROUPS, "all"}
    ]
    counts = [f"{group} stands for {len(catalog.group_devices(group))}" for group in groups]
    total = f" of {len(catalog.device_names())} devices; see all with: accelsim devices list"
    return f"{', '.join(counts)}{total}" if counts else ""


def check_class(name: str | None) -> str | None:
    """A device class, or None for all.

    Raises:
        UnknownNameError: If there is no such class.
    """
    classes = ("cpu", "gpu", "fpga", "asic", "tpu")
    if name is not None and name.lower() not in classes:
        raise UnknownNameError(
            "device class", name, classes, f"Known classes: {', '.join(classes)}."
        )
    return None if name is None else name.lower()
