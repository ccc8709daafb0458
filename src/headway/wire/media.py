"""A rough measure of the images and sounds inside a prompt, found without decoding them."""

import re

TOKENS_EACH = 1_000
"""Tokens assumed for one image, sound or file. Vision models of common families spend 700 to 1,600 tokens on a picture
of about a megapixel (Qwen2.5-VL: one per 28x28 pixels, 1,369 at 1024x1024; Llama 3.2: 1,601 per tile), audio models
some 25 per second. Only the order matters: a picture must not look like its 300,000 base64 characters of text."""

_PART = re.compile(
    rb'"type"\s*:\s*"(?:image|image_url|input_image|input_audio|audio_url|video_url|input_file|file|document)"'
    rb'|;base64,|"data"\s*:\s*"'
)
_LONG = 256  # a "data" string shorter than this is no inline medium


def measure(body: bytes) -> tuple[int, int]:
    """`(tokens, bytes)`: the rough token count of all media and the length of what is inline as base64."""
    if body.find(b"[", body.find(b"[") + 1) < 0:
        return 0, 0  # one flat list of messages with plain text: no content parts anywhere
    parts = inline = payloads = at = 0
    while (match := _PART.search(body, at)) is not None:
        at = match.end()
        if match[0].startswith(b'"type"'):
            parts += 1
            continue
        end = body.find(b'"', at)
        if end - at >= _LONG:
            inline += end - at
            payloads += 1
            at = end
    return max(parts, payloads) * TOKENS_EACH, inline
