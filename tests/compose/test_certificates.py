"""Renewed certificates are shown without a restart, whatever state their files pass through."""

import asyncio
import os
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme

from headway.compose.certificates import CertificateWatch
from headway.compose.settings_traffic import ClientTls, ServerTls
from headway.compose.tls import Own, client_context, load_own, owns, server_context

Run = Callable[[Any], Any]


class Files:
    """Certificate and key of a server, renewed at will."""

    def __init__(self, folder: Path) -> None:
        self.authority = trustme.CA()
        self.cert, self.key = folder / "cert.pem", folder / "key.pem"
        self.renew()
        self.settings = ServerTls(cert_file=self.cert, key_file=self.key)
        self.context = server_context(self.settings)
        self.watch = CertificateWatch(owns(self.settings, self.context, None, None))

    def renew(self, *, key: bool = True) -> None:
        """Another certificate; without its key as between the two renames of a renewal."""
        made = self.authority.issue_cert("localhost")
        self.cert.write_bytes(b"".join(pem.bytes() for pem in made.cert_chain_pems))
        if key:
            self.key.write_bytes(made.private_key_pem.bytes())

    async def shown(self) -> int:
        """The serial number that a client sees."""
        trusting = ssl.create_default_context()
        self.authority.configure_trust(trusting)
        server = await asyncio.start_server(lambda _r, w: w.close(), "127.0.0.1", 0, ssl=self.context)
        async with server:
            port = server.sockets[0].getsockname()[1]
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting, server_hostname="localhost")
            serial = int(writer.get_extra_info("peercert")["serialNumber"], 16)
            await reader.read()
            writer.close()
        return serial


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_new_handshakes_see_the_renewed_certificate(run: Run, files: Files) -> None:
    async def story() -> None:
        first = await files.shown()
        await files.watch.look()
        assert await files.shown() == first
        files.renew()
        assert await files.shown() == first, "not before it was looked at"
        await files.watch.look()
        assert await files.shown() != first
        assert files.watch.failures == 0

    run(story())


@pytest.mark.parametrize("how", ["other_key", "cut", "gone", "pipe", "passphrase"])
def test_what_cannot_be_used_changes_nothing_and_is_tried_again(run: Run, files: Files, how: str) -> None:
    async def story() -> None:
        first = await files.shown()
        spoil(files, how)
        for _ in range(3):
            await files.watch.look()
            assert await files.shown() == first
        assert files.watch.failures == 1, "said once"
        files.key.unlink(missing_ok=True)
        files.renew()
        await files.watch.look()
        assert await files.shown() != first

    run(story())


def spoil(files: Files, how: str) -> None:
    """Leave the files in a state in which they are of no use."""
    files.renew(key=how != "other_key")
    if how == "cut":
        files.key.write_bytes(files.key.read_bytes()[:100])
    elif how != "other_key":
        files.key.unlink()
    if how == "pipe":
        os.mkfifo(files.key)
    if how == "passphrase":
        files.key.write_text("-----BEGIN ENCRYPTED PRIVATE KEY-----\nMAA=\n-----END ENCRYPTED PRIVATE KEY-----\n")


def test_the_watch_goes_on_for_ever(run: Run, files: Files) -> None:
    async def story() -> None:
        first = await files.shown()
        watch = CertificateWatch([Own(files.context, files.cert, files.key)], look_s=0.001)
        watching = asyncio.ensure_future(watch.run())
        files.renew()
        async with asyncio.timeout(5):
            while await files.shown() == first:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
        watching.cancel()
        await asyncio.wait([watching])

    run(story())


def test_our_certificate_for_engines_is_watched_too(files: Files) -> None:
    both = files.cert.with_name("both.pem")
    both.write_bytes(files.key.read_bytes() + files.cert.read_bytes())
    upstream = ClientTls(cert_file=both)
    context = client_context(upstream)
    assert owns(None, None, upstream, context) == [Own(context, both, both)]
    assert owns(None, None, ClientTls(), context) == []


def test_nobody_is_asked_for_a_passphrase(files: Files) -> None:
    spoil(files, "passphrase")
    with pytest.raises(OSError, match=r"\w"):
        load_own(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), files.cert, files.key)
