"""Reads SCALE-Sim configuration files: array, dataflow, scratchpads and memory bandwidth.

SCALE-Sim knows neither clock nor number format: its words have no width and its time is cycles.
Both are given when a configuration becomes a device profile. Format: scalesim/scale_config.py of
SCALE-Sim v2 (187e81c0) and v3; sections and keys are matched without regard to case.
"""

from __future__ import annotations

import configparser
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from accelsim.datafile import read_text
from accelsim.errors import InvalidValueError, ProfileError
from accelsim.hardware.profile import AsicProfile, Dataflow, parse_device
from accelsim.workloads.dtype import Dtype

__all__ = ["ScaleSimConfig", "parse_scalesim_config", "read_scalesim_config"]

_MAX_BYTES: Final = 100_000
_DATAFLOWS: Final = {
    "os": Dataflow.OUTPUT_STATIONARY,
    "ws": Dataflow.WEIGHT_STATIONARY,
    "is": Dataflow.INPUT_STATIONARY,
}
_WHOLE: Final = {
    "arrayheight": "rows",
    "arraywidth": "columns",
    "ifmapsramszkb": "input_sram_kib",
    "filtersramszkb": "weight_sram_kib",
    "ofmapsramszkb": "output_sram_kib",
}
_LARGEST: Final = 10**7


@dataclass(frozen=True, slots=True)
class ScaleSimConfig:
    """One configuration.

    Attributes:
        name: Run name.
        rows: Array height.
        columns: Array width.
        input_sram_kib: Scratchpad of activations, 1,024 words of one byte per unit.
        weight_sram_kib: Of weights.
        output_sram_kib: Of results.
        dataflow: Stationary operand.
        words_per_cycle: Memory bandwidth; None where SCALE-Sim works it out (CALC).
    """

    name: str
    rows: int
    columns: int
    input_sram_kib: int
    weight_sram_kib: int
    output_sram_kib: int
    dataflow: Dataflow
    words_per_cycle: float | None

    def profile(
        self,
        *,
        clock_hz: float,
        memory_bytes: float,
        dtype: Dtype = Dtype.INT8,
        bandwidth_bytes_per_s: float | None = None,
    ) -> AsicProfile:
        """A device profile of this configuration.

        Args:
            clock_hz: Array clock.
            memory_bytes: Capacity of main memory.
            dtype: Format of the words.
            bandwidth_bytes_per_s: Of main memory; the configuration's words per cycle unless given.

        Raises:
            InvalidValueError: If the bandwidth is in neither place, or a number is out of range.
        """
        if not 0 < clock_hz < 1e12:
            raise InvalidValueError("clock_hz", clock_hz, "above 0 and below 1e12 Hz")
        rate = bandwidth_bytes_per_s
        if rate is None and self.words_per_cycle is not None:
            rate = self.words_per_cycle * dtype.bytes * clock_hz
        if rate is None or not rate > 0:
            raise InvalidValueError(
                "bandwidth_bytes_per_s",
                rate,
                "above 0",
                "The file leaves it to SCALE-Sim (CALC): give it here.",
            )
        peak = 2.0 * self.rows * self.columns * clock_hz
        sram = 1024 * (self.input_sram_kib + self.weight_sram_kib + self.output_sram_kib)
        profile = parse_device(_profile_data(self, clock_hz, memory_bytes, dtype, rate, peak, sram))
        assert isinstance(profile, AsicProfile)
        return profile


def _profile_data(
    config: ScaleSimConfig,
    clock_hz: float,
    memory_bytes: float,
    dtype: Dtype,
    rate: float,
    peak: float,
    sram: float,
) -> dict[str, Any]:
    def sourced(value: float) -> dict[str, Any]:
        return {
            "value": value,
            "kind": "datasheet",
            "source": f"SCALE-Sim configuration {config.name}",
        }

    return {
        "name": f"scalesim-{config.rows}x{config.columns}-{config.dataflow.value.split('_')[0]}",
        "class": "asic",
        "title": f"SCALE-Sim {config.name}",
        "vendor": "user",
        "year": 2020,
        "scope": "die",
        "arrays": {
            "rows": sourced(config.rows),
            "columns": sourced(config.columns),
            "count": sourced(1),
            "dataflow": config.dataflow.value,
        },
        "clock_hz": sourced(clock_hz),
        "sram_bytes": sourced(sram),
        "training": False,
        "matrix_flop_per_s": {dtype.label: sourced(peak)},
        "memory": {
            "name": "DRAM",
            "capacity_bytes": sourced(memory_bytes),
            "bandwidth_bytes_per_s": sourced(rate),
        },
    }


def read_scalesim_config(path: str | Path) -> ScaleSimConfig:
    """Read a configuration file.

    Raises:
        ProfileError: If it cannot be read, or naming each key that is missing or wrong.
    """
    return parse_scalesim_config(read_text(Path(path), _MAX_BYTES), str(path))


def parse_scalesim_config(text: str, label: str = "<config>") -> ScaleSimConfig:
    """Parse the text of a configuration file; errors of `read_scalesim_config`."""
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(text)
    except configparser.Error as error:
        raise ProfileError(
            label, [f"not a configuration file: {str(error).splitlines()[0]}"]
        ) from None
    sections = {
        section.lower(): {k.lower(): v.strip() for k, v in parser[section].items()}
        for section in parser
    }
    presets = sections.get("architecture_presets")
    if presets is None:
        raise ProfileError(label, ["section [architecture_presets] is missing"])
    whole, problems = _whole_numbers(presets)
    dataflow = _DATAFLOWS.get(presets.get("dataflow", "").lower())
    if dataflow is None:
        problems.append(f"Dataflow: {presets.get('dataflow')!r}; expected os, ws or is")
    words, wrong = _words_per_cycle(presets, sections.get("run_presets", {}))
    problems += wrong
    if problems or dataflow is None:
        raise ProfileError(label, problems)
    name = sections.get("general", {}).get("run_name", "").strip("\"'") or "run"
    return ScaleSimConfig(name[:60], **whole, dataflow=dataflow, words_per_cycle=words)


def _whole_numbers(presets: dict[str, str]) -> tuple[dict[str, int], list[str]]:
    found: dict[str, int] = {}
    problems: list[str] = []
    for key, field in _WHOLE.items():
        text = presets.get(key, "")
        if text.isascii() and text.isdigit() and 1 <= int(text[:12]) <= _LARGEST:
            found[field] = int(text)
        else:
            problems.append(f"{key}: {text[:40]!r}; expected a whole number from 1 to {_LARGEST:,}")
    return found, problems


def _words_per_cycle(
    presets: dict[str, str], run: dict[str, str]
) -> tuple[float | None, list[str]]:
    """The least of the given bandwidths, which is what SCALE-Sim uses; None in CALC mode."""
    mode = run.get("interfacebandwidth", "CALC").upper()
    if mode == "CALC":
        return None, []
    if mode != "USER":
        return None, [f"InterfaceBandwidth: {mode!r}; expected USER or CALC"]
    parts = [part.strip() for part in presets.get("bandwidth", "").split(",")]
    if not all(
        part.isascii() and part.isdigit() and 1 <= int(part[:12]) <= _LARGEST for part in parts
    ):
        given = presets.get("bandwidth", "")[:40]
        return None, [f"Bandwidth: {given!r}; expected whole numbers above 0 in USER mode"]
    return float(min(int(part) for part in parts)), []
