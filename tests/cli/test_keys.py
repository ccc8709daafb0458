"""`headway keys`: what it prints, what it keeps, and what it says when it cannot."""

import hashlib
import json
from pathlib import Path

import pytest

from headway.compose.keyfile import read
from tests.cli.calling import call

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


@pytest.fixture
def config(tmp_path: Path, file: Path) -> Path:
    path = tmp_path / "headway.yaml"
    path.write_text(f"keys_file: {file}\ntenants: {{ann: {{tier: high}}}}\n")
    return path


def added(file: Path, capsys: Captured, tenant: str = "ann", *options: str) -> str:
    assert call("keys", "add", tenant, "--keys-file", str(file), *options) == 0
    return capsys.readouterr().out.strip()


def test_a_key_is_shown_once_and_kept_as_a_hash(file: Path, capsys: Captured) -> None:
    assert call("keys", "add", "ann", "--note", "laptop", "--keys-file", str(file)) == 0
    shown = capsys.readouterr()
    secret = shown.out.strip()
    assert shown.out == f"{secret}\n", "alone on standard output, for a pipe"
    (key,) = read(file)
    assert key.hash == hashlib.sha256(secret.encode()).hexdigest()
    assert key.id in shown.err
    assert secret not in shown.err
    assert secret not in file.read_text()


def test_the_list_shows_whose_and_which_but_no_hash(file: Path, capsys: Captured) -> None:
    secret = added(file, capsys, "ann", "--note", "[bold]x")
    (key,) = read(file)
    assert call("keys", "list", "--keys-file", str(file)) == 0
    table = capsys.readouterr().out
    assert call("keys", "list", "--json", "--keys-file", str(file)) == 0
    plain = capsys.readouterr().out
    for shown in (table, plain):
        assert key.hash not in shown
        assert secret not in shown
        for part in (key.id, "ann", secret[-4:], "[bold]x", key.created):
            assert part in shown
    assert json.loads(plain)[0]["revoked"] == ""


def test_a_key_is_revoked_by_its_id(file: Path, capsys: Captured) -> None:
    added(file, capsys)
    (key,) = read(file)
    for _ in range(2):
        assert call("keys", "revoke", key.id, "--keys-file", str(file)) == 0
    assert "is revoked" in capsys.readouterr().err
    assert read(file)[0].revoked
    before = file.read_bytes()
    assert call("keys", "revoke", key.id[:-1], "--keys-file", str(file)) == 1
    assert f'did you mean "{key.id}"' in capsys.readouterr().err
    assert file.read_bytes() == before


def test_the_file_is_found_in_the_settings_and_tenants_are_compared(config: Path, file: Path, capsys: Captured) -> None:
    assert call("keys", "add", "ann", "--config", str(config)) == 0
    assert "not among" not in capsys.readouterr().err
    assert call("keys", "add", "an", "--config", str(config)) == 0
    said = capsys.readouterr().err.replace("\n", " ")
    assert "not among the tenants" in said
    assert 'did you mean "ann"' in said
    assert [key.tenant for key in read(file)] == ["ann", "an"]


def test_what_is_wrong_is_said(tmp_path: Path, file: Path, capsys: Captured) -> None:
    (tmp_path / "bare.yaml").write_text("seed: 1\n")
    (tmp_path / "bad.yaml").write_text("sed: 1\n")
    for arguments, code, why in (
        (("list",), 2, "--config headway.yaml, or --keys-file"),
        (("list", "--keys-file", str(file)), 1, "does not exist"),
        (("list", "--config", str(tmp_path / "bare.yaml")), 1, "has no keys_file"),
        (("list", "--config", str(tmp_path / "bad.yaml")), 1, 'did you mean "seed"'),
        (("add", "a b", "--keys-file", str(file)), 2, "is no name for a tenant"),
        (("add", "ann", "--keys-file", str(tmp_path / "no" / "where")), 1, "cannot be written"),
        (("revoke", "k-1", "--keys-file", str(file)), 1, "there is no key k-1"),
        (("revoke", "k-1", "--keys-file", str(tmp_path / "no" / "where")), 1, "cannot be written"),
    ):
        assert call("keys", *arguments) == code, arguments
        shown = capsys.readouterr()
        assert why in shown.err
        assert "hw-" not in shown.out
    assert not file.exists()


@pytest.mark.slow
def test_check_tells_of_tenants_and_keys(config: Path, file: Path, capsys: Captured) -> None:
    assert call("check", str(config)) == 1
    assert "line 1: keys_file" in capsys.readouterr().err
    secret = added(file, capsys)
    assert call("check", str(config)) == 0
    shown = capsys.readouterr().out
    assert "ann tier=high" in shown
    assert "1 good, 0 revoked" in shown
    assert secret not in shown


@pytest.mark.parametrize("verb", ["add", "list", "revoke"])
def test_every_option_is_described(verb: str, capsys: Captured) -> None:
    assert call("keys", verb, "--help") == 0
    assert "--keys-file" in capsys.readouterr().out
    assert call("keys") == 2
    assert verb in capsys.readouterr().out
