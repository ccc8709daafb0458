from pathlib import Path

import msgspec
import pytest
from pydantic import SecretStr

from headway.compose.load import convert, near, overlay, read, read_secret, validate
from headway.compose.settings import Settings
from headway.compose.settings_pressure import TenantLimits
from headway.compose.source import SettingsError, parse


def settings(text: str) -> Settings:
    return validate(parse(text, "f.yaml", {}))


def problems(text: str) -> list[str]:
    with pytest.raises(SettingsError) as error:
        settings(text)
    return [str(problem) for problem in error.value.problems]


def test_nothing_is_needed() -> None:
    assert settings("") == Settings()


@pytest.mark.parametrize(
    "text",
    [
        "listen:\n#  port: 1\n",
        "replicas:\nmodels:\npolicy:\nbrain:\n",
        "policy: {options: }\nrequests: {paths: }\ndegradation: {burst: }\nlisten: {tls: }\n",
    ],
)
def test_what_is_commented_out_stands_for_its_defaults(text: str) -> None:
    got = settings(text)
    assert got == Settings()
    assert overlay(got, {"listen": {"port": 2}}).listen.port == 2


def test_a_tenant_may_have_no_limits_at_all() -> None:
    assert settings("keys_file: k\ntenants:\n  a:\n").tenants["a"] == TenantLimits()


def test_shorthands() -> None:
    got = settings("replicas: [http://a:1, {url: http://b:2}]\npolicy: p2c\nmodels: {fast: m1, big: [m2, m1]}\n")
    assert [replica.url for replica in got.replicas] == ["http://a:1", "http://b:2"]
    assert got.policy.name == "p2c"
    assert got.models == {"fast": ["m1"], "big": ["m2", "m1"]}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("listen:\n  prot: 1\n", 'line 2: listen.prot: unknown key; did you mean "port"?'),
        ("lisen: {}\n", 'line 1: lisen: unknown key; did you mean "listen"?'),
        ("port: 1\n", "line 1: port: unknown key; did you mean listen.port or admin.port?"),
        ("zzz: 1\n", "line 1: zzz: unknown key; known here: admin, "),
        ("timeouts:\n  zzz: 1\n", "line 2: timeouts.zzz: unknown key; known here: connect_s, "),
        ("replicas:\n  - {}\n", "line 2: replicas[0].url: is required"),
        (
            "replicas:\n  - url: http://a\n    wieght: 1\n",
            'line 3: replicas[0].wieght: unknown key; did you mean "weight"?',
        ),
        ("replicas:\n  - url: http://a\n    weight: 0\n", "line 3: replicas[0].weight: "),
        ("replicas:\n  - url: http://a\n    weight: .inf\n", "line 3: replicas[0].weight: "),
        ("replicas:\n  - url: http://a\n    weight: 1.0e308\n", "line 3: replicas[0].weight: "),
        ("keys_file: k\ntenants:\n  a:\n    weight: 1.0e-300\n", "line 4: tenants.a.weight: "),
        ("models:\n  ${NAME:-a}: m\n", "line 2: models: the key ${NAME:-a} holds a variable"),
        ("listen:\n  port: many\n", "(found 'many')"),
        ("listen:\n  port: 70000\n", "line 2: listen.port: "),
        ("listen:\n  port: true\n", "line 2: listen.port: input should be a valid integer"),
        ("timeouts:\n  idle_s: yes\n", "line 2: timeouts.idle_s: input should be a valid number"),
        ("seed: true\n", "line 1: seed: input should be a valid integer"),
        ("listen:\n  port:\n", "line 2: listen.port: input should be a valid integer"),
        ("listen:\n  tls: {cert_file: a}\n", "line 2: listen.tls.key_file: is required"),
        ("requests:\n  priority_header: a b\n", "line 2: requests.priority_header: is no name of a header"),
        ("requests:\n  session_headers: [content-length]\n", "name another header"),
        ("requests:\n  paths: [v1/]\n", "line 2: requests.paths[0]: must be a path that begins with /"),
        ("requests:\n  paths: [/v1/, /]\n", "line 2: requests.paths[1]: would open whatever engines have"),
        ("requests:\n  paths: [/wake_up]\n", "requests.paths[0]: /wake_up is a control path of engines"),
        ("requests:\n  paths: [/slots/]\n", "requests.paths[0]: /slots/ is a control path of engines"),
        ("requests:\n  paths: ['/a?b']\n", "line 2: requests.paths[0]: must be a path that begins with /"),
        ('cors:\n  origins: ["http://a\\r\\nX: y"]\n', "line 2: cors.origins[0]: must be printable ASCII"),
        ("cors:\n  origins: ['https://a/']\n", "cors.origins[0]: would never be met: browsers send https://a"),
        ("cors:\n  origins: ['https://A.b:443']\n", "browsers send https://a.b"),
        ("cors:\n  origins: ['http://a:80/x?y']\n", "browsers send http://a"),
        ("cors:\n  origins: ['a.b']\n", "is no origin"),
        ("cors:\n  headers: ['a,b']\n", "line 2: cors.headers[0]: is no name of a header"),
        ("timeouts:\n  idle_s: -1\n", "line 2: timeouts.idle_s: "),
        ("limits:\n  max_body_bytes: 0\n", "line 2: limits.max_body_bytes: "),
        ("models:\n  a: []\n", "line 2: models.a: "),
        ("requests: {inject_usage: maybe}\n", "line 1: requests.inject_usage: "),
        ("- a\n", "must be a map of sections"),
        ("replicas: [http://a, http://a/]\n", "line 1: replicas: http://a is listed twice"),
        ("replicas: [http://a, http://A/v1/]\n", "http://a is listed twice"),
        ("listen: {}\nadmin:\n  port: 8800\n", "line 3: admin.port: 8800 is the port of clients (listen.port), too"),
        ("listen: {port: 5, host: '::'}\nadmin: {port: 5}\n", "admin.port: 5 is the port of clients"),
        ("listen: {port: 5, host: localhost}\nadmin: {port: 5}\n", "admin.port: 5 is the port of clients"),
        ("limits:\n  max_head_bytes: 1\n", "line 2: limits.max_head_bytes: "),
        ("observe:\n  interval_s: 1.0e-9\n", "line 2: observe.interval_s: "),
        ("observe:\n  dcgm_exporters: [foo]\n", "line 2: observe.dcgm_exporters[0]: "),
        ("requests:\n  paths: []\n", "line 2: requests.paths: "),
        ("requests:\n  hints_header: X-A\n  policy_header: x-a\n", "line 1: requests: x-a is the header of two things"),
        ("requests: {session_headers: [x-priority]}\n", "x-priority is the header of two things"),
        ("timeouts: {connect_s: 1.0e-9}\n", "line 1: timeouts.connect_s: "),
        ("degradation: {fallback: {'': b}}\n", "degradation.fallback: a name is empty"),
        ("admin: {host: ''}\n", "line 1: admin.host: "),
        ("replicas: [http://localhost:8800]\n", "http://localhost:8800 is this gateway's own address"),
        ("listen: {host: '::', port: 7}\nreplicas: ['http://[::1]:7/v1']\n", "is this gateway's own address"),
        ("listen: {host: '::1', port: 7}\nreplicas: ['http://[0::1]:7']\n", "is this gateway's own address"),
        ("listen: {host: '10.0.0.1, 127.0.0.1', port: 80}\nreplicas: [http://localhost]\n", "gateway's own address"),
        ("listen: {port: 5, host: '[::1]'}\nadmin: {port: 5, host: '::1'}\n", "admin.port: 5 is the port of clients"),
        ("replicas: [http://a/\u00fc, http://a:80/%c3%bc]\n", "http://a/%C3%BC is listed twice"),
        ("limits:\n  max_headers: 1\n", "line 2: limits.max_headers: "),
        ("limits:\n  max_uri_bytes: 9\n", "line 2: limits.max_uri_bytes: "),
        ("limits:\n  buffered_body_bytes: 9\n", "line 2: limits.buffered_body_bytes: 9 has no room for one body"),
        ("models:\n  '': x\n", "line 2: models: a name is empty"),
        ("models:\n  a: ['']\n", "line 2: models.a[0]: "),
        ("replicas: [{url: http://a, serves: {'': m}}]\n", "line 1: replicas[0].serves: a name is empty"),
        ("seed: 1\nmodels:\n  llama-3.1: llama-3.1\n", "models.llama-3.1: leads back to itself"),
        ("models:\n  a: b\n  b: c\n  c: a\n", "models.a: leads back to itself (a -> b -> c -> a)"),
    ],
)
def test_errors_name_field_and_line(text: str, words: str) -> None:
    (problem,) = problems(text)
    assert words in problem


@pytest.mark.parametrize(
    "text",
    [
        "listen: {port: 5, host: 10.0.0.1}\nadmin: {port: 5}\n",
        "listen: {port: 8801}\nadmin: {enabled: false}\n",
        "listen: {port: 0}\nadmin: {port: 0}\n",
        "replicas: [http://10.0.0.1:8800, http://127.0.0.1:8801]\n",
        "cors: {origins: ['*', 'null', 'https://a.b:80', 'http://[::1]:3000', 'chrome-extension://abc']}\n",
        "models: {'a$$b': m}\n",
        "models: {a: [a, a-fp8], b: [a, b]}\n",  # a name may stand for itself and others
    ],
)
def test_what_only_looks_wrong_is_taken(text: str) -> None:
    assert settings(text)


def test_all_problems_are_reported_at_once_in_order() -> None:
    found = problems("limits:\n  max_headers: x\nlisten:\n  prot: 1\nadmin:\n  port: -1\n")
    assert [text.split(":")[0] for text in found] == ["line 2", "line 4", "line 6"]


def test_secrets_do_not_show_in_errors_or_in_repr() -> None:
    secret = "zq9-planted-4711"
    assert secret not in repr(settings(f"admin: {{token: {secret}}}\n"))
    text = f"admin: {{token: [{secret}]}}\nreplicas: [{{url: http://a, api_key: {{x: {secret}}}}}]\n"
    assert secret not in "\n".join(problems(text))


def test_expanded_variables_do_not_show_in_errors() -> None:
    with pytest.raises(SettingsError) as error:
        validate(parse("listen: {port: '${PORT}'}\n", "f.yaml", {"PORT": "zq9-planted"}))
    assert "zq9-planted" not in str(error.value)
    assert "${PORT}" in str(error.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for name, content, words in (("b", b"\xff\xfe", "not UTF-8"), ("c", b" " * 1_000_001, "larger than 1 MB")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(SettingsError, match=words):
            read(tmp_path / name)
    with pytest.raises(SettingsError, match="No such file"):
        read(tmp_path / "absent")


def test_a_device_without_end_is_no_settings_file() -> None:
    with pytest.raises(SettingsError, match="larger than 1 MB"):
        read(Path("/dev/zero"))


@pytest.mark.parametrize("secret", ["a\nX-Evil: b", "k\x00", "schlüssel", "\t"])
def test_secrets_fit_into_a_head(secret: str, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(secret)
    with pytest.raises(SettingsError, match=r"a\.key: must be printable ASCII"):
        read_secret(SecretStr(secret), None, ("a", "key"))
    with pytest.raises(SettingsError, match=r"a\.key_file: must be printable ASCII"):
        read_secret(None, file, ("a", "key"))


def test_headers_that_mean_something_may_be_switched_off() -> None:
    assert settings("requests: {priority_header: '', policy_header: X-My-Policy}").requests.priority_header == ""


def test_secret_files_lose_one_trailing_newline(tmp_path: Path) -> None:
    """Case 046."""
    file = tmp_path / "key"
    file.write_text("abc def\n")
    assert read_secret(None, file, ("admin", "token")) == "abc def"
    assert read_secret(SecretStr("x"), None, ("admin", "token")) == "x"
    assert read_secret(None, None, ("admin", "token")) == ""
    file.write_text("\n")
    with pytest.raises(SettingsError, match=r"admin\.token_file: .* is empty"):
        read_secret(None, file, ("admin", "token"))
    with pytest.raises(SettingsError, match="not both"):
        read_secret(SecretStr("x"), file, ("admin", "token"))
    with pytest.raises(SettingsError, match=r"admin\.token_file"):
        read_secret(None, tmp_path / "absent", ("admin", "token"))


def test_the_command_line_wins_over_the_file() -> None:
    policy = "policy: {name: p2c, options: {x: 1}, others: [random]}\n"
    base = settings(f"listen: {{host: 0.0.0.0, port: 1}}\nadmin: {{token: abcd}}\n{policy}")
    got = overlay(base, {"listen": {"port": 2, "host": None}, "seed": 7, "journal": None, "policy": {}})
    assert (got.listen.host, got.listen.port, got.seed) == ("0.0.0.0", 2, 7)
    assert got.policy == base.policy
    assert got.admin.token == SecretStr("abcd")
    assert overlay(base, {"policy": {"name": "p2c"}}).policy == base.policy
    other = overlay(base, {"policy": {"name": "headroom"}}).policy
    assert (other.name, other.options, other.others) == ("headroom", {}, ["random"])
    with pytest.raises(SettingsError, match=r"logging\.level"):
        overlay(base, {"logging": {"level": "loud"}})


class Inner(msgspec.Struct, frozen=True):
    rate: float = 1.0


class Outer(msgspec.Struct, frozen=True):
    inner: Inner = Inner()
    count: int = 1


def test_options_become_structs() -> None:
    assert convert({"inner": {"rate": 2}, "count": 3}, Outer, ("brain",)) == Outer(Inner(2.0), 3)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cuont": 1}, 'brain.cuont: unknown key; did you mean "count"?'),
        ({"inner": {"rte": 1}}, 'brain.inner.rte: unknown key; did you mean "rate"?'),
        ({"inner": {"rate": "fast"}}, "brain.inner.rate: expected `float`"),
    ],
)
def test_bad_options_name_the_field(options: dict[str, object], words: str) -> None:
    with pytest.raises(SettingsError) as error:
        convert(options, Outer, ("brain",))
    assert words in str(error.value)


def test_near() -> None:
    assert near("prot", ["port", "host"]) == '; did you mean "port"?'
    assert near("zzz", ["port"]) == ""
