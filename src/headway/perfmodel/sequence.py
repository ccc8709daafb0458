"""One request inside the engine: what was asked (`Request`), and how far it has come (`Sequence`).

Which sequence runs when is `engine`'s business; what it says is `tokens`'.
"""

from collections.abc import Sequence as Tokens

import msgspec
import xxhash

from headway.perfmodel.tokens import TokenStream, block_keys
from headway.perfmodel.vocabulary import EOS


class Request(msgspec.Struct, frozen=True):
    """What an engine is asked to do.

    `output_tokens` > 0 scripts the length (simulations): the answer ends after exactly so many tokens, EOS or not.
    `salt` separates prefix caches: equal prompts share blocks only under equal salts. `priority`: lower goes first, if
    the engine looks at it.
    """

    id: str
    prompt: Tokens[int]
    max_tokens: int
    min_tokens: int = 0
    ignore_eos: bool = False
    stop_token_ids: frozenset[int] = frozenset()
    salt: str = ""
    output_tokens: int = 0
    priority: int = 0


class Sequence:
    """A request that was taken in. Times are virtual seconds, -1.0 until they happen.

    `length`: prompt and generated tokens; `computed`: those with a KV entry; `blocks`: where these are; `keys`: one
    per full block of tokens; `finish`: why it ended ("" while it goes on), `stop_reason` the stop token, if any.
    """

    __slots__ = (
        "_salt",
        "arrived",
        "blocks",
        "cached",
        "computed",
        "finish",
        "first_token",
        "id",
        "keys",
        "last_token",
        "length",
        "limit",
        "preemptions",
        "prompt_length",
        "request",
        "started",
        "stop_reason",
        "stream",
    )

    def __init__(self, request: Request, block_size: int, limit: int, now: float) -> None:
        self.request = request
        self.id = request.id
        self.stream = TokenStream(request.prompt)
        self.prompt_length = self.length = len(request.prompt)
        self.limit = limit
        self._salt = xxhash.xxh3_64_intdigest(request.salt.encode()) if request.salt else 0
        self.keys = [key ^ self._salt for key in block_keys(request.prompt, block_size)]
        self.blocks: list[int] = []
        self.computed = 0
        self.cached = 0
        self.preemptions = 0
        self.finish = ""
        self.stop_reason: int | None = None
        self.arrived = now
        self.started = self.first_token = self.last_token = -1.0

    @property
    def generated(self) -> int:
        """Tokens generated so far."""
        return self.length - self.prompt_length

    def generate(self, block_size: int) -> int:
        """Say the next token, and note whether it was the last one."""
        request = self.request
        stream = self.stream
        count = self.length - self.prompt_length + 1
        token = stream.next(may_end=count > request.min_tokens)
        stream.push(token)
        self.length += 1
        if not self.length % block_size:
            self.keys.append(stream.key ^ self._salt)
        if count >= self.limit:
            self.finish = "length"
        if request.output_tokens:
            return token
        if token == EOS and not request.ignore_eos:
            self.finish = "stop"
        elif token in request.stop_token_ids and count > request.min_tokens:
            self.finish, self.stop_reason = "stop", token
        return token
