"""Answers as bytes, field by field in the order vLLM 0.32 was recorded to write them.

A stream's chunks are put together from parts that are fixed per request, because one is written per token.
"""

import time
from collections.abc import Sequence

import msgspec

from headway.emulator.asks import Ask
from headway.emulator.transcript import Transcript

encode = msgspec.json.encode
DONE = b"data: [DONE]\n\n"


class Usage(msgspec.Struct, frozen=True):
    """Tokens of one answer. `cached` is None unless the engine tells (--enable-prompt-tokens-details)."""

    prompt: int
    completion: int
    cached: int | None = None

    def totals(self) -> dict[str, object]:
        """The three numbers every usage object begins with."""
        total = self.prompt + self.completion
        return {"prompt_tokens": self.prompt, "total_tokens": total, "completion_tokens": self.completion}

    def whole(self) -> dict[str, object]:
        """As in an answer in one piece."""
        cached = {"cached_tokens": self.cached, "created_cache_tokens": None, "multimodal_tokens": None}
        details = None if self.cached is None else cached
        return {**self.totals(), "prompt_tokens_details": details, "completion_tokens_details": None}

    def final(self) -> dict[str, object]:
        """As in the last chunk of a stream."""
        if self.cached is None:
            return self.totals()
        return {**self.totals(), "prompt_tokens_details": {"cached_tokens": self.cached, "created_cache_tokens": 0}}

    def running(self) -> dict[str, object]:
        """As in every chunk, with continuous_usage_stats."""
        return {**self.totals(), "completion_tokens_details": None}


class Shape:
    """Writes one request's answer, chat or completion, streamed or whole."""

    def __init__(self, ask: Ask, request_id: str, model: str, fingerprint: str) -> None:
        self.ask = ask
        self.id = f"{'chatcmpl' if ask.chat else 'cmpl'}-{request_id}"
        self.model = model
        self.created = int(time.time())
        self.fingerprint = fingerprint
        kind = "chat.completion.chunk" if ask.chat else "text_completion"
        head = {"id": self.id, "object": kind, "created": self.created, "model": model}
        self._open = b"data: " + encode(head)[:-1] + b',"choices":['
        self._print = b',"system_fingerprint":' + encode(fingerprint)
        self._before = b',"delta":{"content":' if ask.chat else b',"text":'
        self._between = b'},"logprobs":null,"finish_reason":' if ask.chat else b',"logprobs":null,"finish_reason":'

    def roles(self, prompts: Sequence[list[int]]) -> bytes:
        """The chunks that open a chat stream, one per choice; a completion stream has none."""
        if not self.ask.chat:
            return b""
        usage = self._usage(Usage(len(prompts[0]), 0))
        ids = encode(prompts[0] if self.ask.return_token_ids else None)
        return b"".join(
            self._open
            + b'{"index":%d,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]' % index
            + usage
            + b',"prompt_token_ids":'
            + ids
            + b',"prompt_text":null}\n\n'
            for index in range(self.ask.n)
        )

    def chunk(self, index: int, said: Transcript, prompt: list[int] | None, usage: Usage | None) -> bytes:
        """One chunk of a stream. `prompt`: its ids, with the first chunk of a completion that returns ids."""
        finish = said.finish
        text = encode(said.delta())
        parts = [self._open, b'{"index":%d' % index, self._before, text, self._between]
        parts.append(encode(finish or None))
        if finish or not self.ask.chat:
            parts += (b',"stop_reason":', encode(said.stop_reason))
        if not self.ask.chat:
            parts += (b',"prompt_token_ids":', encode(prompt))
        ids = said.new_ids() if self.ask.return_token_ids else None
        parts += (b',"token_ids":', encode(ids), b"}]")
        if usage is not None:
            parts.append(self._usage(usage))
        if finish and not self.ask.include_usage:
            parts.append(self._print)
        parts.append(b"}\n\n")
        return b"".join(parts)

    def tail(self, usage: Usage) -> bytes:
        """What ends a stream."""
        if not self.ask.include_usage:
            return DONE
        return self._open + b'],"usage":' + encode(usage.final()) + self._print + b"}\n\n" + DONE

    def whole(self, said: Sequence[Transcript], usage: Usage) -> bytes:
        """The answer in one piece."""
        choices = [self._choice(index, one) for index, one in enumerate(said)]
        kind = "chat.completion" if self.ask.chat else "text_completion"
        answer = {"id": self.id, "object": kind, "created": self.created, "model": self.model, "choices": choices}
        answer |= {"service_tier": None, "system_fingerprint": self.fingerprint, "usage": usage.whole()}
        if self.ask.chat:
            ids = self.ask.prompts[0] if self.ask.return_token_ids else None
            answer |= {"prompt_logprobs": None, "prompt_token_ids": ids, "prompt_text": None}
        return encode({**answer, "kv_transfer_params": None, "ec_transfer_params": None, "metrics": None})

    def _choice(self, index: int, said: Transcript) -> dict[str, object]:
        ids = said.ids if self.ask.return_token_ids else None
        end = {"logprobs": None, "finish_reason": said.finish, "stop_reason": said.stop_reason, "token_ids": ids}
        if self.ask.chat:
            message = {"role": "assistant", "content": said.text, "refusal": None, "annotations": None, "audio": None}
            message |= {"function_call": None, "reasoning": None}
            return {"index": index, "message": message, **end, "routed_experts": None}
        prompt = self.ask.prompts[index // self.ask.n] if self.ask.return_token_ids else None
        more = {"prompt_logprobs": None, "prompt_token_ids": prompt, "routed_experts": None}
        return {"index": index, "text": said.text, **end, **more}

    def _usage(self, usage: Usage) -> bytes:
        return b',"usage":' + encode(usage.running()) if self.ask.continuous_usage else b""
