"""What answers say about themselves, as values. Plain classes and no Structs, as in the brain (`core.entries`)."""

from typing import Final, final


@final
class Usage:
    """Tokens of one answer, as the engine reported them. `cached_tokens` are part of `prompt_tokens`."""

    __slots__ = ("cached_tokens", "completion_tokens", "prompt_tokens")

    def __init__(self, prompt_tokens: int = 0, cached_tokens: int = 0, completion_tokens: int = 0) -> None:
        self.prompt_tokens: Final = prompt_tokens
        self.cached_tokens: Final = cached_tokens
        self.completion_tokens: Final = completion_tokens

    def facts(self) -> tuple[int, int, int]:
        """All of it, in the order of the arguments."""
        return self.prompt_tokens, self.cached_tokens, self.completion_tokens

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Usage) and self.facts() == other.facts()

    def __hash__(self) -> int:
        return hash(self.facts())

    def __repr__(self) -> str:
        return f"Usage{self.facts()}"


@final
class Answer:
    """`usage` is None when none was reported. `hit_limit`: ended by the token limit; `aborted`: by the engine.
    `malformed`: it is something, but no JSON, not even for readers that take NaN and Infinity."""

    __slots__ = ("aborted", "hit_limit", "malformed", "usage")

    def __init__(
        self, usage: Usage | None = None, aborted: bool = False, hit_limit: bool = False, malformed: bool = False
    ) -> None:
        self.usage: Final = usage
        self.aborted: Final = aborted
        self.hit_limit: Final = hit_limit
        self.malformed: Final = malformed

    def facts(self) -> tuple[Usage | None, bool, bool, bool]:
        """All of it, in the order of the arguments."""
        return self.usage, self.aborted, self.hit_limit, self.malformed

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Answer) and self.facts() == other.facts()

    def __hash__(self) -> int:
        return hash(self.facts())

    def __repr__(self) -> str:
        return f"Answer{self.facts()}"


@final
class Facts:
    """What a response said about itself, for the settlement."""

    __slots__ = ("hit_limit", "tokens", "usage")

    def __init__(self, usage: Usage | None = None, tokens: int = 0, hit_limit: bool = False) -> None:
        self.usage: Final = usage
        self.tokens: Final = tokens
        self.hit_limit: Final = hit_limit


NO_FACTS: Final = Facts()
