"""What each tenant has used of what it may use: requests alive, rates, KV tokens promised.

Limits are `core.tenant.Tenant` values; who a request belongs to is the gateway's business. Refusals for a limit of
their own tell clients when to come back, and never depend on anybody else. Turns among tenants who wait are not here
(`turns`): a limit is a bound on one tenant, a turn is a share of what all want.
"""

import math
from collections.abc import Iterable, Mapping

from headway.core.commands import Reject
from headway.core.demand import Demand
from headway.core.ids import ReplicaId, RequestId
from headway.core.precision import stricter
from headway.core.request import RequestInfo
from headway.core.snapshot import TenantState
from headway.core.tenant import Tenant


class Bucket:
    """A token bucket: `rate` a second, `size` at most. What is taken in advance may leave it in debt."""

    __slots__ = ("_at", "_level", "rate", "size")

    def __init__(self, rate: float, size: float, at: float) -> None:
        self.rate = rate
        self.size = size
        self._level = size
        self._at = at

    def resize(self, rate: float, size: float) -> None:
        """Other limits; what is in it stays."""
        self.rate, self.size = rate, size
        self._level = min(self._level, size)

    def short_s(self, wanted: float, at: float) -> float:
        """Seconds until so much may be taken, 0 if it may now. What exceeds the bucket may be taken from a full one."""
        self._level = min(self.size, self._level + (at - self._at) * self.rate)
        self._at = at
        missing = min(wanted, self.size) - self._level
        return missing / self.rate if missing > 1e-9 * self.size else 0.0

    def take(self, amount: float) -> None:
        """Take it, or give it back if it is negative."""
        self._level = min(self.size, self._level - amount)


class Usage:
    """What one tenant uses now."""

    __slots__ = ("alive", "promised", "requests", "tenant", "tokens")

    def __init__(self, tenant: Tenant, at: float) -> None:
        self.tenant = tenant
        self.alive = 0
        self.promised: dict[ReplicaId, float] = {}
        self.requests = Bucket(tenant.requests_per_s, _request_burst(tenant), at)
        self.tokens = Bucket(tenant.tokens_per_s, tenant.tokens_per_s * tenant.burst_s, at)

    def limit(self, tenant: Tenant) -> None:
        """Its limits changed."""
        self.tenant = tenant
        self.requests.resize(tenant.requests_per_s, _request_burst(tenant))
        self.tokens.resize(tenant.tokens_per_s, tenant.tokens_per_s * tenant.burst_s)


def _request_burst(tenant: Tenant) -> float:
    return max(1.0, tenant.requests_per_s * tenant.burst_s)


class Tenancy:
    """All tenants. Who is not configured has no limits; while nobody is, nothing is kept at all."""

    def __init__(self) -> None:
        self.usages: dict[str, Usage] = {}
        self._gone: dict[str, Usage] = {}

    def configure(self, tenants: Iterable[Tenant], at: float) -> None:
        """These are all tenants now. The accounts of those that stay go on."""
        before, self.usages = {**self._gone, **self.usages}, {}
        for tenant in tenants:
            usage = before.pop(tenant.name, None) or Usage(tenant, at)
            usage.limit(tenant)
            self.usages[tenant.name] = usage
        self._gone = {name: usage for name, usage in before.items() if usage.alive}

    def weight(self, tenant: str) -> float:
        """Its share in turns."""
        usage = self.usages.get(tenant)
        return usage.tenant.weight if usage is not None else 1.0

    def may_use(self, tenant: str, model: str) -> bool:
        """Whether a model is among those of a tenant."""
        usage = self.usages.get(tenant)
        return usage is None or not usage.tenant.models or model in usage.tenant.models

    def completed(self, request: RequestInfo, at: float) -> RequestInfo:
        """A request with what its tenant prescribes: a bound on its tier, a deadline, a precision."""
        usage = self.usages.get(request.tenant)
        if usage is None:
            return request
        tenant = usage.tenant
        tier, deadline, floor = request.tier, request.deadline, request.precision_floor
        if tier > tenant.max_tier:
            tier = tenant.max_tier
        if deadline is None and tenant.deadline_s:
            deadline = at + tenant.deadline_s
        if tenant.precision_floor:
            floor = stricter(floor, tenant.precision_floor)
        if (tier, deadline, floor) == (request.tier, request.deadline, request.precision_floor):
            return request
        return request.changed(tier=tier, deadline=deadline, precision_floor=floor)

    def refuses(self, request: RequestInfo, at: float) -> Reject | None:
        """A refusal for what does not depend on its length: a policy, requests alive, requests per second."""
        usage = self.usages.get(request.tenant) if self.usages else None
        if usage is None:
            return None
        tenant = usage.tenant
        if request.policy and tenant.policies and request.policy not in tenant.policies:
            text = f"The policy `{request.policy[:64]}` is not among those that this key may ask for"
            return Reject(request.id, 403, "policy_not_allowed", text)
        if 0 < tenant.max_concurrent <= usage.alive:
            text = f"this key has {usage.alive} requests under way, which is all it may have"
            return Reject(request.id, 429, "concurrency_limit", text, 1.0)
        if tenant.requests_per_s and (wait := usage.requests.short_s(1.0, at)):
            return _too_fast(request.id, f"{tenant.requests_per_s:g} requests per second", wait)
        return None

    def refuses_length(self, request: RequestInfo, demand: Demand, at: float) -> Reject | None:
        """A refusal because its tokens, prompt and expected output, are more than the tenant may have now."""
        usage = self.usages.get(request.tenant)
        if usage is None or not usage.tenant.tokens_per_s:
            return None
        wait = usage.tokens.short_s(demand.prompt_tokens + demand.output_mean, at)
        return _too_fast(request.id, f"{usage.tenant.tokens_per_s:g} tokens per second", wait) if wait else None

    def entered(self, request: RequestInfo, demand: Demand) -> None:
        """It was accepted: it waits or goes."""
        usage = self.usages.get(request.tenant)
        if usage is not None:
            usage.alive += 1
            usage.requests.take(1.0)
            usage.tokens.take(demand.prompt_tokens + demand.output_mean)

    def left(self, demand: Demand, tokens: int | None) -> None:
        """It has ended after so many tokens of output, None if it was never served. Once for each `entered`."""
        if not self.usages and not self._gone:
            return
        request = demand.request
        usage = self.usages.get(request.tenant) or self._gone.get(request.tenant)
        if usage is None:
            return
        spent = -demand.prompt_tokens - demand.output_mean if tokens is None else tokens - demand.output_mean
        usage.tokens.take(spent)
        if usage.alive:
            usage.alive -= 1
            if not usage.alive:
                self._gone.pop(request.tenant, None)

    def sent(self, demand: Demand, replica_id: ReplicaId) -> None:
        """An attempt of it was dispatched: these KV tokens of a replica are promised to it."""
        if not self.usages:
            return
        usage = self.usages.get(demand.request.tenant)
        if usage is not None:
            usage.promised[replica_id] = usage.promised.get(replica_id, 0.0) + held_tokens(demand)

    def settled(self, demand: Demand, replica_id: ReplicaId) -> None:
        """That attempt ended."""
        if not self.usages and not self._gone:
            return
        tenant = demand.request.tenant
        usage = self.usages.get(tenant) or self._gone.get(tenant)
        if usage is None:
            return
        left = usage.promised.get(replica_id, 0.0) - held_tokens(demand)
        if left > 0.5:
            usage.promised[replica_id] = left
        else:
            usage.promised.pop(replica_id, None)

    def shares(self, tenant: str) -> bool:
        """Whether its share of the memory is bounded."""
        usage = self.usages.get(tenant)
        return usage is not None and usage.tenant.kv_share < 1.0

    def states(self) -> tuple[TenantState, ...]:
        """What each of them has now."""
        return tuple(TenantState(name, u.alive, sum(u.promised.values())) for name, u in sorted(self.usages.items()))

    def over_share(self, demand: Demand, capacities: Mapping[ReplicaId, int]) -> bool:
        """Whether its tenant (a configured one) has so much of replicas with so many tokens (0: unknown) already, under
        whatever name it asked for them, that this one must wait. One request may always run."""
        usage, capacity = self.usages[demand.request.tenant], sum(capacities.values())
        promised = sum(usage.promised.get(each, 0.0) for each in capacities) if capacity else 0.0
        return promised > 0.0 and promised + held_tokens(demand) > usage.tenant.kv_share * capacity


def held_tokens(demand: Demand) -> float:
    """KV tokens that a request is expected to hold in the end."""
    return demand.prompt_tokens + demand.output_mean


def _too_fast(request_id: RequestId, limit: str, wait_s: float) -> Reject:
    text = f"this key may send {limit}, and has sent more"
    return Reject(request_id, 429, "rate_limit_exceeded", text, float(math.ceil(wait_s)))
