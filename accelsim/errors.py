"""Every exception and warning accelsim raises, in one tree.

AccelsimError
├── InputError (also ValueError)
│   ├── InvalidValueError        a number or choice outside its allowed range
│   │   ├── OverBudgetError      a device dearer than the caller's cap
│   │   └── PowerLimitError      a device that such a power limit cannot be set on
│   ├── UnknownNameError         no device, workload, precision, offer ... of that name
│   ├── ProfileError             a device, workload or price file that does not validate
│   ├── UnsupportedOperatorError an operator or dtype the device cannot run
│   ├── DoesNotFitError          a design or model that needs more resources than there are
│   ├── CaptureError             a torch module that cannot be captured
│   └── OutputError              an output path that exists or cannot be written
└── MissingDependencyError (also ImportError)  an optional extra is not installed

A message names the field, the value, the allowed range, and what to do next.
"""

from __future__ import annotations

from collections.abc import Iterable


class AccelsimError(Exception):
    """Base of all accelsim errors."""


class AccelsimWarning(UserWarning):
    """Something a reader of the result should know, but that does not stop it."""


class InputError(AccelsimError, ValueError):
    """The caller's input is wrong; the message says how to mend it."""


class InvalidValueError(InputError):
    """A value lies outside its allowed range.

    Args:
        field: Name of the field, as the user wrote it.
        value: The offending value.
        allowed: The allowed range or choices, in words.
        remedy: What to do next; may be empty.
    """

    def __init__(self, field: str, value: object, allowed: str, remedy: str = "") -> None:
        self.field, self.value, self.allowed = field, value, allowed
        shown = repr(value)
        shown = shown if len(shown) <= 80 else shown[:77] + "..."
        wrong = "is missing" if value is None else f"= {shown} is not allowed"
        message = f"{field} {wrong}: expected {allowed}."
        super().__init__(f"{message} {remedy}".rstrip())


class OverBudgetError(InvalidValueError):
    """The cheapest offer of a device costs more than the caller's cap."""


class PowerLimitError(InvalidValueError):
    """A device that such a power limit cannot be set on."""


class UnknownNameError(InputError):
    """No entry of that name; near matches are offered.

    Args:
        what: Kind of thing looked up ("device", "workload", ...).
        name: The name that was not found.
        known: All known names, for near matches.
        remedy: What to do next; may be empty.
    """

    def __init__(self, what: str, name: str, known: Iterable[str], remedy: str = "") -> None:
        from difflib import get_close_matches

        self.what, self.name = what, name
        spelled = {str(k).lower(): str(k) for k in known}
        close = get_close_matches(name.lower(), spelled, n=4, cutoff=0.4)
        self.near = [spelled[k] for k in close]
        hint = f" Did you mean {', '.join(self.near)}?" if self.near else ""
        shown = name if len(name) <= 80 else name[:77] + "..."
        super().__init__(f"Unknown {what} {shown!r}.{hint} {remedy}".rstrip())


class ProfileError(InputError):
    """A data file does not validate.

    Args:
        path: The file.
        problems: One line each: "line 12, power.limit_w: ...".
    """

    def __init__(self, path: str, problems: Iterable[str]) -> None:
        self.path, self.problems = path, tuple(problems)
        super().__init__(f"{path}: " + "; ".join(self.problems))


class UnsupportedOperatorError(InputError):
    """A device cannot run an operator, or not in that dtype.

    Args:
        device: Device name.
        operator: Operator kind (and name).
        reason: Why, in words.
        remedy: What to do next.
    """

    def __init__(self, device: str, operator: str, reason: str, remedy: str = "") -> None:
        self.device, self.operator = device, operator
        remedy = remedy or "Choose another precision or device, or allow host fallback."
        super().__init__(f"{device} cannot run {operator}: {reason}. {remedy}")


class DoesNotFitError(InputError):
    """A design or model needs more of a resource than the device has.

    Args:
        device: Device name.
        resource: What is short ("memory_bytes", "dsp_count", ...).
        needed: Amount needed.
        available: Amount there is.
        remedy: What to do next.
    """

    def __init__(
        self, device: str, resource: str, needed: float, available: float, remedy: str = ""
    ) -> None:
        from accelsim.quantity import size, whole

        self.device, self.resource = device, resource
        self.needed, self.available = needed, available
        write = size if "bytes" in resource else whole
        name = resource.removesuffix("_bytes").removesuffix(" bytes").replace("_", " ")
        super().__init__(
            f"{device} is {write(needed - available)} short of {name}: it has {write(available)}, "
            f"and {write(needed)} are needed. {remedy}".rstrip()
        )


class CaptureError(InputError):
    """A torch module could not be captured; the message names the submodule or operator."""


class OutputError(InputError):
    """An output path exists already or cannot be written."""


class MissingDependencyError(AccelsimError, ImportError):
    """An optional dependency is not installed.

    Args:
        package: The package that is missing.
        extra: The accelsim extra that brings it.
    """

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"This needs {package}, which is not installed. Run: pip install 'accelsim[{extra}]'"
        )
