"""Multipart form data (RFC 7578) of audio requests: the `model` field, wherever among the parts it is.

What lives here: finding one short field. What must not: touching files, which are passed on as they came.
"""

import re

import xxhash

from headway.wire.body import Body, BodyError, bad_model
from headway.wire.splice import Edit, Octets

_BOUNDARY = re.compile(r'(?i)^multipart/form-data\s*;(?:.*;)?\s*boundary=(?:"([^"]{1,200})"|([^\s;"]{1,200}))')
_NAME = re.compile(rb'(?i)^content-disposition:[^\r\n]*;\s*name=(?:"([^"\r\n]*)"|([^\s;"]+))', re.MULTILINE)
_FILE = re.compile(rb"(?i)^content-disposition:[^\r\n]*;\s*filename\*?=", re.MULTILINE)
_MAX_HEAD = 4096
_MAX_PARTS = 256


def multipart(body: Octets, content_type: str) -> Body | BodyError:
    """Read the whole body. `stream` is the field of that name; prompts inside sound cannot be measured here."""
    fields = _fields(body, content_type)
    if isinstance(fields, BodyError):
        return fields
    models = [body[start:end] for name, start, end in fields if name == b"model"]
    if len(models) > 1:
        return BodyError(400, "invalid_form", "the form has more than one model field", "model")
    try:
        model = models[0].decode() if models else ""
    except UnicodeDecodeError:
        return BodyError(400, "invalid_form", "the model field is not valid UTF-8", "model")
    if refused := bad_model(model, required=True):
        return refused
    stream = any(name == b"stream" and body[start:end].lower() in (b"true", b"1") for name, start, end in fields)
    return Body(model=model, stream=stream, form=True, fingerprint=xxhash.xxh3_64_intdigest(body))


def model_edits(body: Octets, content_type: str, name: str) -> list[Edit] | BodyError:
    """The edit that replaces the model field's value; refused where `name` could break out of its part."""
    fields = _fields(body, content_type)
    if isinstance(fields, BodyError):
        return fields
    return [(start, end, name.encode()) for field, start, end in fields if field == b"model"]


def _fields(body: Octets, content_type: str) -> list[tuple[bytes, int, int]] | BodyError:
    """`(name, start, end)` of each part's content that is no file."""
    boundary = _BOUNDARY.match(content_type)
    if boundary is None:
        return BodyError(400, "invalid_form", "the content type names no boundary")
    delimiter = b"--" + (boundary[1] or boundary[2]).encode("latin-1")
    fields: list[tuple[bytes, int, int]] = []
    at = 0 if body.startswith(delimiter) else body.find(b"\r\n" + delimiter) + 2
    for _ in range(_MAX_PARTS):
        if not body.startswith(delimiter + b"\r\n", at):
            return fields
        start = body.find(b"\r\n\r\n", at, at + _MAX_HEAD)
        end = body.find(b"\r\n" + delimiter, start)
        if start < 0 or end < 0:
            return BodyError(400, "invalid_form", "a part of the form has no end")
        head = body[at:start]
        name = _NAME.search(head)
        if name is not None and not _FILE.search(head):
            fields.append((name[1] or name[2], start + 4, end))
        at = end + 2
    return BodyError(400, "invalid_form", f"the form has more than {_MAX_PARTS} parts")
