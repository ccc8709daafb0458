"""The description of the admin API: OpenAPI 3.1 for tools, one self-contained page for people. Made from one table."""

import html
from typing import Any

import msgspec

from headway import __version__

TITLE = "Headway admin API"


class Operation(msgspec.Struct, frozen=True):
    """One route: what it does, what it takes and gives. `example` is a body that will do, as JSON."""

    method: str
    path: str
    summary: str
    body: type[msgspec.Struct] | None = None
    example: str = "{}"
    media: str = "application/json"
    status: int = 200
    token: bool = True

    @property
    def template(self) -> str:
        """The path as OpenAPI writes it, without the router's hints. (A replica's id may contain a slash.)"""
        return self.path.replace(":path}", "}")

    @property
    def parameters(self) -> list[str]:
        """Names in braces in the path."""
        return [part[1:-1] for part in self.template.split("/") if part.startswith("{")]


def document(operations: list[Operation]) -> dict[str, Any]:
    """The OpenAPI document."""
    bodies = [operation.body for operation in operations if operation.body is not None]
    _, components = msgspec.json.schema_components(bodies, ref_template="#/components/schemas/{name}")
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.template, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": TITLE, "version": __version__},
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


def _operation(operation: Operation) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "summary": operation.summary,
        "responses": {str(operation.status): {"description": operation.summary, "content": {operation.media: {}}}},
        "security": [{"token": []}] if operation.token else [],
    }
    if operation.parameters:
        entry["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in operation.parameters
        ]
    if operation.body is not None:
        reference = {"$ref": f"#/components/schemas/{operation.body.__name__}"}
        entry["requestBody"] = {"required": True, "content": {"application/json": {"schema": reference}}}
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
