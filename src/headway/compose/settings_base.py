"""What the sections of the user's file have in common: their base, and the types of their values."""

from typing import Annotated, Any, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

Port = Annotated[int, Field(ge=0, le=65535)]
Seconds = Annotated[float, Field(ge=0.001, allow_inf_nan=False)]
SecondsOrZero = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Rate = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Weight = Annotated[float, Field(ge=1e-6, le=1e6)]
"""A share relative to others: beyond this it would be none or all."""
LARGEST = 2**53
"""Above it numbers do not count in ones any more, nor fit where they are written to."""
Positive = Annotated[int, Field(gt=0, le=LARGEST)]
Bytes = Positive
Count = Annotated[int, Field(ge=0, le=LARGEST)]
ModelName = Annotated[str, Field(min_length=1)]


class Section(BaseModel):
    """A part of the file. Unknown keys are errors: a misspelt setting must not be silently ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True, str_strip_whitespace=True)

    @model_validator(mode="before")
    @classmethod
    def _as_written(cls, data: Any) -> Any:
        """What YAML makes of it: a section or list with every line below it commented out is nothing, and stands for
        its defaults; a truth is no number, though Python counts with it."""
        if not isinstance(data, dict):
            return {} if data is None else data
        return {
            name: str(value).lower() if isinstance(value, bool) and _counts(cls, name) else value
            for name, value in data.items()
            if value is not None or not _holds(cls, name)
        }


def _holds(section: type[BaseModel], name: str) -> bool:
    field = section.model_fields.get(name)
    return field is not None and isinstance(field.default, BaseModel | list | dict)


def _counts(section: type[BaseModel], name: str) -> bool:
    field = section.model_fields.get(name)
    kinds = {None} if field is None else set(get_args(field.annotation)) or {field.annotation}
    return bool not in kinds and bool(kinds & {int, float})
