"""Small complete values for telemetry tests."""

from headway.core.commands import Settled
from headway.core.decision import Candidate, Decision, Forecast
from headway.core.ids import ReplicaId, RequestId, attempt_id
from headway.core.outcome import Outcome, OutcomeKind
from headway.core.replica import LoadSample, ReplicaSpec
from headway.core.snapshot import FleetSnapshot
from headway.core.view import Breaker, ReplicaView, Speed
from headway.telemetry import Access


def access(**changed: object) -> Access:
    values: dict[str, object] = {
        "at": 1_700_000_000.25,
        "status": 200,
        "account": "ok",
        "model": "m",
        "attempts": 1,
        "duration_s": 0.3,
        "ttft_s": 0.02,
        "prompt_tokens": 100,
        "output_tokens": 10,
    }
    one = Access(RequestId("r1"), "POST", "/v1/chat/completions", "", 0.0)
    for name, value in (values | changed).items():
        setattr(one, name, value)
    return one


def decision(
    request: str = "r1", chosen: str = "a", attempt: int = 1, exclusions: dict[str, int] | None = None
) -> Decision:
    return Decision(
        RequestId(request),
        1.0,
        "headroom",
        ReplicaId(chosen),
        attempt,
        (Candidate(ReplicaId(chosen), (1.0, 0.4, 0.6), 5000.0, 0.2),),
        ("ttft", "mem"),
        exclusions or {},
        Forecast(100, 20, 50.0, 0.1, 170.0),
    )


def settled(request: str = "r1", attempt: int = 1, kind: OutcomeKind = OutcomeKind.OK, replica: str = "a") -> Settled:
    return Settled(
        2.0,
        RequestId(request),
        attempt_id(RequestId(request), attempt),
        ReplicaId(replica),
        Outcome(kind, status=200, output_tokens=60),
        0.12,
        0.1,
        50.0,
    )


def view(name: str = "a", sample: LoadSample | None = None, **changed: object) -> ReplicaView:
    values: dict[str, object] = {
        "spec": ReplicaSpec(ReplicaId(name), f"http://{name}:8000", model="m", labels={"zone": "z"}),
        "sample": sample,
        "as_of": 10.0,
        "sample_age_s": 0.3 if sample else -1.0,
        "stale": False,
        "kv_capacity_tokens": 100_000,
        "kv_used_tokens": 1234.0,
        "headroom_tokens": 90_000.0,
        "headroom_sigma": 100.0,
        "peak_mean": 9_000.0,
        "peak_var": 10.0,
        "reserved_tokens": 500.0,
        "prefill_backlog_tokens": 10.0,
        "dispatched_tokens": 10.0,
        "growth_tokens_per_s": 5.0,
        "in_flight": 2,
        "running": 2.0,
        "waiting": 1.0,
        "context_tokens": 1000.0,
        "output_left_mean": 20.0,
        "max_num_seqs": 256,
        "speed": Speed(0.01, 0.001, 0.0001, 5000.0),
        "breaker": Breaker.CLOSED,
        "slow_start": 1.0,
        "draining": False,
        "sleeping": False,
    }
    return ReplicaView(**values | changed)  # type: ignore[arg-type]


def snapshot(*views: ReplicaView, **changed: object) -> FleetSnapshot:
    values: dict[str, object] = {"as_of": 10.0, "policy": "headroom", "queued": 3, "in_flight": 2, "panic": False}
    return FleetSnapshot(**values | changed, views=views)  # type: ignore[arg-type]
