"""From messages, text or token ids to the ids an engine is given: the chat template and the checks around it."""

from collections.abc import Sequence
from typing import Any

from headway.emulator.errors import Refusal, bad
from headway.perfmodel.text import Tokenizer
from headway.perfmodel.vocabulary import EOS, IM_START, SIZE

CHARACTERS_PER_TOKEN = 16
"""vLLM refuses texts longer than this times the context without splitting them."""


class Renderer:
    """Makes prompts. One per process: it remembers the splits of words."""

    def __init__(self, max_model_len: int) -> None:
        self.tokenizer = Tokenizer()
        self.max_model_len = max_model_len
        self._newline = self.tokenizer.encode("\n")

    def chat(self, fields: dict[str, Any]) -> list[int] | Refusal:
        """The ids of a conversation in ChatML, with the assistant's turn opened or its last message left open."""
        messages = fields.get("messages") or []
        if not messages:
            return bad("Cannot apply chat template to an empty conversation. Provide at least one message.")
        goes_on = bool(fields.get("continue_final_message"))
        opens = fields.get("add_generation_prompt", True)
        if goes_on and opens:
            return bad("Cannot set both `continue_final_message` and `add_generation_prompt` to True.")
        texts = [_content(message) for message in messages]
        refusal = next((text for text in texts if isinstance(text, Refusal)), None)
        if refusal is None:
            refusal = self.too_many_characters(sum(len(text) for text in texts if isinstance(text, str)))
        if refusal is not None:
            return refusal
        turns = [(str(message.get("role", "user")), str(text)) for message, text in zip(messages, texts, strict=True)]
        return self._turns(turns, bool(opens), goes_on)

    def _turns(self, turns: list[tuple[str, str]], opens: bool, goes_on: bool) -> list[int]:
        ids: list[int] = []
        for number, (role, text) in enumerate(turns, 1):
            ids += [IM_START, *self.tokenizer.encode(f"{role}\n"), *self.tokenizer.encode(text)]
            if not (goes_on and number == len(turns)):
                ids += [EOS, *self._newline]
        if opens:
            ids += [IM_START, *self.tokenizer.encode("assistant\n")]
        return ids

    def completions(self, prompt: Any) -> list[list[int]] | Refusal:
        """The prompts of a completion request: one or several, as text or as ids."""
        if isinstance(prompt, str) or (isinstance(prompt, list) and prompt and isinstance(prompt[0], int)):
            prompt = [prompt]
        if not isinstance(prompt, list) or not prompt:
            return bad("Either prompt or prompt_embeds must be provided and non-empty.", "prompt")
        made: list[list[int]] = []
        for one in prompt:
            ids = self._one(one)
            if isinstance(ids, Refusal):
                return ids
            made.append(ids)
        return made

    def _one(self, prompt: Any) -> list[int] | Refusal:
        if isinstance(prompt, str) and prompt:
            return self.too_many_characters(len(prompt)) or self.tokenizer.encode(prompt)
        if isinstance(prompt, list) and prompt:
            return check_ids(prompt) or prompt
        return bad("Either prompt or prompt_embeds must be provided and non-empty.", "prompt")

    def too_many_characters(self, count: int) -> Refusal | None:
        """The refusal of a text that cannot fit whatever it splits into."""
        bound = CHARACTERS_PER_TOKEN * self.max_model_len
        if count <= bound:
            return None
        longest = self.max_model_len
        message = (
            f"This model's maximum context length is {longest} tokens. However, your prompt contains {count} "
            f"characters (more than {bound} characters, which is the upper bound for {longest} input tokens). "
            "Please reduce the length of the input prompt."
        )
        return bad(message, "input_text", count)


def check_ids(ids: Sequence[Any]) -> Refusal | None:
    """Complain about the first id that the vocabulary does not have."""
    for one in ids:
        if not isinstance(one, int) or not 0 <= one < SIZE:
            return bad(f"Token id {one} is out of vocabulary")
    return None


def _content(message: Any) -> str | Refusal:
    """The text of a message; parts that are not text are refused, as a model without eyes does."""
    if not isinstance(message, dict):
        return bad("Every message must be an object with a role and content.", "messages")
    content = message.get("content")
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
        if len(texts) != len(content) or not all(isinstance(text, str) for text in texts):
            return bad("At most 0 image(s) may be provided in one prompt.")
        return "\n".join(map(str, texts))
    return "" if content is None else str(content)
