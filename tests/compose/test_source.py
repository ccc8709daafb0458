import pytest

from headway.compose.source import SettingsError, dotted, parse

TEXT = """\
listen:
  port: 8800
replicas:
  - http://a:1
  - url: http://b:2
    weight: 2.0
"""


def test_every_path_has_its_line() -> None:
    document = parse(TEXT, "f.yaml", {})
    assert document.data == {
        "listen": {"port": 8800},
        "replicas": ["http://a:1", {"url": "http://b:2", "weight": 2.0}],
    }
    assert document.line(("listen", "port")) == 2
    assert document.line(("replicas", 0)) == 4
    assert document.line(("replicas", 1, "weight")) == 6


def test_a_missing_field_has_the_line_of_what_surrounds_it() -> None:
    document = parse(TEXT, "f.yaml", {})
    assert document.line(("replicas", 1, "engine")) == 5
    assert document.line(("listen", "tls", "cert_file")) == 1


def test_an_empty_file_is_an_empty_map() -> None:
    assert parse("", "f.yaml", {}).data == {}
    assert parse("# only a comment\n", "f.yaml", {}).data == {}


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\nb: [1, 2\nc: 3\n", 3, "not valid YAML"),
        ("a: 1\n\tb: 2\n", 2, "not valid YAML"),
        ("a: &x [*x]\n", 0, "part of (line 1)"),
        ("a: &x {b: *x}\n", 0, "part of (line 1)"),
        ("a: \x00\n", 0, "not valid YAML"),
        ("a: &a0 [1, 1]\n" + "".join(f"b{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 40)), 0, "unfold"),
        ("listen:\n  port: 1\n  port: 2\n", 3, "listen.port: is written twice"),
        ("a: !!python/object:os.system 1\n", 1, "not valid YAML"),
        ("a: 1\n---\nb: 2\n", 2, "not valid YAML"),
        ("a: 1\n1: b\n", 2, 'the key 1 must be text: write "1"'),
        ("a:\n  - x: 1\n    on: 2\n", 3, 'a[0]: the key on must be text: write "on"'),
        ("a: 1\n~: 2\n", 2, "the key ~ must be text"),
    ],
)
def test_bad_documents_name_the_line(text: str, line: int, words: str) -> None:
    with pytest.raises(SettingsError) as error:
        parse(text, "f.yaml", {})
    assert words in str(error.value)
    assert error.value.problems[0].line == line


def test_environment_variables() -> None:
    text = "a: ${KEY}\nb: x${KEY}y\nc: ${GONE:-spare}\nd: $${KEY}\ne: [ '${EMPTY}' ]\nf: 5\n"
    data = parse(text, "f.yaml", {"KEY": "v", "EMPTY": ""}).data
    assert data == {"a": "v", "b": "xvy", "c": "spare", "d": "${KEY}", "e": [""], "f": 5}


def test_variables_that_are_not_set_are_all_named_with_their_line() -> None:
    with pytest.raises(SettingsError) as error:
        parse("a: ${ONE}\nb:\n  - ${TWO}\n", "f.yaml", {})
    assert [(p.line, dotted(p.path)) for p in error.value.problems] == [(1, "a"), (3, "b[0]")]
    assert "ONE" in str(error.value)
    assert "TWO" in str(error.value)


def test_merge_keys_work() -> None:
    data = parse("base: &b {x: 1}\nother:\n  <<: *b\n  y: 2\n", "f.yaml", {}).data
    assert data["other"] == {"x": 1, "y": 2}


def test_dotted() -> None:
    assert dotted(("replicas", 0, "url")) == "replicas[0].url"
    assert dotted(()) == ""
