"""The form of a workload file: what a model is called, which family writes it, and what it must
agree with.

A file names a model, picks a family with its parameters, and lists published figures. Numbers in
`published` are plain: parameters as a count, FLOP with a multiply-add as 2. Sizes in `shape`
complete the workload's default run at batch 1. A model of another's architecture names it in
`same_as` and writes what is its own: its name, title and published figures, and parameters that
differ.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails

from accelsim.catalog.checkpoints.quantization import published_precision
from accelsim.plain import Document, Values
from accelsim.workloads.families import load_family
from accelsim.workloads.model import Family, PassShape, Published, Workload

#: Names are kebab-case; dots belong to version numbers ("llama-3.1-8b").
NAME_PATTERN = r"^[a-z0-9]+(?:[-.][a-z0-9]+)*$"
_DEFAULT_TOLERANCE = 0.005
_Name = Annotated[str, Field(pattern=NAME_PATTERN, max_length=80)]
_Length = Annotated[int, Field(ge=0, le=2**24)]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


class ShapeSpec(_Strict):
    """Sizes of a run; see `model.PassShape`."""

    batch: int = Field(default=1, ge=1, le=2**30)
    seq_len: _Length = 0
    context_len: _Length = 0
    target_len: _Length = 0
    source_len: _Length = 0
    image_size: int = Field(default=0, ge=0, le=2**14)


class PublishedSpec(_Strict):
    """A published figure.

    Attributes:
        quantity: "parameters" or "flop" (matrix arithmetic of one forward pass, multiply-add = 2).
        value: The figure.
        source: Where it was published.
        shape: Sizes it holds for; what is left out comes from the default run at batch 1.
        tolerance_fraction: Allowed relative difference; beyond 0.5 % a note must say why.
        note: How the figure was rounded or counted.
    """

    quantity: Literal["parameters", "flop"]
    value: float = Field(gt=0, le=1e30)
    source: str = Field(min_length=8)
    shape: ShapeSpec = ShapeSpec()
    tolerance_fraction: float = Field(default=_DEFAULT_TOLERANCE, gt=0, le=0.2)
    note: str | None = None

    @model_validator(mode="after")
    def _wide_tolerance_is_explained(self) -> PublishedSpec:
        if self.tolerance_fraction > _DEFAULT_TOLERANCE and not self.note:
            raise ValueError(
                f"tolerance_fraction above {_DEFAULT_TOLERANCE} needs a note that says why"
            )
        return self


def _or_another(schema: dict[str, Any]) -> None:
    """A file has all that is required, or names another workload that has it."""
    required = schema.pop("required")
    schema["required"] = ["name", "title"]
    schema["anyOf"] = [{"required": required}, {"required": ["same_as"]}]


class WorkloadSpec(_Strict):
    """A workload file.

    Attributes:
        name: Kebab-case name; the file's stem in the catalogue.
        title: Name for people.
        aliases: Other names.
        task: What the model does, in kebab-case.
        family: Family that writes its layers.
        parameters: Parameters of the family.
        default: Sizes used where the caller names none.
        output_len: Tokens generated per sequence; 0 for models that do not generate.
        published: Published figures the model must agree with.
        quantization: How its published weights are stored, as ``quantization_config`` of a
            checkpoint says it.
        note: What a reader should know.
        picture_encoder: Workload that makes tokens of the pictures in a prompt.
        same_as: Workload of the same architecture, whose fields count where this file has none.
    """

    model_config = ConfigDict(json_schema_extra=_or_another)

    name: _Name
    title: str = Field(min_length=1, max_length=120)
    aliases: Annotated[tuple[_Name, ...], Field(strict=False)] = ()
    task: _Name
    family: str = Field(min_length=1, max_length=80)
    parameters: Document
    default: ShapeSpec = ShapeSpec()
    output_len: _Length = 0
    published: Annotated[tuple[PublishedSpec, ...], Field(strict=False)] = ()
    quantization: Document | None = None
    note: str | None = None
    picture_encoder: _Name | None = None
    same_as: _Name | None = None


def parse_workload(data: Values) -> Workload:
    """Build a workload from the contents of its file.

    Args:
        data: The file's top-level mapping.

    Raises:
        pydantic.ValidationError: If a field is wrong; locations are those of the file.
        UnknownNameError: If there is no such family.
    """
    spec = WorkloadSpec.model_validate(data)
    family = load_family(spec.family)
    return Workload(
        name=spec.name,
        title=spec.title,
        task=spec.task,
        family=family,
        parameters=_family_parameters(family, spec.parameters),
        default=PassShape(**spec.default.model_dump()),
        output_len=spec.output_len,
        aliases=spec.aliases,
        published=tuple(_published(figure, spec.default) for figure in spec.published),
        note=spec.note,
        quantised=published_precision({"quantization_config": spec.quantization}),
        picture_encoder=spec.picture_encoder,
        same_as=spec.same_as,
    )


def _published(figure: PublishedSpec, default: ShapeSpec) -> Published:
    sizes = figure.shape.model_dump(exclude_unset=True)
    shape = PassShape(**{**default.model_dump(), "batch": 1, **sizes})
    return Published(figure.quantity, figure.value, figure.source, shape, figure.tolerance_fraction)


def _family_parameters(family: Family, data: Values) -> BaseModel:
    """Validate the family's own parameters, locating problems under ``parameters`` as the file
    does.
    """
    try:
        return family.parameters.model_validate(data)
    except ValidationError as error:
        details = [
            InitErrorDetails(
                type=problem["type"],
                loc=("parameters", *problem["loc"]),
                input=problem["input"],
                ctx=problem.get("ctx", {}),
            )
            for problem in error.errors(include_url=False)
        ]
        raise ValidationError.from_exception_data("WorkloadSpec", details) from None
