"""Which devices and modes a comparison takes, from the words of its options."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from accelsim import catalog
from accelsim.errors import InvalidValueError, UnknownNameError
from accelsim.hardware.profile import DeviceProfile

__all__ = ["DEVICE_GROUPS", "check_class", "chosen_devices", "chosen_modes"]

#: Words for a class of devices, each with a few that span its vendors and generations.
DEVICE_GROUPS: Final[Mapping[str, tuple[str, ...]]] = {
    "cpu": ("xeon-platinum-8380", "xeon-platinum-8480+", "epyc-9654", "graviton3"),
    "gpu": ("t4", "l4", "v100-sxm2-16gb", "a100-sxm-80gb", "h100-sxm-80gb", "mi300x"),
    "fpga": ("zcu102", "zcu104", "alveo-u250", "alveo-u280"),
    "tpu": ("tpu-v2", "tpu-v3", "tpu-v4", "tpu-v5e"),
    "asic": ("tpu-v4", "tpu-v5e", "inferentia2", "trainium1", "gaudi2"),
}
_ALL: Final = "all"
_MODES: Final = ("inference", "training")


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
        for name in _expand(part.strip())
    ]
    profiles = [catalog.device(name) for name in dict.fromkeys(names)]
    profiles += [catalog.load_device_file(path) for path in files]
    if not profiles:
        allowed = f"device names, or any of the words {', '.join((*DEVICE_GROUPS, _ALL))}"
        raise InvalidValueError(
            "devices", None, allowed, "For example: --devices t4,h100-sxm-80gb,tpu-v4."
        )
    return list({profile.name: profile for profile in profiles}.values())


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


def _expand(word: str) -> tuple[str, ...]:
    lower = word.lower()
    if lower == _ALL:
        return tuple(name for group in DEVICE_GROUPS.values() for name in group)
    return DEVICE_GROUPS.get(lower, (word,))


def check_class(name: str | None) -> str | None:
    """A device class, or None for all.

    Raises:
        UnknownNameError: If there is no such class.
    """
    known = ("cpu", "gpu", "fpga", "asic")
    if name is not None and name.lower() not in known:
        raise UnknownNameError("device class", name, known, f"Known classes: {', '.join(known)}.")
    return None if name is None else name.lower()
