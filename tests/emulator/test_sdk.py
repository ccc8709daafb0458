"""The official client cannot tell the emulator from the real thing."""

from collections.abc import Iterator

import openai
import pytest

from tests.emulator.process import EmulatorProcess

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def client(tiny: EmulatorProcess) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{tiny.url}/v1", api_key="x", max_retries=0) as one:
        yield one


def test_chat(client: openai.OpenAI) -> None:
    messages = [{"role": "user", "content": "hello"}]
    whole = client.chat.completions.create(model="tiny", messages=messages)  # type: ignore[arg-type]
    chunks = list(
        client.chat.completions.create(
            model="tiny",
            messages=messages,  # type: ignore[arg-type]
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens  # type: ignore[union-attr]


def test_completions(client: openai.OpenAI) -> None:
    whole = client.completions.create(model="tiny", prompt="hello", max_tokens=20)
    chunks = client.completions.create(model="tiny", prompt="hello", max_tokens=20, stream=True)
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text


def test_models_and_errors(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["tiny"]
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        client.completions.create(model="other", prompt="x")
    with pytest.raises(openai.BadRequestError, match="max_tokens must be at least 1"):
        client.completions.create(model="tiny", prompt="x", max_tokens=0)
