"""A rough measure of the images and sounds inside a prompt, found without decoding them."""

import re
from typing import Final

TOKENS_EACH: Final = 1_000
"""Tokens assumed for one image, sound or file. Vision models of common families spend 700 to 1,600 tokens on a picture
of about a megapixel (Qwen2.5-VL: one per 28x28 pixels, 1,369 at 1024x1024; Llama 3.2: 1,601 per tile), audio models
some 25 per second. Only the order matters: a picture must not look like its 300,000 base64 characters of text."""

_PART: Final = re.compile(
    rb'"type"\s*:\s*"(?:image|image_url|input_image|input_audio|audio_url|video_url|input_file|file|document)"'
)
_PAYLOADS: Final = (re.compile(rb";base64,"), re.compile(rb'"data"\s*:\s*"'))
_LONG: Final = 256  # a payload shorter than this is no medium


def measure(prompt: bytes) -> tuple[int, int]:
    """`(tokens, bytes)`: the rough token count of all media and the length of what is inline as base64."""
    if prompt.find(b"[", 1) < 0:
        return 0, 0  # a flat list of messages with plain text: no content parts anywhere
    parts = len(_PART.findall(prompt))
    return parts * TOKENS_EACH, sum(_inline(prompt, payload) for payload in _PAYLOADS) if parts else 0


def _inline(prompt: bytes, payload: re.Pattern[bytes]) -> int:
    total = at = 0
    while (match := payload.search(prompt, at)) is not None:
        at = match.end()
        end = prompt.find(b'"', at)
        if end - at >= _LONG:
            total += end - at
            at = end
    return total
