"""The description of the admin API: OpenAPI 3.1 for tools, one self-contained page for people. Made from one table."""

import html
from http import HTTPStatus
from typing import Any

import msgspec

from headway import __version__
from headway.admin.answers import Failed
from headway.core.snapshot import SHOWN

TITLE = "Headway admin API"


class Operation(msgspec.Struct, frozen=True):
    """One route: what it does, what it takes and gives. `example` is a body that will do, as JSON; `gives` the type of
    a JSON answer, `others` those of further statuses; `media` is empty for answers without a body."""

    method: str
    path: str
    summary: str
    body: type[msgspec.Struct] | None = None
    example: str = "{}"
    media: str = "application/json"
    status: int = 200
    gives: Any = None
    others: dict[int, Any] = {}
    token: bool = True

    @property
    def template(self) -> str:
        """The path as OpenAPI writes it, without the router's hints. (A replica's id may contain a slash.)"""
        return self.path.replace(":path}", "}")

    @property
    def answers(self) -> dict[int, Any]:
        """Types of JSON answers by status, those of the guard included."""
        own = {self.status: self.gives} if self.gives is not None else {}
        return own | self.others | ({401: Failed, 403: Failed} if self.token else {})

    @property
    def parameters(self) -> list[str]:
        """Names in braces in the path."""
        return [part[1:-1] for part in self.template.split("/") if part.startswith("{")]


def document(operations: list[Operation]) -> dict[str, Any]:
    """The OpenAPI document."""
    types = [kind for each in operations for kind in (each.body, *each.answers.values()) if kind is not None]
    schemas, components = msgspec.json.schema_components(
        types, schema_hook=_unknown, ref_template="#/components/schemas/{name}"
    )
    known = dict(zip(map(repr, types), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.template, {})[operation.method.lower()] = _operation(operation, known)
    return {
        "openapi": "3.1.0",
        "info": {"title": TITLE, "version": __version__},
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


def _unknown(kind: type) -> dict[str, Any]:
    """What is no Struct, as `shown` writes it."""
    return {"type": "object", "title": kind.__name__, "properties": {name: {} for name in SHOWN[kind]}}


def _operation(operation: Operation, schemas: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": operation.summary}
    if operation.media:
        answer["content"] = {operation.media: {}}
    responses = {operation.status: answer}
    for status, kind in operation.answers.items():
        said = operation.summary if status == operation.status else HTTPStatus(status).phrase
        responses[status] = {
            "description": said, "content": {"application/json": {"schema": schemas[repr(kind)]}},
        }  # fmt: skip
    entry: dict[str, Any] = {
        "summary": operation.summary,
        "responses": {str(status): responses[status] for status in sorted(responses)},
        "security": [{"token": []}] if operation.token else [],
    }
    if operation.parameters:
        entry["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in operation.parameters
        ]
    if operation.body is not None:
        needed = any(field.required for field in msgspec.structs.fields(operation.body))
        schema = schemas[repr(operation.body)]
        entry["requestBody"] = {"required": needed, "content": {"application/json": {"schema": schema}}}
    return entry


STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:56rem;margin:2rem auto;padding:0 1rem;color:#1a1a2e;"
    "background:#fff}code,pre{font:14px/1.5 ui-monospace,monospace}pre{background:#f4f4f8;padding:.7rem;overflow:auto;"
    "border-radius:6px}h2{margin:1.8rem 0 .2rem;font-size:1.05rem}.m{display:inline-block;min-width:4.5rem;"
    "font-weight:700;color:#0b6}.m.POST{color:#06c}.m.DELETE{color:#c33}small{color:#667}"
    "@media(prefers-color-scheme:dark){body{background:#16161e;color:#dde}pre{background:#22222e}small{color:#99a}}"
)


def page(operations: list[Operation], base: str) -> str:
    """The same as a page that loads nothing from anywhere. `base` is the address it was asked at."""
    entries = "".join(_entry(operation, base) for operation in operations)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{TITLE}</title><style>{STYLE}</style>'
        f"<h1>{TITLE}</h1><p>Headway {html.escape(__version__)}. "
        f"The same for tools: <a href='/openapi.json'>openapi.json</a>.</p>{entries}</html>"
    )


def _entry(operation: Operation, base: str) -> str:
    token = "" if operation.token else " <small>needs no token</small>"
    example = f"curl -X {operation.method} {base}{operation.template}"
    if operation.body is not None:
        said: dict[str, Any] = msgspec.json.decode(operation.example)
        fields = ", ".join(f'"{name}": ...' for name in operation.body.__struct_fields__ if name not in said)
        example += f" -d '{operation.example}'" + (f"\n# optional: {fields}" if fields else "")
    name = html.escape(operation.template)
    return (
        f'<h2><span class="m {operation.method}">{operation.method}</span><code>{name}</code>{token}</h2>'
        f"{html.escape(operation.summary)}<pre>{html.escape(example)}</pre>"
    )
