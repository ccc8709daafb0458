"""What a finished, unstreamed answer says: token usage and how it ended. Pure reading; answers are never changed."""

import msgspec


class Usage(msgspec.Struct, frozen=True, gc=False):
    """Tokens of one answer, as the engine reported them. `cached_tokens` are part of `prompt_tokens`."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0


class Answer(msgspec.Struct, frozen=True, gc=False):
    """`usage` is None when none was reported. `hit_limit`: ended by the token limit; `aborted`: by the engine."""

    usage: Usage | None = None
    aborted: bool = False
    hit_limit: bool = False


def answer_of(body: bytes) -> Answer:
    """Read a JSON answer (chat, completions, responses, messages, embeddings, llama.cpp, SGLang). Never raises."""
    raise NotImplementedError
