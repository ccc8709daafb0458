"""What clients of the suite do, with the official SDK: ask, stream, read a stream to its end in a thread."""

import threading
import time
from collections.abc import Callable, Iterator

import openai
from openai import OpenAI
from openai.types.chat import ChatCompletionChunk, ChatCompletionMessageParam

from tests.real.engines import Launcher

CHAT: list[ChatCompletionMessageParam] = [{"role": "user", "content": "tell me about load balancing"}]
ENDLESS = 6000
"""Tokens of an answer that no test waits for: several seconds even on the smallest model."""

Chunks = openai.Stream[ChatCompletionChunk]


def client_of(base_url: str) -> OpenAI:
    """The official client, told not to retry: what fails once must be seen."""
    return OpenAI(base_url=base_url, api_key="none", max_retries=0, timeout=120.0)


def ask(sdk: OpenAI, launcher: Launcher, tokens: int = 24) -> str:
    """A short plain chat; its text."""
    answer = sdk.chat.completions.create(model=launcher.model, messages=CHAT, max_tokens=tokens, temperature=0)
    return answer.choices[0].message.content or ""


def stream(sdk: OpenAI, launcher: Launcher, tokens: int) -> Chunks:
    """A chat stream of so many tokens."""
    return sdk.chat.completions.create(
        model=launcher.model,
        messages=CHAT,
        max_tokens=tokens,
        temperature=0,
        stream=True,
        extra_body=launcher.go_on,
    )


def first_content(chunks: Iterator[ChatCompletionChunk]) -> None:
    """Read until some text has arrived."""
    for chunk in chunks:
        if chunk.choices and chunk.choices[0].delta.content:
            return


class Client(threading.Thread):
    """Reads one stream to its end, whatever that is, or until it is told to leave."""

    def __init__(self, open_stream: Callable[[], Chunks]) -> None:
        super().__init__(daemon=True)
        self.open_stream = open_stream
        self.begun = threading.Event()
        self.error: openai.APIError | None = None
        self.finish_reason = ""
        self.pieces: list[str] = []
        self.tokens = 0  # as the usage says, where it was asked for
        self.heard_at = 0.0
        self.ended_at = 0.0
        self._left = threading.Event()

    def leave(self) -> None:
        """Close the connection at the next event."""
        self._left.set()
        self.join(60)

    def run(self) -> None:
        try:
            with self.open_stream() as chunks:
                for chunk in chunks:
                    self.heard_at = time.monotonic()
                    self.begun.set()
                    if self._left.is_set():
                        break
                    if chunk.usage is not None:
                        self.tokens = chunk.usage.completion_tokens
                    if chunk.choices and chunk.choices[0].delta.content:
                        self.pieces.append(chunk.choices[0].delta.content)
                    if chunk.choices and chunk.choices[0].finish_reason:
                        self.finish_reason = chunk.choices[0].finish_reason
        except openai.APIError as error:
            self.error = error
        self.ended_at = time.monotonic()
