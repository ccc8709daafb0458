"""From settings to the values that rooms take: nothing is started here, everything that can be wrong is found here."""

from collections.abc import Mapping, Sequence

import msgspec

from headway.admin import binding_problem
from headway.compose import tokenizers
from headway.compose.keyfile import ApiKey, KeysError
from headway.compose.keyfile import read as read_keys
from headway.compose.load import near, read_secret
from headway.compose.recipe import Recipe, from_settings
from headway.compose.registry import Registry
from headway.compose.settings import Replica, Settings
from headway.compose.settings_pressure import TIERS, Migration, TenantLimits
from headway.compose.source import Problem, SettingsError
from headway.compose.tls import client_context, server_context
from headway.coordinate.static import AUTO, Entry
from headway.coordinate.validate import Refused, replica_url
from headway.core.tenant import Tenant, Tier
from headway.engines.base import Dialect
from headway.gateway.config import Batching, Cors, GatewayConfig, Limits, Moving, Timeouts, UpstreamAuth
from headway.gateway.counting import Counter


class Plan(msgspec.Struct, frozen=True):
    """Everything a gateway process is made of, as values. `secrets` must never be written anywhere."""

    settings: Settings
    recipe: Recipe
    gateway: GatewayConfig
    entries: tuple[Entry, ...]
    dialects: dict[str, Dialect]
    keys: dict[str, str]
    common_key: str
    admin_token: str
    secrets: tuple[str, ...]
    tenants: tuple[Tenant, ...] = ()
    client_keys: tuple[ApiKey, ...] = ()
    counters: dict[str, Counter] = {}


def make_plan(settings: Settings, registry: Registry) -> Plan:
    """Look everything up and check it. Raises SettingsError."""
    dialects: dict[str, Dialect] = {name: p.factory(p.config()) for name, p in registry.engines.items()}
    entries = tuple(_entry(replica, index, dialects) for index, replica in enumerate(settings.replicas))
    common = read_secret(settings.upstream.api_key, settings.upstream.api_key_file, ("upstream", "api_key"))
    token = read_secret(settings.admin.token, settings.admin.token_file, ("admin", "token"))
    if settings.admin.enabled and (problem := binding_problem(settings.admin.host, token)):
        raise SettingsError("settings", [Problem(("admin", "host"), problem)])
    keys = {entry.url: key for entry, key in zip(entries, _keys(settings, common), strict=True) if key}
    return Plan(
        settings=settings,
        recipe=from_settings(settings, registry),
        counters=tokenizers.load(settings.tokenizers, settings.models),
        gateway=_gateway(settings, keys, common),
        entries=entries,
        dialects=dialects,
        keys=keys,
        common_key=common,
        admin_token=token,
        secrets=tuple({common, token, *keys.values()} - {""}),
        tenants=tuple(_tenant(name, limits, registry) for name, limits in settings.tenants.items()),
        client_keys=_client_keys(settings),
    )


def _tenant(name: str, limits: TenantLimits, registry: Registry) -> Tenant:
    for policy in limits.policies:
        if policy not in registry.policies:
            hint = near(policy, registry.policies) or f"; there are {', '.join(sorted(registry.policies))}"
            path = ("tenants", name, "policies")
            raise SettingsError("settings", [Problem(path, f"no policy is named {policy!r}{hint}")])
    tier = TIERS[limits.tier]
    max_tier = max(tier, Tier.HIGH) if limits.max_tier is None else TIERS[limits.max_tier]
    stated = limits.model_dump() | {"tier": tier, "max_tier": max_tier}
    return msgspec.convert({"name": name, **stated}, Tenant)


def _client_keys(settings: Settings) -> tuple[ApiKey, ...]:
    if settings.keys_file is None:
        return ()
    try:
        return read_keys(settings.keys_file)
    except KeysError as error:
        raise SettingsError("settings", [Problem(("keys_file",), str(error))]) from None


def _keys(settings: Settings, common: str) -> Sequence[str]:
    return [
        read_secret(replica.api_key, replica.api_key_file, ("replicas", index, "api_key")) or common
        for index, replica in enumerate(settings.replicas)
    ]


def _entry(replica: Replica, index: int, dialects: Mapping[str, Dialect]) -> Entry:
    path = ("replicas", index)
    url = replica_url(replica.url)
    if isinstance(url, Refused):
        raise SettingsError("settings", [Problem((*path, "url"), url.reason)])
    if replica.engine != AUTO and replica.engine not in dialects:
        hint = near(replica.engine, dialects) or f"; there are {', '.join(sorted(dialects))}"
        raise SettingsError("settings", [Problem((*path, "engine"), f"no engine is named {replica.engine!r}{hint}")])
    stated = replica.model_dump(exclude={"url", "api_key", "api_key_file"})
    return Entry(url=url, **stated)


def _moving(section: Migration) -> Moving | None:
    if not section.enabled:
        return None
    said = section.model_dump(include={"hold_s", "warm_s", "handover_s", "keepalive_s", "plain"})
    return Moving(models=frozenset(section.models), **said)


def _gateway(settings: Settings, keys: dict[str, str], common: str) -> GatewayConfig:
    listen, upstream, requests = settings.listen, settings.upstream, settings.requests
    return GatewayConfig(
        host=listen.host,
        port=listen.port,
        limits=Limits(**settings.limits.model_dump()),
        timeouts=Timeouts(**settings.timeouts.model_dump()),
        cors=Cors(tuple(settings.cors.origins), tuple(settings.cors.headers), settings.cors.max_age_s),
        auth=UpstreamAuth(common, upstream.forward_authorization),
        replica_keys=keys,
        paths=tuple(requests.paths),
        server_tls=server_context(listen.tls) if listen.tls else None,
        client_tls=client_context(upstream.tls) if upstream.tls else None,
        preserve_host=upstream.preserve_host,
        trust_forwarded=upstream.trust_forwarded,
        session_headers=tuple(name.lower() for name in requests.session_headers),
        deadline_header=requests.deadline_header.lower(),
        hints_header=requests.hints_header.lower(),
        batching={model: Batching(**merged.model_dump()) for model, merged in settings.batching.items()},
        moving=_moving(settings.migration),
        priority_header=requests.priority_header.lower(),
        policy_header=requests.policy_header.lower(),
        precision_header=requests.precision_header.lower(),
        inject_usage=requests.inject_usage,
        backlog=listen.backlog,
    )
