"""Asking a running gateway's admin port. Answers are plain JSON, because the gateway may be of another version."""

import http.client
import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

from headway.cli.console import fail

TIMEOUT_S = 15.0  # a gateway beside busy engines may be slow; one that is not there refuses at once
DEFAULT = "http://127.0.0.1:8801"

TOKEN_STEP = {401: "set HEADWAY_ADMIN_TOKEN to the token of the admin port"}


def ask(
    admin: str, path: str, body: object = None, *, post: bool = False, steps: Mapping[int, str] | None = None
) -> Any:
    """The answer. Ends the command with what to do, `steps` by status, if there is none; 409 answers, too."""
    url = f"{admin.rstrip('/')}{path}"
    if not url.startswith(("http://", "https://")):
        fail(f"{admin} is no http address", "say --admin http://HOST:PORT")
    token = os.environ.get("HEADWAY_ADMIN_TOKEN", "")
    headers = {"authorization": f"Bearer {token}"} if token else {}
    data = json.dumps(body if body is not None else {}).encode() if post else None
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(urllib.request.Request(url, data, headers=headers), timeout=TIMEOUT_S) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        if error.code == 409:
            return json.load(error)
        step = (TOKEN_STEP | dict(steps or {})).get(error.code)
        fail(f"{url} answered {error.code}{_said(error)}", *filter(None, [step]))
    except (OSError, ValueError, http.client.HTTPException) as error:
        fail(
            f"no answer from {admin}: {_why(error)}", "is `headway serve` running there? --admin names another address"
        )


def _why(error: Exception) -> str:
    """In words: urllib wraps what the system said."""
    if isinstance(error, http.client.BadStatusLine) and not isinstance(error, OSError):
        return "it speaks no HTTP"
    reason = getattr(error, "reason", error)
    said = reason.strerror if isinstance(reason, OSError) else ""
    return said or str(reason)


def _said(error: urllib.error.HTTPError) -> str:
    """The gateway's own sentence, after a colon; "" where the body is none of its errors."""
    try:
        message = json.load(error)["error"]["message"]
    except (OSError, ValueError, LookupError, TypeError):
        return ""
    return f": {message}"
