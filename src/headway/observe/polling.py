"""Asking one replica for its load report: which paths, how patiently, and what to remember about absent ones."""

import asyncio
from collections.abc import Mapping

import msgspec

from headway.engines.base import Poll
from headway.observe.config import ObserveConfig
from headway.runtime.http import Answer, Client, Failure, FailureKind

ABSENT = frozenset({401, 403, 404, 405, 501})
"""Statuses that say "not here, not for you"; others may be better next time."""


class Polled(msgspec.Struct, frozen=True):
    """What came of one round: bodies by path (none if only optional polls gave any, and not those a stand-in was needed
    for: they are no report, and must not be read as one without gauges), why the required polls failed, whether nobody
    listens there, whether one was cut off, whether we failed (for lack of descriptors) rather than the engine."""

    answers: dict[str, bytes]
    errors: tuple[str, ...]
    refused: bool
    cut: bool
    ours: bool = False


class Poller:
    """The polls of one replica. Optional ones and those with a stand-in are left alone for a while when absent."""

    def __init__(
        self, client: Client, base: str, polls: tuple[Poll, ...], headers: Mapping[str, str], config: ObserveConfig
    ) -> None:
        self._client = client
        self._base = base
        self._polls = polls
        self._headers = dict(headers)
        self._config = config
        self._optional = {poll.path for poll in polls if poll.optional}
        self._spared = {poll.unless for poll in polls} | self._optional
        self._absent_until: dict[str, float] = {}

    async def ask(self, at: float) -> Polled:
        """One round: the first choices together, then stand-ins for those that gave nothing. `at` is now."""
        got: dict[str, Answer | Failure] = {}
        await self._ask([poll for poll in self._polls if not poll.unless], at, got)
        await self._ask([poll for poll in self._polls if poll.unless and _wanted(poll, got)], at, got)
        replaced = {poll.unless for poll in self._polls if poll.unless and _good(got.get(poll.path))}
        failed = [
            f"{poll.path}: {_said(got[poll.path])}"
            for poll in self._polls
            if poll.path in got and not poll.optional and poll.path not in replaced and not _good(got[poll.path])
        ]
        mute = {poll.unless for poll in self._polls if poll.unless and _wanted(poll, got)}
        failed += [f"{path}: says nothing of use" for path in sorted(mute - replaced) if _good(got.get(path))]
        good = {path: a for path, a in got.items() if isinstance(a, Answer) and a.status == 200 and path not in mute}
        answers = {path: _whole_lines(answer) for path, answer in good.items()}
        return Polled(
            answers=answers if answers.keys() - self._optional else {},
            errors=tuple(failed),
            refused=any(isinstance(a, Failure) and a.kind is FailureKind.REFUSED for a in got.values()),
            cut=any(isinstance(a, Answer) and a.cut for a in got.values()),
            ours=any(isinstance(a, Failure) and a.kind is FailureKind.OURS for a in got.values()),
        )

    async def _ask(self, polls: list[Poll], at: float, got: dict[str, Answer | Failure]) -> None:
        due = [poll for poll in polls if self._absent_until.get(poll.path, at) <= at]
        if len(due) == 1:  # the usual case, without the cost of tasks
            answers = [await self._fetch(due[0])]
        else:
            answers = await asyncio.gather(*map(self._fetch, due))
        for poll, answer in zip(due, answers, strict=True):
            got[poll.path] = answer
            if poll.path in self._spared and isinstance(answer, Answer) and answer.status in ABSENT:
                self._absent_until[poll.path] = at + self._config.absent_s

    async def _fetch(self, poll: Poll) -> Answer | Failure:
        return await self._client.fetch(
            self._base + poll.path,
            timeout_s=max(self._config.timeout_s, poll.patience_s),
            cap_bytes=self._config.page_cap_bytes,
            headers=self._headers,
        )


def _wanted(poll: Poll, got: Mapping[str, Answer | Failure]) -> bool:
    """Whether this stand-in is needed: the first choice gave nothing, or nothing of use."""
    first = got.get(poll.unless)
    return not (isinstance(first, Answer) and first.status == 200 and poll.says in first.body)


def _good(answer: Answer | Failure | None) -> bool:
    return isinstance(answer, Answer) and answer.status == 200


def _said(answer: Answer | Failure) -> str:
    return f"status {answer.status}" if isinstance(answer, Answer) else str(answer)


def _whole_lines(answer: Answer) -> bytes:
    """A cut page ends after its last whole line: half a number would be a wrong number."""
    return answer.body[: answer.body.rfind(b"\n") + 1] if answer.cut else answer.body
