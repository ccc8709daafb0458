"""One HTTP request while the engine works on it: a mailbox between the engine's loop and the request's coroutine."""

import asyncio
from collections.abc import Sequence as Ordered

from headway.emulator.asks import Ask
from headway.emulator.errors import Refusal
from headway.emulator.transcript import Transcript
from headway.perfmodel.sequence import Sequence

Said = tuple[int, int, str, int | None]
"""Which choice, the token, and why it ended, if it did."""

NO_TOKEN = -1


class Job:
    """`said`: the choices, in order. The loop calls `post`, `end` and `fail`; the coroutine awaits `take`."""

    __slots__ = ("_inbox", "_waiter", "ask", "failure", "left", "prompts", "request_id", "said", "sequences")

    def __init__(self, request_id: str, ask: Ask) -> None:
        self.request_id = request_id
        self.ask = ask
        self.prompts: Ordered[list[int]] = [prompt for prompt in ask.prompts for _ in range(ask.n)]
        self.said = [Transcript(ask, prompt) for prompt in self.prompts]
        self.sequences: list[Sequence] = []
        self.left = len(self.said)
        self.failure: Refusal | None = None
        self._inbox: list[Said] = []
        self._waiter: asyncio.Future[None] | None = None

    @property
    def prompt_tokens(self) -> int:
        """As usage counts them: each prompt once."""
        return sum(map(len, self.ask.prompts))

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens that the engine found in its prefix cache, all choices together."""
        return sum(one.cached for one in self.sequences)

    @property
    def completion_tokens(self) -> int:
        """As usage counts them: all choices."""
        return sum(len(one.ids) for one in self.said)

    def post(self, choice: int, token: int, finish: str, stop_reason: int | None) -> None:
        """A token of a choice."""
        self._inbox.append((choice, token, finish, stop_reason))
        self._wake()

    def end(self, finish: str) -> None:
        """Every choice that goes on ends here, without a token."""
        for choice, said in enumerate(self.said):
            if not said.finish:
                self._inbox.append((choice, NO_TOKEN, finish, None))
        self._wake()

    def fail(self, refusal: Refusal) -> None:
        """The engine died under it."""
        self.failure = refusal
        self._wake()

    async def take(self) -> set[int]:
        """Wait for news and write them into the transcripts; the choices that have some. Empty after a failure."""
        while not self._inbox and self.failure is None:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        news, self._inbox = self._inbox, []
        fresh: set[int] = set()
        for choice, token, finish, stop_reason in news:
            said = self.said[choice]
            if said.finish:
                continue  # a stop string ended it; the engine had not heard yet
            if token == NO_TOKEN:
                said.end(finish)
            else:
                said.push(token, finish, stop_reason)
            fresh.add(choice)
            self.left -= bool(said.finish)
        return fresh

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
