"""A linear programme as it is written down, row by row, and its maximum (scipy's HiGHS). What it means, nobody here
knows."""

from collections.abc import Iterable

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_matrix

Terms = Iterable[tuple[int, float]]
"""Variables and their coefficients."""


class _Rows:
    """A sparse matrix and its right side."""

    def __init__(self) -> None:
        self.limits: list[float] = []
        self._rows: list[int] = []
        self._columns: list[int] = []
        self._values: list[float] = []

    def add(self, limit: float, terms: Terms) -> None:
        row = len(self.limits)
        self.limits.append(limit)
        for variable, coefficient in terms:
            self._rows.append(row)
            self._columns.append(variable)
            self._values.append(coefficient)

    def matrix(self, variables: int) -> csr_matrix | None:
        if not self.limits:
            return None
        cells = (self._values, (self._rows, self._columns))
        return csr_matrix(cells, shape=(len(self.limits), variables))


class Programme:
    """Maximise gains, subject to rows. Variables are at least 0."""

    def __init__(self) -> None:
        self._gains: list[float] = []
        self._most: list[float] = []
        self._upper = _Rows()
        self._equal = _Rows()

    @property
    def variables(self) -> int:
        """How many there are."""
        return len(self._gains)

    @property
    def constraints(self) -> int:
        """How many rows there are."""
        return len(self._upper.limits) + len(self._equal.limits)

    def variable(self, most: float = np.inf, gain: float = 0.0) -> int:
        """A new variable in [0, most]."""
        self._gains.append(gain)
        self._most.append(most)
        return len(self._gains) - 1

    def at_most(self, limit: float, terms: Terms) -> None:
        """The sum of the terms does not exceed the limit."""
        self._upper.add(limit, terms)

    def equal(self, value: float, terms: Terms) -> None:
        """The sum of the terms is the value."""
        self._equal.add(value, terms)

    def maximum(self) -> float:
        """The largest gain. Raises RuntimeError if the solver finds none."""
        found = linprog(
            -np.array(self._gains),
            A_ub=self._upper.matrix(self.variables),
            b_ub=self._upper.limits or None,
            A_eq=self._equal.matrix(self.variables),
            b_eq=self._equal.limits or None,
            bounds=np.column_stack((np.zeros(self.variables), self._most)),
            method="highs",
        )
        if not found.success:
            raise RuntimeError(f"the linear programme has no solution: {found.message}")
        return float(-found.fun)
