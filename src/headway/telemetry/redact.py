"""Keeping credentials out of everything that is written, whatever the log level.

Three nets, because each alone has holes: names of fields that hold secrets, shapes that credentials have, and the very
values that this process was configured with. The last one also catches a secret inside a foreign traceback.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

MASK = "[redacted]"

SENSITIVE = re.compile(
    r"^(?:.*[-_.])?(?:authorization|api[-_]?keys?|(?:access|admin|auth|bearer|id|refresh|client)[-_]?token|token"
    r"|secret|password|passwd|cookie|set-cookie|credentials?)$",
    re.IGNORECASE,
)
"""Names of fields whose value is never shown. Counts such as `output_tokens` do not match."""

SHAPES = re.compile(
    r"""(?P<key>\b(?:authorization|(?:x-)?api[-_]?key|password|secret|(?:access|admin|auth)[-_]token|cookie)["']?\s*[:=]\s*["']?)"""
    r"""(?:(?:bearer|basic)\s+)?[^\s"',;}]+"""
    r"""|(?P<head>\bbearer\s+)[^\s"',;]+"""
    r"""|(?P<user>\b[a-z][a-z0-9+.-]*://)[^\s/@]+@"""
    r"""|\b(?:sk|hf|hw|ghp|xox[abp])[-_][A-Za-z0-9_-]{8,}""",
    re.IGNORECASE,
)
"""What credentials look like in running text: headers, assignments, user info in URLs, well-known prefixes."""

SHORTEST_SECRET = 4
"""A configured secret shorter than this is not masked by value: it would blank out ordinary words."""


class Redactor:
    """Masks credentials in texts and in structured log events."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._values: re.Pattern[str] | None = None
        self._known: set[str] = set()
        self.learn(secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """From now on mask these values wherever they occur."""
        self._known |= {secret for secret in secrets if len(secret) >= SHORTEST_SECRET}
        if self._known:
            longest_first = sorted(self._known, key=lambda secret: (-len(secret), secret))
            self._values = re.compile("|".join(map(re.escape, longest_first)))

    def scrub(self, text: str) -> str:
        """The text without anything that is, or looks like, a credential."""
        if self._values is not None:
            text = self._values.sub(MASK, text)
        return without_secrets(text)

    def event(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """A copy of a structured event, masked by field name and, inside every text, by shape and value."""
        return {str(name): MASK if SENSITIVE.match(str(name)) else self._value(value) for name, value in event.items()}

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.scrub(value)
        if isinstance(value, Mapping):
            return self.event(value)
        if isinstance(value, list | tuple | set | frozenset):
            return [self._value(item) for item in value]
        if value is None or isinstance(value, bool | int | float):
            return value
        return self.scrub(str(value))


def without_secrets(text: str) -> str:
    """The text without anything that looks like a credential."""
    return SHAPES.sub(_mask, text)


def _mask(match: re.Match[str]) -> str:
    kept = match["head"] or match["key"] or match["user"] or ""
    return f"{kept}{MASK}@" if match["user"] else f"{kept}{MASK}"
