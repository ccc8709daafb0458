"""Clients with keys before a gateway: tenants of a house, and files of keys for whole gateways.

What lives here: giving out keys. What a tenant may do is each test's own business.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headway.compose.keyfile import change, make
from headway.core.events import TenantsChanged
from headway.core.tenant import Tenant
from headway.gateway.identity import Identities
from headway.runtime.clock import now
from tests.cases.house import House


def admit(house: House, *tenants: Tenant) -> None:
    """Close a house to all but these tenants; `bearer` makes the header of each."""
    keys = {hashlib.sha256(f"hw-key-of-{tenant.name}".encode()).digest(): tenant.name for tenant in tenants}
    house.gateway.post(TenantsChanged(now(), tenants))
    house.gateway.set_identities(Identities(keys, tenants))


def bearer(tenant: str, **more: str) -> dict[str, str]:
    """The header of a tenant of a house, and more."""
    return {"Authorization": f"Bearer hw-key-of-{tenant}"} | {n.replace("_", "-"): value for n, value in more.items()}


def given_out(folder: Path, *tenants: str) -> tuple[Path, dict[str, str]]:
    """A file of keys, and the key of each tenant."""
    file = folder / "keys.json"
    made = {tenant: make(tenant) for tenant in tenants}
    change(file, lambda keys: [*keys, *(key for key, _ in made.values())])
    return file, {tenant: secret for tenant, (_, secret) in made.items()}


def closed(file: Path, tenants: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Settings of a gateway that needs keys."""
    return {"keys_file": str(file), "tenants": dict(tenants or {})}
