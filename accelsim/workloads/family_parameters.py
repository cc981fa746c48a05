"""Base classes of the parameters that workload files give their family."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field

#: A width or a number of things.
Count = Annotated[int, Field(ge=1, le=2**24)]
#: The same where there may be none.
Natural = Annotated[int, Field(ge=0, le=2**24)]
#: Layers, which are written one by one.
Depth = Annotated[int, Field(ge=1, le=1024)]
#: Rows of a table.
Rows = Annotated[int, Field(ge=1, le=2**40)]
Counts = Annotated[tuple[Count, ...], Field(strict=False, min_length=1, max_length=4096)]
#: Channels of each level of a U-Net, or of a decoder of pictures.
LevelChannels = Annotated[tuple[Count, ...], Field(strict=False, min_length=2, max_length=8)]
#: Scale of widths or depths.
Multiplier = Annotated[float, Field(gt=0, le=16)]


class FamilyParameters(BaseModel):
    """Parameters of a family: strict, frozen, and nothing the family does not know.

    Attributes:
        untrained: Modules that training leaves as they are; nothing runs backward through them.
    """

    untrained: ClassVar[tuple[str, ...]] = ()
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


class ImageParameters(FamilyParameters):
    """Parameters every image model has.

    Attributes:
        image_size: Side of the square input the model was designed for, in pixels.
        image_channels: Input channels.
        classes: Outputs of the classifier.
    """

    image_size: Count = 224
    image_channels: Count = 3
    classes: Count = 1000

    @property
    def sides(self) -> tuple[int, int]:
        """Rows and columns of the input, in pixels."""
        return self.image_size, self.image_size


class RectangleParameters(FamilyParameters):
    """Parameters of a network with a rectangular input.

    Attributes:
        image_height: Rows of the input, in pixels.
        image_width: Columns.
        image_channels: Channels.
        classes: Outputs of the classifier, per position for dense predictions.
    """

    image_height: Count = 224
    image_width: Count = 224
    image_channels: Count = 3
    classes: Count = 1000

    @property
    def sides(self) -> tuple[int, int]:
        """Rows and columns of the input, in pixels."""
        return self.image_height, self.image_width
