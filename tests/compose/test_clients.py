"""Who may use the running gateway, and how a changed file of keys is felt."""

import asyncio
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import structlog
from structlog.typing import EventDict

from headway.compose.clients import Clients, KeyWatch
from headway.compose.keyfile import ApiKey, change, make, read, revoked
from headway.core.events import Event, TenantsChanged
from headway.core.tenant import Tenant
from headway.gateway.head import RequestHead
from headway.gateway.identity import Identities, Identity
from headway.telemetry import Telemetry

Run = Callable[[Any], Any]


class World:
    """What `Clients` tells others."""

    def __init__(self, *tenants: Tenant) -> None:
        self.identities: list[Identities] = []
        self.events: list[Event] = []
        self.telemetry = Telemetry()
        self.clients = Clients(tenants, self.identities.append, self.events.append, self.telemetry)

    def tenant_of(self, secret: str) -> str:
        head = RequestHead(b"GET", b"/", b"1", b"", {b"x-api-key": secret.encode()})
        found = self.identities[-1].of(head)
        return found.tenant if isinstance(found, Identity) else ""


def test_keys_make_tenants_known_everywhere() -> None:
    world = World(Tenant("ann", weight=2.0))
    (ann, ann_secret), (new, new_secret) = make("ann"), make("new")
    world.clients.apply([ann, new])
    (event,) = world.events
    assert isinstance(event, TenantsChanged)
    assert event.tenants == (Tenant("ann", weight=2.0), Tenant("new"))
    assert (world.tenant_of(ann_secret), world.tenant_of(new_secret), world.tenant_of("x")) == ("ann", "new", "")
    assert world.clients.good_keys == 2
    assert world.telemetry.tenants == {"ann"}, "labels of metrics are those of the settings"


def test_the_brain_hears_of_tenants_only_when_they_change() -> None:
    world = World(Tenant("ann"))
    key, secret = make("ann")
    world.clients.apply([key])
    world.clients.apply([key, make("ann")[0]])
    assert len(world.events) == 1
    world.clients.apply([revoked(key)])
    assert len(world.events) == 1
    assert world.tenant_of(secret) == ""
    world.clients.apply([make("new")[0]])
    assert len(world.events) == 2


def test_without_any_key_nobody_is_let_in() -> None:
    world = World()
    world.clients.apply([])
    assert world.identities[-1].closed
    assert not world.events, "nothing changed for the brain"


class Watched:
    """A watched file, looked at by hand."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "keys.json"
        self.first, self.secret = make("ann")
        change(self.file, lambda _: [self.first])
        self.applied: list[Sequence[ApiKey]] = []
        self.watch = KeyWatch(self.file, read(self.file), self.applied.append)

    async def look(self) -> Sequence[ApiKey] | None:
        """What was applied, if anything."""
        before = len(self.applied)
        await self.watch.look()
        return self.applied[-1] if len(self.applied) > before else None

    def put(self, text: str) -> None:
        """Write into the file as an editor would that does not replace it."""
        self.file.write_text(text)


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


@pytest.fixture
def logged() -> Iterator[list[EventDict]]:
    with structlog.testing.capture_logs() as lines:
        yield lines


def test_a_change_is_applied_once(run: Run, watched: Watched) -> None:
    async def scene() -> None:
        assert await watched.look() is None
        change(watched.file, lambda keys: (*keys, make("bob")[0]))
        applied = await watched.look()
        assert applied is not None
        assert [key.tenant for key in applied] == ["ann", "bob"]
        assert await watched.look() is None
        os.utime(watched.file)
        assert await watched.look() is None, "touched, but the same"

    run(scene())


SPOILT = {
    "cut": lambda text: text[: len(text) // 2],
    "emptied": lambda text: "",
    "garbage": lambda text: "\0\0\0",
    "not hex": lambda text: text.replace('"hash":"', '"hash":"g'),
    "twice": lambda text: text.replace("\n]", ",\n" + text.splitlines()[1] + "\n]"),
}


@pytest.mark.parametrize("how", SPOILT)
def test_a_spoilt_file_changes_nothing_until_it_is_mended(
    run: Run, watched: Watched, how: str, logged: list[EventDict]
) -> None:
    async def scene() -> None:
        good = watched.file.read_text()
        watched.put(SPOILT[how](good))
        for _ in range(3):
            assert await watched.look() is None
        assert watched.watch.failures == 1
        watched.put(good)
        applied = await watched.look()
        assert applied is not None
        assert list(applied) == [watched.first]
        assert [line["log_level"] for line in logged] == ["error", "info"]
        assert watched.secret not in repr(logged)
        assert watched.first.hash not in repr(logged)

    run(scene())


def test_a_file_that_vanishes_and_returns(run: Run, watched: Watched, logged: list[EventDict]) -> None:
    async def scene() -> None:
        away = watched.file.with_name("away")
        watched.file.rename(away)
        assert await watched.look() is None
        assert await watched.look() is None
        assert watched.watch.failures == 1
        away.rename(watched.file)
        assert await watched.look() == (watched.first,)
        watched.file.chmod(0o666)
        assert await watched.look() is None
        assert watched.watch.failures == 2
        watched.file.chmod(0o600)
        assert await watched.look() is not None

    run(scene())


def test_a_second_change_within_a_tick_of_the_clock_is_not_missed(
    run: Run, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Same size, same times, same inode: only reading again tells."""

    async def scene() -> None:
        monkeypatch.setattr("headway.compose.clients.state_of", lambda path: (1,))
        await watched.look()
        text = watched.file.read_text()
        watched.put(text.replace('"tenant":"ann"', '"tenant":"bob"'))
        applied = await watched.look()
        assert applied is not None
        assert applied[0].tenant == "bob"

    run(scene())


@pytest.mark.slow
def test_the_running_watch_feels_a_revocation_and_ends_when_told(run: Run, watched: Watched) -> None:
    async def scene() -> None:
        watch = KeyWatch(watched.file, read(watched.file), watched.applied.append, look_s=0.01)
        task = asyncio.ensure_future(watch.run())
        await asyncio.sleep(0.05)
        change(watched.file, lambda keys: [revoked(key) for key in keys])
        async with asyncio.timeout(2.0):
            while not watched.applied:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)
        assert hashlib.sha256(watched.secret.encode()).hexdigest() == watched.applied[-1][0].hash
        assert watched.applied[-1][0].revoked
        task.cancel()
        await asyncio.wait([task])

    run(scene())
