"""Forms of answers in one piece. (Whether they are what engines write: `tests/wire/test_resume_whole.py`.)"""

import pytest

from headway.engines import llamacpp, sglang, vllm
from headway.engines.continuation import Continuation
from headway.wire.resume_body import CHAT, COMPLETIONS


@pytest.mark.parametrize("continuation", [vllm.CONTINUATION, sglang.CONTINUATION, llamacpp.CONTINUATION])
def test_each_engine_that_continues_has_its_forms(continuation: Continuation) -> None:
    chat, completion = continuation.form(CHAT), continuation.form(COMPLETIONS)
    assert "message" in chat.choice
    assert "content" in chat.message
    assert "text" in completion.choice
    assert {"id", "object", "created", "model", "choices"} <= chat.answer.keys() & completion.answer.keys()
