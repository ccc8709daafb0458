"""How engines write answers in one piece: which keys in which order, as recorded of vLLM 0.32, SGLang 0.5.23 and
llama.cpp b11434. For answers that are put together from a stream, which leaves out what is null.
"""

from typing import Final

from msgspec import UNSET

from headway.wire.resume_whole import Form

_VLLM_USAGE: Final[dict[str, object]] = {
    "prompt_tokens": 0, "total_tokens": 0, "completion_tokens": 0, "prompt_tokens_details": None,
    "completion_tokens_details": None,
}  # fmt: skip
_VLLM_DETAILS: Final[dict[str, object]] = {
    "cached_tokens": None, "created_cache_tokens": None, "multimodal_tokens": None,
}  # fmt: skip
_VLLM_HEAD: Final[dict[str, object]] = {
    "id": None, "object": None, "created": None, "model": None, "choices": None, "service_tier": None,
    "system_fingerprint": None, "usage": None,
}  # fmt: skip
_VLLM_TAIL: Final[dict[str, object]] = {"kv_transfer_params": None, "ec_transfer_params": None, "metrics": None}

VLLM_CHAT: Final = Form(
    {**_VLLM_HEAD, "prompt_logprobs": None, "prompt_token_ids": None, "prompt_text": None, **_VLLM_TAIL},
    {
        "index": 0, "message": None, "logprobs": None, "finish_reason": None, "stop_reason": None, "token_ids": None,
        "routed_experts": None,
    },
    {
        "role": "assistant", "content": None, "refusal": None, "annotations": None, "audio": None,
        "function_call": None, "tool_calls": UNSET, "reasoning": None,
    },
    _VLLM_USAGE,
    _VLLM_DETAILS,
)  # fmt: skip
VLLM_COMPLETION: Final = Form(
    {**_VLLM_HEAD, **_VLLM_TAIL},
    {
        "index": 0, "text": "", "logprobs": None, "finish_reason": None, "stop_reason": None, "token_ids": None,
        "prompt_logprobs": None, "prompt_token_ids": None, "routed_experts": None,
    },
    {},
    _VLLM_USAGE,
    _VLLM_DETAILS,
)  # fmt: skip

_SGLANG_HEAD: Final[dict[str, object]] = {
    "id": None, "object": None, "created": None, "model": None, "choices": None, "usage": None,
}  # fmt: skip
_SGLANG_USAGE: Final[dict[str, object]] = {
    "prompt_tokens": 0, "total_tokens": 0, "completion_tokens": 0, "prompt_tokens_details": None,
    "reasoning_tokens": 0, "completion_tokens_details": None,
}  # fmt: skip
_SGLANG_END: Final[dict[str, object]] = {"logprobs": None, "finish_reason": None, "matched_stop": None}

SGLANG_CHAT: Final = Form(
    _SGLANG_HEAD,
    {"index": 0, "message": None, **_SGLANG_END},
    {"role": "assistant", "content": None, "reasoning_content": None},
    _SGLANG_USAGE,
)
SGLANG_COMPLETION: Final = Form(_SGLANG_HEAD, {"index": 0, "text": "", **_SGLANG_END}, {}, _SGLANG_USAGE)

_LLAMA_ANSWER: Final[dict[str, object]] = {
    "choices": None, "created": None, "model": None, "system_fingerprint": UNSET, "object": None, "usage": UNSET,
    "id": None, "timings": UNSET,
}  # fmt: skip

LLAMA_CHAT: Final = Form(
    _LLAMA_ANSWER,
    {"finish_reason": None, "index": 0, "message": None, "logprobs": UNSET},
    {"role": "assistant", "content": ""},
    unsaid=("prompt_progress",),
)
LLAMA_COMPLETION: Final = Form(
    _LLAMA_ANSWER,
    {"text": "", "index": 0, "logprobs": None, "finish_reason": None},
    unsaid=("prompt_progress",),
)
