"""Streams to scan, as lists of events, and ways to write the same stream down."""

ROLE = '{"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}'
USAGE = '{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":4}}}'
DONE = "[DONE]"


def token(text: str, finish: str = "null") -> str:
    """One content event of a chat stream."""
    return f'{{"choices":[{{"index":0,"delta":{{"content":"{text}"}},"finish_reason":{finish}}}]}}'


def call(arguments: str) -> str:
    """One tool-call event without an id."""
    return f'{{"choices":[{{"delta":{{"tool_calls":[{{"index":0,"function":{{"arguments":"{arguments}"}}}}]}}}}]}}'


def told(text: str, token_id: int) -> str:
    """One content event that tells its token's id, as vLLM's with `return_token_ids`."""
    return f'{{"choices":[{{"index":0,"delta":{{"content":"{text}"}},"token_ids":[{token_id}]}}]}}'


PLAIN = [ROLE, token("a"), token(""), token("é", '"stop"'), USAGE, DONE]
TOOLS = [ROLE, call("{"), call("}"), token("", '"tool_calls"'), USAGE, DONE]
BROKEN = [ROLE, token("data: [DONE]"), '{"error":{"message":"engine died","code":500},"choices":[]}', DONE]
LINE_ENDS = {"lf": "\n", "crlf": "\r\n", "cr": "\r"}


def written(events: list[str], end: str = "\n", prefix: str = "data: ") -> bytes:
    """The events as a stream with this line end, a comment after the first."""
    parts = [f"{prefix}{event}{end}{end}" for event in events]
    return (parts[0] + f": ping{end}" + "".join(parts[1:])).encode()


def joined(events: list[str]) -> bytes:
    """The events as engines write them, and nothing between."""
    return "".join(f"data: {event}\n\n" for event in events).encode()
