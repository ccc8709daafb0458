from pathlib import Path

import msgspec
import pytest
import trustme

from headway.compose.keyfile import change, make
from headway.compose.load import validate
from headway.compose.plan import Plan, make_plan
from headway.compose.registry import find
from headway.compose.settings import Settings
from headway.compose.source import SettingsError, parse
from headway.core.tenant import Tenant, Tier
from headway.gateway.config import Batching, GatewayConfig, Moving

SECRETS = ("key-of-a", "key-of-all", "token-of-admin")


def plan(text: str) -> Plan:
    return make_plan(validate(parse(text, "f.yaml", {})), find([]))


def problem(text: str) -> str:
    document = parse(text, "f.yaml", {})
    with pytest.raises(SettingsError) as error:
        make_plan(validate(document), find([]))
    return str(error.value.located(document))


def test_defaults_are_those_of_the_data_plane() -> None:
    assert make_plan(Settings(), find([])).gateway == GatewayConfig()


def test_keys_reach_gateway_and_observer_and_are_known_as_secrets() -> None:
    made = plan(
        "replicas: [{url: 'http://A:8000/', api_key: key-of-a}, http://b:8000]\n"
        "upstream: {api_key: key-of-all}\nadmin: {token: token-of-admin}\n"
    )
    assert made.keys == {"http://a:8000": "key-of-a", "http://b:8000": "key-of-all"}
    assert made.gateway.replica_keys == made.keys
    assert made.gateway.auth.api_key == "key-of-all"
    assert set(made.secrets) == set(SECRETS)


def test_without_keys_nothing_is_sent() -> None:
    """Case 046."""
    made = plan("replicas: [http://b:8000]\n")
    assert made.keys == {}
    assert made.gateway.auth.api_key == ""
    assert made.secrets == ()


def test_entries_carry_what_is_stated() -> None:
    (entry,) = plan(
        "replicas: [{url: http://a, engine: vllm, model: m, serves: {x: m}, weight: 2, metrics: false,"
        " labels: {z: '1'}}]\n"
    ).entries
    assert (entry.url, entry.engine, entry.model, entry.serves) == ("http://a", "vllm", "m", {"x": "m"})
    assert (entry.weight, entry.metrics, entry.labels) == (2.0, False, {"z": "1"})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("replicas:\n  - ftp://a\n", "line 2: replicas[0].url: only http"),
        ("replicas:\n  - http://u:p@a\n", "line 2: replicas[0].url: credentials inside a URL"),
        ("replicas:\n  - http://169.254.169.254\n", "line 2: replicas[0].url: "),
        (
            "replicas:\n  - url: http://a\n    engine: vlm\n",
            "line 3: replicas[0].engine: no engine is named 'vlm'; did you",
        ),
        ("policy:\n  name: hedroom\n", "line 2: policy.name: no policy is named 'hedroom'; did you mean \"headroom\"?"),
        ("policy:\n  name: headroom\n  options:\n    zzz: 1\n", "line 4: policy.options.zzz: unknown key"),
        ("brain:\n  health:\n    nonsense: 1\n", "line 3: brain.health.nonsense: unknown key"),
        ("admin:\n  host: 0.0.0.0\n", "line 2: admin.host: the admin port on 0.0.0.0 would be open"),
        ("listen:\n  tls: {cert_file: /absent, key_file: /absent}\n", "line 2: listen.tls.cert_file: cannot be used: "),
        ("upstream:\n  tls: {ca_file: /absent}\n", "line 2: upstream.tls.ca_file: cannot be used: "),
        ("replicas:\n  - url: http://a\n    api_key_file: /absent\n", "line 3: replicas[0].api_key_file: /absent"),
    ],
)
def test_errors_name_field_and_line(text: str, words: str) -> None:
    assert words in problem(text)


def test_the_admin_port_may_be_open_with_a_token_or_be_off() -> None:
    assert plan("admin: {host: 0.0.0.0, token: abcdef}\n").admin_token == "abcdef"
    assert plan("admin: {host: 0.0.0.0, enabled: false}\n").admin_token == ""


def test_every_section_reaches_the_data_plane() -> None:
    gateway = plan(
        "limits: {max_body_bytes: 99}\ntimeouts: {idle_s: 7}\ncors: {origins: ['*']}\n"
        "requests: {paths: [/x], session_headers: [X-S], deadline_header: X-D, inject_usage: never,"
        " priority_header: X-P, policy_header: X-Q, precision_header: X-R, hints_header: X-H}\n"
        "batching: {m: {max: 9}}\n"
        "upstream: {preserve_host: true, trust_forwarded: true, forward_authorization: true}\n"
        "listen: {host: '::1', port: 0, backlog: 9}\n"
    ).gateway
    assert gateway.limits.max_body_bytes == 99
    assert gateway.timeouts.idle_s == 7.0
    assert gateway.cors.origins == ("*",)
    assert (gateway.paths, gateway.session_headers, gateway.deadline_header) == (("/x",), ("x-s",), "x-d")
    assert (gateway.priority_header, gateway.policy_header, gateway.precision_header) == ("x-p", "x-q", "x-r")
    assert (gateway.hints_header, gateway.batching) == ("x-h", {"m": Batching(window_ms=5.0, max=9)})
    assert (gateway.inject_usage, gateway.preserve_host, gateway.trust_forwarded) == ("never", True, True)
    assert gateway.auth.forward_client
    assert (gateway.host, gateway.port, gateway.backlog) == ("::1", 0, 9)


def test_moves_reach_the_data_plane_where_they_are_enabled() -> None:
    assert plan("migration: {plain: true}\n").gateway.moving is None
    text = "migration: {enabled: true, plain: true, models: [m], hold_s: 1, warm_s: 9, handover_s: 2, keepalive_s: 3}\n"
    made = plan(text)
    assert made.gateway.moving == Moving(frozenset({"m"}), 1, Moving().hold_bytes, 9, 2, 3, True)


def test_tls_contexts_are_made(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    server = authority.issue_cert("localhost")
    server.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "server.pem"))
    made = plan(
        f"listen: {{tls: {{cert_file: {tmp_path}/server.pem, key_file: {tmp_path}/server.pem,"
        f" client_ca_file: {tmp_path}/ca.pem}}}}\nupstream: {{tls: {{ca_file: {tmp_path}/ca.pem}}}}\n"
    ).gateway
    assert made.server_tls is not None
    assert made.client_tls is not None
    assert made.client_tls.check_hostname


def test_a_policy_takes_its_own_options() -> None:
    recipe = plan("policy: {name: headroom, options: {tolerance: 0.2}}\n").recipe
    assert msgspec.to_builtins(recipe.policy_config)["tolerance"] == 0.2


TENANTS = """\
keys_file: {file}
tenants:
  ann:
    tier: critical
    weight: 2
    models: [m]
    policies: [p2c]
  bob: {{}}
"""


def test_tenants_and_keys_are_made_values_of(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    key, _ = make("ann")
    change(file, lambda _: [key])
    made = plan(TENANTS.format(file=file))
    ann, bob = made.tenants
    assert (ann.tier, ann.max_tier, ann.weight) == (Tier.CRITICAL, Tier.CRITICAL, 2.0)
    assert (ann.models, ann.policies) == (("m",), ("p2c",))
    assert bob == Tenant("bob")
    assert made.client_keys == (key,)
    assert plan("seed: 1\n").client_keys == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tenants: {ann: {}}\n", "tenants: needs keys_file"),
        ("keys_file: /absent\n", "line 1: keys_file: /absent does not exist: `headway keys add"),
        ("keys_file: /\nupstream:\n  forward_authorization: true\n", "would show engines the keys"),
        (
            "keys_file: {file}\ntenants:\n  ann:\n    policies: [p3c]\n",
            "line 4: tenants.ann.policies: no policy is named",
        ),
        ("keys_file: {file}\ntenants:\n  ann: {tier: high, max_tier: low}\n", "max_tier low is below its own tier"),
        ("keys_file: {file}\ntenants:\n  ann: {tier: urgent}\n", "line 3: tenants.ann.tier"),
        ("keys_file: {file}\ntenants:\n  ann: {wait: 1}\n", 'did you mean "weight"?'),
        ("keys_file: {file}\ntenants:\n  a b: {}\n", "line 3: tenants.a b"),
        ("keys_file: {file}\ntenants:\n  ann: {weight: 0}\n", "line 3: tenants.ann.weight"),
        ("keys_file: {file}\ntenants:\n  ann: {kv_share: 1.5}\n", "line 3: tenants.ann.kv_share"),
    ],
)
def test_what_is_wrong_with_tenants_has_its_line(tmp_path: Path, text: str, words: str) -> None:
    change(tmp_path / "keys.json", lambda keys: keys)
    assert words in problem_of_any(text.replace("{file}", str(tmp_path / "keys.json")))


def problem_of_any(text: str) -> str:
    """What is wrong, whether validation or wiring finds it."""
    with pytest.raises(SettingsError) as error:
        plan(text)
    return str(error.value.located(parse(text, "f.yaml", {})))
