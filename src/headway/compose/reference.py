"""The reference part of docs/configuration.md, made from the JSON schema so that it cannot lag behind."""

import json
from collections.abc import Iterator
from typing import Any

BEGIN = "<!-- made by `headway check --reference`; do not edit below -->"

Schema = dict[str, Any]


def settings_reference(page: Schema) -> str:
    """Markdown: a table per section of the file."""
    blocks = [BEGIN, "## Reference", *_top(page)]
    for name, field in page["properties"].items():
        section = _target(page, field)
        if section is not None and name != "brain":
            blocks += _section(page, name, section)
        entries = _entries(page, field)
        if entries is not None:
            blocks += _section(page, f"{name}.NAME", entries)
    return "\n\n".join(blocks) + "\n"


def constants_reference(page: Schema) -> str:
    """Markdown: the constants of the brain and of every policy that is installed."""
    blocks = ["## Constants of the brain", "Nested below `brain:`. The defaults are meant to stay."]
    for name, field in page["$defs"]["BrainConfig"]["properties"].items():
        blocks += _constants(f"brain.{name}", page["$defs"][_name(field["$ref"])])
    blocks += ["## Constants of policies", "Below `policy.options:` of the policy named."]
    for one in page["$defs"]["Policy"]["properties"]["options"]["anyOf"]:
        config = page["$defs"][_name(one["$ref"])]
        if config["properties"]:
            blocks += _constants(config["title"].removesuffix("Config"), config)
    return "\n\n".join(blocks) + "\n"


def _top(page: Schema) -> Iterator[str]:
    fields = page["properties"].items()
    rows = [_row(name, field) for name, field in fields if name == "brain" or _target(page, field) is None]
    yield "### At the top level"
    yield _table(rows)


def _section(page: Schema, name: str, section: Schema) -> Iterator[str]:
    yield f"### `{name}`"
    yield section.get("description", "").partition("\n\n")[0].replace("\n", " ")
    inner = {key: _target(page, field) for key, field in section["properties"].items()}
    yield _table([_row(key, field) for key, field in section["properties"].items() if inner[key] is None])
    for key, target in inner.items():
        if target is not None:
            yield from _section(page, f"{name}.{key}", target)


def _constants(title: str, config: Schema) -> Iterator[str]:
    yield f"### `{title}`"
    text = config.get("description", "")
    if text and not text.startswith(config["title"] + "("):
        yield text
    yield "\n".join(
        ["| constant | default |", "|---|---|"]
        + [f"| `{name}` | {_shown(field.get('default'))} |" for name, field in config["properties"].items()]
    )


def _target(page: Schema, field: Schema) -> Schema | None:
    """The section a field holds, None for a plain value. Shorthands and lists are looked through; free maps are not."""
    if field.get("additionalProperties") or field.get("patternProperties"):
        return None
    candidates = [field, *field.get("anyOf", ()), field.get("items", {})]
    candidates += [inner for candidate in candidates[1:] for inner in candidate.get("anyOf", ())]
    for candidate in candidates:
        if "$ref" in candidate:
            target: Schema = page["$defs"][_name(candidate["$ref"])]
            return target
    return None


def _entries(page: Schema, field: Schema) -> Schema | None:
    """The section that each entry of a free map holds, None if entries are plain."""
    inner = field.get("additionalProperties") or next(iter(field.get("patternProperties", {}).values()), None)
    return _target(page, inner) if isinstance(inner, dict) else None


def _row(name: str, field: Schema) -> str:
    return f"| `{name}` | {_type(field)} | {_shown(field.get('default'))} | {field.get('description', '')} |"


def _table(rows: list[str]) -> str:
    return "\n".join(["| setting | type | default | meaning |", "|---|---|---|---|", *rows])


def _type(field: Schema) -> str:
    if "enum" in field:
        return " or ".join(f"`{value}`" for value in field["enum"])
    if "anyOf" in field:
        kinds = [_type(one) for one in field["anyOf"] if one.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    kind = str(field.get("format") if field.get("format") in ("path", "password") else field.get("type", "map"))
    named = {"object": "map", "array": "list", "boolean": "true or false", "password": "secret"}
    return named.get(kind, kind)


def _shown(default: Any) -> str:
    if default in (None, "", [], {}):
        return ""
    text = json.dumps(default)
    return f"`{text}`" if len(text) <= 60 else "see below"


def _name(reference: str) -> str:
    return reference.rpartition("/")[2]
