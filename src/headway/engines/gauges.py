"""Reading gauges without trusting them: the values of one metrics page, for one model, with a list of what is missing.

Rules shared by every dialect: several engines in one process (data parallelism) are summed; a series of another model
is left out; a family with one unusable value is unusable as a whole, because a partial sum would be a guess.
"""

import math
from collections.abc import Mapping, Sequence

Labels = Mapping[str, str]
Series = Sequence[tuple[Labels, float]]

LARGEST = float(2**53)  # above it a float no longer counts in ones; no real gauge is there, but 1e308 has been seen
MODEL_LABEL = "model_name"
MALFORMED = "(lines that cannot be read)"


def usable(value: float) -> bool:
    """Whether a gauge's value can be real: finite, not negative, countable."""
    return math.isfinite(value) and 0 <= value <= LARGEST


def whole(value: object) -> int | None:
    """A count from a JSON or label value, None if it is not one."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not usable(value):
        return None
    return int(value)


class Gauges:
    """The families of one page, as one model sees them. Every lookup takes the spellings of a name, newest first.

    `same` names labels that tell apart copies of one value (the ranks of tensor parallelism): one copy is taken.
    """

    def __init__(self, families: Mapping[str, Series], model: str = "", same: frozenset[str] = frozenset()) -> None:
        self._families = families
        self._model = model
        self._same = same
        malformed = getattr(families, "malformed", 0)
        self.missing: list[str] = [MALFORMED] if malformed else []

    def series(self, *spellings: str, required: bool = True) -> Series:
        """The usable series of the first spelling present; empty, and named as missing, if there is none."""
        for name in spellings:
            if found := self._families.get(name):
                chosen = self._distinct(self._of_model(found))
                if chosen and all(usable(value) for _, value in chosen):
                    return chosen
                self.missing.append(name)
                return ()
        if required:
            self.missing.append(spellings[0])
        return ()

    def total(self, *spellings: str, required: bool = True) -> int | None:
        """The sum over engines, None if missing."""
        found = self.series(*spellings, required=required)
        return round(sum(value for _, value in found)) if found else None

    def by(self, label: str, *spellings: str, required: bool = True) -> dict[str, float]:
        """Values by a label, summed over the others; empty if missing. A series without the label counts under ""."""
        values: dict[str, float] = {}
        for labels, value in self.series(*spellings, required=required):
            key = labels.get(label, "")
            values[key] = values.get(key, 0.0) + value
        return values

    def fractions(self, label: str, *spellings: str) -> dict[str, float]:
        """As `by`, of values that lie between 0 and 1; empty, and named as missing, if one does not."""
        values = self.by(label, *spellings)
        if any(value > 1.0 for value in values.values()):
            self.missing.append(spellings[0])
            return {}
        return values

    def _of_model(self, series: Series) -> Series:
        names = {labels.get(MODEL_LABEL) for labels, _ in series}
        if len(names) == 1:
            return series  # one model under whatever name: an alias of ours, or a name given to the engine
        return [pair for pair in series if pair[0].get(MODEL_LABEL) == self._model]

    def _distinct(self, series: Series) -> Series:
        if len(series) == 1:
            return series
        copies = {
            tuple(sorted(item for item in labels.items() if item[0] not in self._same)): (labels, value)
            for labels, value in series
        }
        return list(copies.values())
