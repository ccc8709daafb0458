"""Names for requests, in the form vLLM gives them."""

import secrets


def request_id() -> str:
    """Sixteen hexadecimal digits."""
    return secrets.token_hex(8)
