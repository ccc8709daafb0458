"""Who sends a request: from the credentials in its head to a tenant.

Keys are known by their SHA-256 only: they are 256 random bits, so there is nothing to guess and no salt to add, and no
table of ours is worth stealing. What lives here is asked once per distinct head (`notes`). What must not: where keys
come from (compose), and what a tenant may do (the brain).
"""

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from typing import Final

import xxhash

from headway.core.tenant import Tenant, Tier
from headway.gateway.head import Refusal, RequestHead

CREDENTIALS: Final = (b"authorization", b"x-api-key", b"api-key")
"""Headers that carry a key: OpenAI's, Anthropic's and Azure's clients."""

CODE: Final = "invalid_api_key"
MISSING: Final = Refusal(401, CODE, "An API key is needed: send it as `Authorization: Bearer KEY`.")
WRONG: Final = Refusal(401, CODE, "The API key is not valid.")
SCHEME: Final = Refusal(401, CODE, "The Authorization header must be `Bearer KEY`.")
CONFLICTING: Final = Refusal(401, CODE, "The request carries two different credentials.")

TIERS: Final = {tier.name.lower().encode(): int(tier) for tier in Tier}

_session = xxhash.xxh3_64_hexdigest


class Identity:
    """Whose request it is. `models` are the names that the tenant may see and use, empty for all; `tier` is for
    requests that state none."""

    __slots__ = ("models", "tenant", "tier")

    def __init__(self, tenant: str = "", tier: int = 0, models: Iterable[str] = ()) -> None:
        self.tenant = tenant
        self.tier = tier
        self.models = frozenset(models)

    def __repr__(self) -> str:
        return f"<Identity {self.tenant or 'anybody'}>"


ANYBODY: Final = Identity()


class Identities:
    """What is known of clients. `keys` maps the SHA-256 of each valid key to its tenant; None: there are no keys, and
    everybody is served. With keys, even if there are none yet, whoever has none is refused. Never changed: a new set of
    keys is a new object."""

    def __init__(self, keys: Mapping[bytes, str] | None = None, tenants: Iterable[Tenant] = ()) -> None:
        known = {tenant.name: Identity(tenant.name, int(tenant.tier), tenant.models) for tenant in tenants}
        self.closed = keys is not None
        self._keys = {digest: (digest, known.get(name) or Identity(name)) for digest, name in (keys or {}).items()}

    def __repr__(self) -> str:
        return f"<Identities {len(self._keys)} keys>" if self.closed else "<Identities open>"

    def of(self, head: RequestHead) -> Identity | Refusal:
        """Who it is, or why it is nobody we know."""
        if not self.closed:
            return ANYBODY
        key = _key(head.fields)
        return key if isinstance(key, Refusal) else self._find(key)

    def _find(self, key: bytes) -> Identity | Refusal:
        """The digest is looked up, never the key, and compared in constant time: how long it takes says nothing about
        any key."""
        digest = hashlib.sha256(key).digest()
        right, identity = self._keys.get(digest, _NONE)
        return identity if hmac.compare_digest(digest, right) else WRONG


_NONE: Final = (bytes(32), ANYBODY)  # whose preimage nobody has


def _key(fields: Mapping[bytes, bytes]) -> bytes | Refusal:
    """The one key a head carries. Empty headers carry none; the same key in two headers is one."""
    found: set[bytes] = set()
    for name in CREDENTIALS:
        value = fields.get(name, b"")
        if name == b"authorization":
            scheme, _, value = value.partition(b" ")
            if scheme and scheme.lower() != b"bearer":
                return SCHEME
        if value := value.strip(b" \t"):
            found.add(value)
    if len(found) > 1:
        return CONFLICTING
    return found.pop() if found else MISSING


def session_of(tenant: str, key: str) -> str:
    """What the brain knows a session by: 16 hex digits. Clients put account names into session keys, which must not
    get into journals; and the same key of two tenants is two sessions."""
    return _session(f"{tenant}\0{key}".encode()) if key else ""
