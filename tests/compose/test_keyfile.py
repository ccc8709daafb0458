"""The file of keys: what is kept, who may write it, and that readers never see half of it."""

import hashlib
import json
import os
import stat
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.compose import keyfile
from headway.compose.keyfile import ApiKey, KeysError, change, digests, make, read, revoked

GOOD: dict[str, Any] = {"id": "k-1", "tenant": "ann", "hash": "a" * 64}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def written(file: Path, *keys: dict[str, Any]) -> Path:
    file.write_text(json.dumps({"keys": keys}))
    file.chmod(0o600)
    return file


def add(file: Path, tenant: str = "ann", note: str = "") -> str:
    key, secret = make(tenant, note)
    change(file, lambda keys: (*keys, key))
    return secret


def test_a_key_is_256_random_bits_of_which_the_hash_is_kept() -> None:
    key, secret = make("ann", "for tests")
    assert secret.startswith("hw-")
    assert len(secret) == 3 + 43
    assert key.hash == hashlib.sha256(secret.encode()).hexdigest()
    assert (key.tenant, key.note, key.hint, key.revoked) == ("ann", "for tests", secret[-4:], "")
    assert make("ann")[1] != secret
    assert secret[:-4] not in repr(key)


def test_keys_come_back_as_they_were_written(file: Path) -> None:
    secrets = [add(file, "ann", 'a "quoted"\nnote'), add(file, "bob")]
    keys = read(file)
    assert [key.tenant for key in keys] == ["ann", "bob"]
    assert digests(keys) == {
        hashlib.sha256(s.encode()).digest(): t for s, t in zip(secrets, ("ann", "bob"), strict=True)
    }
    assert not [secret for secret in secrets if secret in file.read_text()]
    assert len(file.read_text().splitlines()) == 4, "a line for each key"


def test_the_file_is_its_owners_alone(file: Path) -> None:
    before = os.umask(0)
    try:
        add(file)
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert {path.name for path in file.parent.iterdir()} == {"keys.json", ".keys.json.lock"}


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_is_refused(file: Path, mode: int) -> None:
    add(file)
    file.chmod(mode)
    with pytest.raises(KeysError, match="chmod 600"):
        read(file)
    file.chmod(0o644)  # a mounted secret: hashes of random keys tell nobody anything
    assert len(read(file)) == 1


@pytest.mark.timeout(10)
def test_a_pipe_is_refused_and_not_waited_for(file: Path) -> None:
    """Whoever reads it would wait for a writer, for ever: revoked keys stayed good, and the process could not end."""
    os.mkfifo(file, 0o600)
    with pytest.raises(KeysError, match="no regular file"):
        read(file)


def test_a_revoked_key_stays_listed_and_is_good_for_nothing(file: Path) -> None:
    add(file)
    change(file, lambda keys: [revoked(key) for key in keys])
    (key,) = read(file)
    assert key.revoked
    assert digests([key]) == {}
    assert revoked(key) is key


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b"nonsense", b"\xff", b"[" * 100_000, b'{"keys": {}}', b'{"keys": [1]}']
)
def test_what_is_no_file_of_keys_is_refused(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    file.chmod(0o600)
    with pytest.raises(KeysError, match="no file of keys"):
        read(file)


@pytest.mark.parametrize(
    ("spoilt", "why"),
    [
        ({"hash": "a" * 63}, "64 hex digits"),
        ({"hash": "hw-the-key-itself"}, "64 hex digits"),
        ({"hash": "A" * 64}, "64 hex digits"),
        ({"tenant": ""}, "id and tenant"),
        ({"tenant": "a b"}, "id and tenant"),
        ({"tenant": "a\n"}, "id and tenant"),
        ({"tenant": "-a"}, "id and tenant"),
        ({"id": "x" * 65}, "id and tenant"),
        ({"secret": "hw-x"}, "unknown field"),
        ({"hash": 5}, r"keys\[1\].hash"),
    ],
)
def test_errors_name_the_key_and_show_none(file: Path, spoilt: dict[str, Any], why: str) -> None:
    written(file, GOOD, {**GOOD, "id": "k-2", "hash": "b" * 64, **spoilt})
    with pytest.raises(KeysError, match=why) as error:
        read(file)
    assert "hw-" not in str(error.value)
    assert str(file) in str(error.value)


def test_a_key_is_there_once(file: Path) -> None:
    for again in ({"id": "k-2"}, {"hash": "b" * 64}):
        with pytest.raises(KeysError, match="key 2: its id or hash is there twice"):
            read(written(file, GOOD, {**GOOD, **again}))


def test_an_endless_file_is_not_read(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyfile, "MAX_FILE_BYTES", 100)
    with pytest.raises(KeysError, match="larger than"):
        read(written(file, GOOD))


def test_a_missing_file_says_how_to_make_one(file: Path) -> None:
    with pytest.raises(KeysError, match="headway keys add"):
        read(file)
    with pytest.raises(KeysError, match="cannot be read"):
        read(file.parent)
    with pytest.raises(KeysError, match="cannot be written"):
        add(file.parent / "nowhere" / "keys.json")


def test_an_empty_file_may_be_filled_and_a_spoilt_one_is_left_alone(file: Path) -> None:
    file.touch()
    add(file)
    assert len(read(file)) == 1
    file.write_text("spoilt")
    with pytest.raises(KeysError):
        add(file)
    assert file.read_text() == "spoilt"


def test_what_goes_wrong_changes_nothing(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(file)
    before = file.read_bytes()

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(KeysError, match="No space left"):
        add(file)
    with pytest.raises(KeysError, match="twice"):
        change(file, lambda keys: (*keys, *keys))
    assert file.read_bytes() == before
    assert {path.name for path in file.parent.iterdir()} == {"keys.json", ".keys.json.lock"}, "nothing partial is left"


def test_a_link_stays_a_link(file: Path) -> None:
    add(file)
    link = file.with_name("link.json")
    link.symlink_to(file)
    add(link)
    assert link.is_symlink()
    assert len(read(file)) == 2


def test_writers_at_once_lose_nothing_and_readers_see_whole_files(file: Path) -> None:
    add(file)
    wrong: list[Exception] = []
    done = threading.Event()

    def reading() -> None:
        while not done.is_set():
            try:
                read(file)
            except KeysError as error:
                wrong.append(error)

    reader = threading.Thread(target=reading)
    writers = [threading.Thread(target=lambda: [add(file) for _ in range(5)]) for _ in range(4)]
    for thread in (reader, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    reader.join()
    assert len(read(file)) == 21
    assert not wrong


NAMES = st.from_regex(keyfile.NAME, fullmatch=True)


@pytest.mark.slow
@settings(max_examples=30)
@given(st.lists(st.tuples(NAMES, st.text(max_size=20)), max_size=8, unique_by=lambda pair: pair[0]))
def test_whatever_notes_say_they_come_back(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[str, str]]
) -> None:
    file = tmp_path_factory.mktemp("keys") / "keys.json"
    keys = [
        ApiKey(name, name, hashlib.sha256(name.encode()).hexdigest(), note=note.encode(errors="replace").decode())
        for name, note in pairs
    ]
    change(file, lambda _: keys)
    assert list(read(file)) == keys
