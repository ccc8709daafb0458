"""TLS contexts from settings. Errors name the file."""

import ssl
from pathlib import Path
from typing import NamedTuple

from headway.compose.settings_traffic import ClientTls, ServerTls
from headway.compose.source import Problem, SettingsError


class Own(NamedTuple):
    """A context, and the files whose certificate and key it shows."""

    context: ssl.SSLContext
    cert: Path
    key: Path


def owns(
    listen: ServerTls | None, server: ssl.SSLContext | None, upstream: ClientTls | None, client: ssl.SSLContext | None
) -> list[Own]:
    """What the contexts of settings show of themselves."""
    found = []
    if listen is not None and server is not None:
        found.append(Own(server, listen.cert_file, listen.key_file))
    if upstream is not None and client is not None and upstream.cert_file is not None:
        found.append(Own(client, upstream.cert_file, upstream.key_file or upstream.cert_file))
    return found


def load_own(context: ssl.SSLContext, cert: Path, key: Path) -> None:
    """Show this certificate in new handshakes. Raises OSError (an SSLError is one), also for a key with a passphrase:
    nobody is there to be asked for it."""
    context.load_cert_chain(cert, key, password="")


def server_context(tls: ServerTls) -> ssl.SSLContext:
    """For the data port: TLS 1.2 and newer, HTTP/1.1 only. Raises SettingsError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    _load_own(context, tls.cert_file, tls.key_file, "listen")
    if tls.client_ca_file is not None:
        _load_trust(context, tls.client_ca_file, "listen", "client_ca_file")
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_context(tls: ClientTls) -> ssl.SSLContext:
    """For connections to https replicas. Raises SettingsError."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if tls.ca_file is not None:
        _load_trust(context, tls.ca_file, "upstream", "ca_file")
    if tls.cert_file is not None:
        _load_own(context, tls.cert_file, tls.key_file or tls.cert_file, "upstream")
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _load_own(context: ssl.SSLContext, cert: Path, key: Path, section: str) -> None:
    try:
        load_own(context, cert, key)
    except OSError as error:
        raise _error(section, "cert_file", f"{cert} with {key}: {error}") from None


def _load_trust(context: ssl.SSLContext, path: Path, section: str, field: str) -> None:
    try:
        context.load_verify_locations(path)
    except (OSError, ssl.SSLError) as error:
        raise _error(section, field, f"{path}: {error}") from None


def _error(section: str, field: str, message: str) -> SettingsError:
    return SettingsError("settings", [Problem((section, "tls", field), f"cannot be used: {message}")])
