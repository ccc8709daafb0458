"""What the sections of the user's file have in common: their base, and the types of their values."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Port = Annotated[int, Field(ge=0, le=65535)]
Seconds = Annotated[float, Field(ge=0.001, allow_inf_nan=False)]
SecondsOrZero = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Rate = Annotated[float, Field(ge=0, allow_inf_nan=False)]
LARGEST = 2**53
"""Above it numbers do not count in ones any more, nor fit where they are written to."""
Positive = Annotated[int, Field(gt=0, le=LARGEST)]
Bytes = Positive
Count = Annotated[int, Field(ge=0, le=LARGEST)]
ModelName = Annotated[str, Field(min_length=1)]


class Section(BaseModel):
    """A part of the file. Unknown keys are errors: a misspelt setting must not be silently ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True)
