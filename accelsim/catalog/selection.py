"""Which devices and modes a comparison takes, from the words of its options."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from accelsim import catalog
from accelsim.errors import InvalidValueError, UnknownNameError
from accelsim.hardware.profile import DeviceProfile

_MODES = ("inference", "training")


def chosen_devices(words: Iterable[str], files: Sequence[Path] = ()) -> list[DeviceProfile]:
    """Devices of comma-separated names and group words, then those of files; each once.

    Args:
        words: Values of the option, each a list of names.
        files: Device profiles.

    Raises:
        InvalidValueError: If there is no device at all.
        UnknownNameError: If a name does not exist.
        ProfileError: If a file does not validate.
    """
    names = [
        name
        for word in words
        for part in word.split(",")
        if part.strip()
        for name in catalog.group_devices(part.strip())
    ]
    profiles = [catalog.device(name) for name in dict.fromkeys(names)]
    profiles += [catalog.load_device_file(path) for path in files]
    if not profiles:
        allowed = f"device names, or any of the words {', '.join((*catalog.DEVICE_GROUPS, 'all'))}"
        raise InvalidValueError(
            "devices", None, allowed, "For example: --devices t4,h100-sxm-80gb,tpu-v4."
        )
    return list({(profile.label, profile.instance): profile for profile in profiles}.values())


def chosen_batches(text: str) -> list[int]:
    """Batches of comma-separated numbers, each once.

    Raises:
        InvalidValueError: If there is none, or one is no whole number above 0.
    """
    items = list(dict.fromkeys(item.strip() for item in text.split(",") if item.strip()))
    allowed = "whole numbers above 0, separated by commas, such as 1,8,64"
    if not items or not all(
        item.isascii() and item.isdigit() and len(item) <= 9 and int(item) for item in items
    ):
        raise InvalidValueError("--batches", text, allowed)
    return [int(item) for item in items]


def chosen_modes(words: Iterable[str]) -> tuple[str, ...]:
    """Modes of the option's values, in the order inference, training.

    Raises:
        InvalidValueError: If a word is none.
    """
    modes: set[str] = set()
    for word in words:
        if word not in {*_MODES, "both"}:
            raise InvalidValueError("mode", word, "one of inference, training, both")
        modes |= set(_MODES) if word == "both" else {word}
    return tuple(mode for mode in _MODES if mode in modes)


def groups_note(words: Iterable[str]) -> str:
    """How many devices the group words among some names stand for; empty where there are none."""
    parts = dict.fromkeys(part.strip().lower() for word in words for part in word.split(","))
    counts = [
        f"{part} stands for {len(catalog.group_devices(part))}"
        for part in parts
        if part in {*catalog.DEVICE_GROUPS, "all"}
    ]
    total = f" of {len(catalog.device_names())} devices; see all with: accelsim devices list"
    return f"{', '.join(counts)}{total}" if counts else ""


def check_class(name: str | None) -> str | None:
    """A device class, or None for all.

    Raises:
        UnknownNameError: If there is no such class.
    """
    known = ("cpu", "gpu", "fpga", "asic", "tpu")
    if name is not None and name.lower() not in known:
        raise UnknownNameError("device class", name, known, f"Known classes: {', '.join(known)}.")
    return None if name is None else name.lower()
