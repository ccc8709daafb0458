"""The JSON schema of `headway.yaml`, for editors and for the documentation."""

import json
from typing import Any

import msgspec

from headway.compose.registry import Registry
from headway.compose.settings import Settings
from headway.core.constants import BrainConfig

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema(registry: Registry) -> dict[str, Any]:
    """A complete schema: the settings' own, plus the constants of the brain and of every policy that is installed."""
    page: dict[str, Any] = {"$schema": DIALECT, "title": "headway.yaml", **Settings.model_json_schema()}
    configs = {name: plugin.config for name, plugin in sorted(registry.policies.items())}
    structs: list[type[msgspec.Struct]] = [BrainConfig, *configs.values()]
    references, components = msgspec.json.schema_components(structs, ref_template="#/$defs/{name}")
    page["$defs"] |= {name: {**component, "additionalProperties": False} for name, component in components.items()}
    page["properties"]["brain"] = {**references[0], "description": page["properties"]["brain"]["description"]}
    policy = page["$defs"]["Policy"]
    policy["properties"]["name"]["examples"] = list(configs)
    policy["properties"]["options"]["anyOf"] = list({repr(one): one for one in references[1:]}.values())
    _allow_shorthand(page)
    plain: dict[str, Any] = json.loads(json.dumps(page))  # defaults may be tuples
    return plain


def _allow_shorthand(page: dict[str, Any]) -> None:
    """A replica may be its URL, a policy its name, an alias a single model."""
    replicas = page["properties"]["replicas"]
    replicas["items"] = {"anyOf": [{"type": "string", "format": "uri"}, replicas["items"]]}
    policy = page["properties"]["policy"]
    page["properties"]["policy"] = {"anyOf": [{"type": "string"}, policy]}
    models = page["properties"]["models"]
    models["additionalProperties"] = {"anyOf": [{"type": "string"}, models["additionalProperties"]]}
