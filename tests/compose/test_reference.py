from pathlib import Path

import pytest
import trustme
import yaml

from headway.compose.keyfile import change
from headway.compose.load import validate
from headway.compose.plan import make_plan
from headway.compose.reference import BEGIN, constants_reference, settings_reference
from headway.compose.registry import find
from headway.compose.schema import schema
from headway.compose.settings import Settings
from headway.compose.source import parse

DOCS = Path(__file__).resolve().parents[2] / "docs" / "configuration.md"


def examples() -> list[str]:
    parts = (DOCS.read_text() + DOCS.with_name("tenants.md").read_text()).split("```yaml\n")[1:]
    return [part.partition("```")[0] for part in parts]


def test_the_reference_is_up_to_date() -> None:
    """Mend it with: headway check --reference, and replace everything from the marker on."""
    text = DOCS.read_text()
    assert BEGIN + text.partition(BEGIN)[2] == settings_reference(schema(find([])))


def test_every_setting_is_in_the_reference() -> None:
    text = settings_reference(schema(find([])))
    for name, field in Settings.model_fields.items():
        assert f"`{name}`" in text or f"`{name}." in text
        inner = getattr(field.default, "model_fields_set", None)
        if inner is not None:
            for setting in type(field.default).model_fields:
                assert f"`{setting}`" in text or f"`{name}.{setting}`" in text
    assert "`kv_capacity_tokens`" in text
    assert "`listen.tls`" in text


def test_constants_name_every_module_of_the_brain_and_every_policy_that_has_some() -> None:
    text = constants_reference(schema(find([])))
    for part in ("`brain.health`", "`brain.ledger`", "`failure_rate`", "### `Headroom`", "`tolerance`"):
        assert part in text
    assert "NoConfig" not in text


@pytest.mark.parametrize("example", examples())
def test_examples_are_valid(example: str, tmp_path: Path) -> None:
    certificate = trustme.CA().issue_cert("localhost")
    certificate.private_key_pem.write_to_path(str(tmp_path / "tls.key"))
    certificate.cert_chain_pems[0].write_to_path(str(tmp_path / "tls.crt"))
    (tmp_path / "headway-admin").write_text("a-token\n")
    change(tmp_path / "keys.json", lambda keys: keys)
    local = example.replace("/etc/headway", str(tmp_path)).replace("/run/secrets", str(tmp_path))
    plan = make_plan(validate(parse(local, "docs", {"ENGINE_KEY": "a-key"})), find([]))
    assert plan.entries or not plan.settings.replicas


def test_the_schema_agrees_about_what_is_unknown() -> None:
    page = schema(find([]))
    assert page["additionalProperties"] is False
    assert all(part.get("additionalProperties") is False for part in page["$defs"].values())
    assert yaml.safe_load(yaml.safe_dump(page)) == page, "plain data"
