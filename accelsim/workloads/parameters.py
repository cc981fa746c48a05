"""Base classes of the parameters that workload files give their family."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["FamilyParameters", "ImageParameters"]


class FamilyParameters(BaseModel):
    """Parameters of a family: strict, frozen, and nothing the family does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class ImageParameters(FamilyParameters):
    """Parameters every image model has.

    Attributes:
        image_size: Side of the square input the model was designed for, in pixels.
        image_channels: Input channels.
        classes: Outputs of the classifier.
    """

    image_size: int = Field(default=224, ge=1, le=2**14)
    image_channels: int = Field(default=3, ge=1, le=1024)
    classes: int = Field(default=1000, ge=1, le=2**20)
