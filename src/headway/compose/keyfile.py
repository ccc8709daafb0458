"""The file of API keys: hashes and whose they are, never a key. Read by the gateway, changed by `headway keys`.

JSON, one key per line, so that people can read it and version control can compare it. It is replaced as a whole and
under a lock: a reader sees the old file or the new one, and two writers do not undo each other.
"""

import fcntl
import hashlib
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

PREFIX = "hw-"
"""What keys begin with, so that scanners of code and logs can tell them."""

SECRET_BYTES = 32
"""256 bits: nothing that a salt or a slow hash would have to make up for."""

HINT_CHARS = 4
"""The end of a key is kept, to find its owner's copy by. 24 bits of 256 help nobody to guess the rest."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""Tenants and ids become labels of metrics and words of logs."""

MAX_FILE_BYTES = 16 * 1024 * 1024
"""Some 60,000 keys."""

_HASH = re.compile(r"[0-9a-f]{64}")
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class KeysError(Exception):
    """The file cannot be used; the text names it and says why."""


class ApiKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One key. `hash` is its SHA-256 in hex, `hint` its last characters; `created` and `revoked` are times in UTC, the
    latter empty while the key is good."""

    id: str
    tenant: str
    hash: str
    created: str = ""
    hint: str = ""
    note: str = ""
    revoked: str = ""


class _File(msgspec.Struct, forbid_unknown_fields=True):
    keys: list[ApiKey]


def make(tenant: str, note: str = "") -> tuple[ApiKey, str]:
    """A fresh key for a tenant: what is kept of it, and the key itself, which must be shown now or never."""
    secret = PREFIX + secrets.token_urlsafe(SECRET_BYTES)
    digest = hashlib.sha256(secret.encode()).hexdigest()
    return ApiKey(f"k-{secrets.token_hex(4)}", tenant, digest, _stamp(), secret[-HINT_CHARS:], note), secret


def revoked(key: ApiKey) -> ApiKey:
    """The key, good for nothing from now on. It stays listed, so that old logs can be read."""
    return key if key.revoked else msgspec.structs.replace(key, revoked=_stamp())


def read(path: Path) -> tuple[ApiKey, ...]:
    """Every key of a file, in its order. Raises KeysError, also for a file that others may write: whoever can write it
    can let himself in. A pipe is not waited for: who watches the file would see no change of it any more."""
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(MAX_FILE_BYTES + 1) if stat.S_ISREG(mode) else b""
    except FileNotFoundError:
        raise KeysError(f"{path} does not exist: `headway keys add --keys-file {path} TENANT` makes it") from None
    except OSError as error:
        raise KeysError(f"{path} cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(mode):
        raise KeysError(f"{path} is no regular file, so changes of it could not be seen")
    if mode & _OTHERS_WRITE:
        raise KeysError(f"{path} can be written by others than its owner: chmod 600 {path}")
    if len(data) > MAX_FILE_BYTES:
        raise KeysError(f"{path} is larger than {MAX_FILE_BYTES // 2**20} MiB: no file of keys")
    return _checked(path, data)


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def change(path: Path, edit: Callable[[tuple[ApiKey, ...]], Sequence[ApiKey]]) -> None:
    """Replace the keys by what `edit` makes of them; a file that does not exist, or is empty, has none.

    Raises KeysError and whatever `edit` raises, and changes nothing then.
    """
    try:
        path = path.resolve()
        with _locked(path):
            before = path.stat() if path.exists() else None
            keys = edit(read(path) if before is not None and before.st_size else ())
            _write(path, keys, before)
    except OSError as error:
        raise KeysError(f"{path} cannot be written: {error.strerror}") from None


def digests(keys: Sequence[ApiKey]) -> dict[bytes, str]:
    """SHA-256 -> tenant of those that are good."""
    return {bytes.fromhex(key.hash): key.tenant for key in keys if not key.revoked}


def _checked(path: Path, data: bytes) -> tuple[ApiKey, ...]:
    try:
        keys = msgspec.json.decode(data, type=_File).keys
    except (msgspec.DecodeError, RecursionError) as error:
        raise KeysError(f"{path} is no file of keys: {error}") from None
    ids: set[str] = set()
    hashes: set[str] = set()
    for number, key in enumerate(keys, start=1):
        problem = _problem(key)
        if not problem and (key.id in ids or key.hash in hashes):
            problem = "its id or hash is there twice"
        if problem:
            raise KeysError(f"{path}: key {number}: {problem}")
        ids.add(key.id)
        hashes.add(key.hash)
    return tuple(keys)


def _problem(key: ApiKey) -> str:
    """What is wrong with a key. Its fields are not repeated: somebody may have put the key itself there."""
    if NAME.fullmatch(key.id) is None or NAME.fullmatch(key.tenant) is None:
        return "id and tenant take 1 to 64 letters, digits, dots, dashes and underscores"
    return "" if _HASH.fullmatch(key.hash) else "hash must be 64 hex digits, the SHA-256 of the key"


def _write(path: Path, keys: Sequence[ApiKey], before: os.stat_result | None) -> None:
    """Replace the file. It stays its owner's, also when root changes it: the gateway must be able to read it."""
    lines = ",\n".join(msgspec.json.encode(key).decode() for key in keys)
    data = f'{{"keys": [\n{lines}\n]}}\n'.encode()
    _checked(path, data)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if before is not None and before.st_uid != os.geteuid():
                os.fchown(descriptor, before.st_uid, before.st_gid)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Beside the file, because the file itself is replaced. The kernel lets go of it whatever becomes of us."""
    descriptor = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _stamp() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
