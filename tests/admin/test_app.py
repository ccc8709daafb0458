import json
import re
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from headway.admin import Guard, make_app
from headway.admin.app import MAX_BODY_BYTES, REGISTER, TO, unready
from headway.admin.control import Added, NewReplica, Refused, Where
from headway.core.commands import Moved
from headway.core.ids import ReplicaId, RequestId
from headway.core.snapshot import Emptying
from headway.core.view import Breaker
from headway.telemetry import Telemetry
from tests.admin.asgi import call
from tests.admin.fakes import FakeControl
from tests.telemetry.values import access, decision, settled, snapshot, view


def app(control: FakeControl | None = None, telemetry: Telemetry | None = None) -> Guard:
    return make_app(control or FakeControl(), telemetry or Telemetry())


def test_health_and_readiness() -> None:
    control = FakeControl()
    assert call(app(control), "GET", "/healthz").status == 200
    assert call(app(control), "GET", "/readyz").json() == {"ready": True, "reason": ""}
    control.draining = True
    reply = call(app(control), "GET", "/readyz")
    assert (reply.status, reply.json()["reason"]) == (503, "draining")
    assert call(app(control), "GET", "/healthz").status == 200


def test_readiness_follows_the_fleet() -> None:
    down = view("a", breaker=Breaker.OPEN)
    assert unready(snapshot(), False) == "no replica is registered"
    assert unready(snapshot(down, view("b", draining=True), view("c", sleeping=True)), False) == "no replica is usable"
    assert unready(snapshot(down, view("b")), False) == ""
    assert unready(snapshot(down, panic=True), False) == "", "in panic every replica is used"
    assert unready(snapshot(down, view("b", breaker=Breaker.HALF_OPEN)), False) == ""


def test_metrics() -> None:
    reply = call(app(), "GET", "/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert b'headway_replica_headroom_tokens{replica="a"} 90000.0' in reply.body


def test_fleet_shows_every_view_and_the_accounts() -> None:
    telemetry = Telemetry()
    telemetry.started()
    telemetry.access(access())
    page = call(app(telemetry=telemetry), "GET", "/fleet").json()
    assert [v["spec"]["id"] for v in page["fleet"]["views"]] == ["a", "b/v1"]
    assert page["fleet"]["views"][0]["headroom_tokens"] == 90_000
    assert page["fleet"]["views"][0]["sample_age_s"] == -1
    assert page["fleet"]["queued"] == 3
    assert page["requests"]["started"] == page["requests"]["ok"] == 1
    assert page["unready"] == ""


def test_infinite_numbers_are_valid_json() -> None:
    control = FakeControl(snapshot(view("a", headroom_tokens=float("inf"))))
    assert call(app(control), "GET", "/fleet").json()["fleet"]["views"][0]["headroom_tokens"] is None


def test_explain() -> None:
    telemetry = Telemetry()
    telemetry.record(decision("r1"))
    telemetry.record(settled("r1"))
    explanation = call(app(telemetry=telemetry), "GET", "/requests/r1/explain").json()
    (attempt,) = explanation["attempts"]
    assert attempt["decision"]["candidates"][0]["costs"] == [1.0, 0.4, 0.6]
    assert attempt["settled"]["outcome"]["output_tokens"] == 60
    assert call(app(), "GET", "/requests/r1/explain").status == 404
    assert call(app(telemetry=telemetry), "GET", "/requests").json()[0]["id"] == "r1"


def test_replicas_are_listed_added_removed() -> None:
    control = FakeControl()
    assert [r["replica"]["id"] for r in call(app(control), "GET", "/replicas").json()] == ["a", "b/v1"]
    body = json.dumps({"url": "http://c:8000", "weight": 2}).encode()
    reply = call(app(control), "POST", "/replicas", body=body)
    assert (reply.status, reply.json()["id"]) == (201, "c")
    assert control.added[0].weight == 2.0
    assert call(app(control), "DELETE", "/replicas/a").status == 204
    assert call(app(control), "DELETE", "/replicas/zzz").status == 404
    assert control.removed == ["a", "zzz"]


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"", 400, "truncated"),
        (b"[1]", 400, "Expected `object`"),
        (b"{}", 400, "missing required field `url`"),
        (b'{"url": 5}', 400, "Expected `str`"),
        (b'{"url": "http://a", "colour": 1}', 400, "unknown field `colour`"),
        (b'{"url": "http://169.254.169.254/"}', 400, "link-local"),
        (b'{"url": "http://a", "weight": 0}', 400, "$.weight"),
        (b'{"url": "http://a", "weight": 1e999}', 400, "out of range"),
        (b'{"url": "http://a", "weight": 1e308}', 400, "$.weight"),
        (b'{"url": "http://a", "gpu_count": -1}', 400, "$.gpu_count"),
        (b'{"url": "http://a", "kv_capacity_tokens": -5}', 400, "$.kv_capacity_tokens"),
        (b'{"url": "http://a", "max_num_seqs": 99999999999999999999}', 400, "$.max_num_seqs"),
        (b'{"url": "http://a", "model": "a\\u001b[2J"}', 400, "$.model"),
        (b'{"url": "http://a", "version": "1\\n"}', 400, "$.version"),
        (b'{"url": "http://a", "labels": {"a\\u0007": "b"}}', 400, "$.labels"),
        (b'{"url": "http://a", "gpu": "%b"}' % (b"x" * 513), 400, "$.gpu"),
        (b" " * (MAX_BODY_BYTES + 1), 413, "at most"),
    ],
)
def test_bad_registrations_are_refused(body: bytes, status: int, words: str) -> None:
    control = FakeControl()
    reply = call(app(control), "POST", "/replicas", body=body)
    assert reply.status == status
    assert words in reply.json()["error"]["message"]
    assert not control.added


def test_drain_and_undrain_even_where_the_id_has_a_slash() -> None:
    control = FakeControl()
    told = call(app(control), "POST", "/replicas/b/v1/drain").json()
    assert told == {"id": "b/v1", "draining": True, "emptying": None}
    assert call(app(control), "POST", "/replicas/b%2Fv1/undrain").status == 200
    assert call(app(control), "POST", "/replicas/zzz/drain").status == 404
    assert control.drained == [("b/v1", True), ("b/v1", False), ("zzz", True)]


def test_openapi_describes_every_route() -> None:
    page = call(app(), "GET", "/openapi.json").json()
    assert page["openapi"].startswith("3.1")
    assert set(page["paths"]["/replicas"]) == {"get", "post"}
    assert page["paths"]["/replicas/{id}/drain"]["post"]["parameters"][0]["name"] == "id"
    assert page["paths"]["/healthz"]["get"]["security"] == []
    assert "url" in page["components"]["schemas"]["NewReplica"]["required"]
    assert ":path" not in msgspec.json.encode(page).decode()


def test_openapi_says_what_each_status_has_for_a_body() -> None:
    page = call(app(), "GET", "/openapi.json").json()
    paths, schemas = page["paths"], page["components"]["schemas"]
    assert "content" not in paths["/replicas/{id}"]["delete"]["responses"]["204"]
    migrate = paths["/requests/{id}/migrate"]["post"]
    assert set(migrate["responses"]) == {"200", "400", "401", "403", "404", "409", "413"}
    assert not migrate["requestBody"]["required"]
    assert paths["/replicas"]["post"]["requestBody"]["required"]
    assert set(paths["/healthz"]["get"]["responses"]) == {"200"}
    assert "headroom_tokens" in schemas["FleetSnapshot"]["properties"]["views"]["items"]["properties"]
    named = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(paths)))
    assert {"Failed", "Fleet", "Explanation", "Moves", "Registered", "Added", "Draining"} <= named <= set(schemas)


@pytest.mark.parametrize(
    ("method", "path"), [("GET", "/nothing"), ("POST", "/fleet"), ("GET", "/fleet/"), ("PUT", "/")]
)
def test_what_does_not_exist_is_told_in_json(method: str, path: str) -> None:
    reply = call(app(), method, path)
    assert reply.headers["content-type"] == "application/json"
    assert reply.json()["error"]["code"] == reply.status
    assert (reply.status == 405) is ("allow" in reply.headers)


def test_a_fault_of_ours_is_told_in_json() -> None:
    class Broken(FakeControl):
        async def add(self, replica: NewReplica) -> Added | Refused:
            raise TypeError("at odds")

    reply = call(app(Broken()), "POST", "/replicas", body=REGISTER.encode(), raises=(TypeError,))
    assert (reply.status, reply.json()["error"]["code"]) == (500, 500)


def test_the_page_loads_nothing_from_anywhere() -> None:
    reply = call(app(), "GET", "/")
    html = reply.body.decode()
    assert "/replicas/{id}/undrain" in html
    assert "src=" not in html
    assert "http://127.0.0.1:8801" in html
    assert "&quot;to&quot;: &quot;10.0.0.7:8000&quot;" in html
    assert "# optional: </pre>" not in html
    assert "https://" not in html
    assert "default-src 'none'" in reply.headers["content-security-policy"]


def test_examples_on_the_page_can_be_sent() -> None:
    """To the address that the page was asked at, with a body that is taken."""
    page = call(app(), "GET", "/", host="localhost:9").body.decode()
    assert "curl -X GET http://localhost:9/fleet" in page
    assert msgspec.json.decode(REGISTER, type=NewReplica).url
    assert msgspec.json.decode(TO, type=Where).to


def test_unknown_paths_and_methods() -> None:
    assert call(app(), "GET", "/nothing").status == 404
    assert call(app(), "GET", "/fleet/").status == 404
    assert call(app(), "POST", "/fleet").status == 405
    assert call(app(), "HEAD", "/fleet").status == 200


def test_a_drain_says_when_the_replica_will_be_empty() -> None:
    control = FakeControl()
    forecast = Emptying(ReplicaId("b/v1"), 18, 17, 3.5, 48.0)
    control.fleet = msgspec.structs.replace(control.fleet, emptying=(forecast,))
    told = call(app(control), "POST", "/replicas/b/v1/drain").json()["emptying"]
    assert (told["requests"], told["movable"], told["moving_s"], told["waiting_s"]) == (18, 17, 3.5, 48.0)


def test_a_running_request_is_explained_by_the_clients_own_id() -> None:
    """As it can be moved by it: what it is called by is written down for good when it has ended."""
    control, telemetry = FakeControl(), Telemetry()
    telemetry.record(decision("r1"))
    assert call(app(control, telemetry), "GET", "/requests/theirs/explain").status == 404
    control.names["theirs"] = "r1"
    assert call(app(control, telemetry), "GET", "/requests/theirs/explain").json()["request_id"] == "r1"
    telemetry.decisions.named(("theirs", "r1"))
    control.names["theirs"] = "r2"  # it was used again, and waits
    assert call(app(control, telemetry), "GET", "/requests/theirs/explain").json()["request_id"] == "r1"


def test_an_id_of_the_clients_may_have_slashes() -> None:
    control, telemetry = FakeControl(), Telemetry()
    telemetry.record(decision("r1"))
    name = 'dup/?&"x#1'
    control.names[name] = "r1"
    path = f"/requests/{quote(name, safe='')}"
    assert call(app(control, telemetry), "GET", f"{path}/explain").json()["request_id"] == "r1"
    assert call(app(control, telemetry), "POST", f"{path}/migrate").status == 404
    assert control.moved == [(name, "")]


def moved(result: str, **more: Any) -> Moved:
    return Moved(1.0, RequestId("r1"), ReplicaId("a"), ReplicaId("b/v1"), "operator", result, **more)


def test_a_running_request_is_moved() -> None:
    control, telemetry = FakeControl(), Telemetry()
    telemetry.record(decision("r1"))
    telemetry.record(moved("begun", replayed_tokens=9))
    made = call(app(control, telemetry), "POST", "/requests/r1/migrate", body=b'{"to":"b/v1"}')
    assert (made.status, made.json()["moves"][-1]["replayed_tokens"]) == (200, 9)
    assert control.moved == [("r1", "b/v1")]
    telemetry.record(moved("refused"))
    assert call(app(control, telemetry), "POST", "/requests/r1/migrate", body=b"").status == 409
    assert control.moved[-1] == ("r1", "")


def test_a_move_asked_for_by_the_clients_own_id_is_told_of() -> None:
    """While the request runs, what is known of it stands under ours."""
    telemetry = Telemetry()
    telemetry.record(decision("r1"))
    telemetry.record(moved("begun"))
    told = call(app(telemetry=telemetry), "POST", "/requests/the-clients-own/migrate", body=b"{}").json()
    assert (told["id"], told["moves"][-1]["result"]) == ("r1", "begun")


@pytest.mark.parametrize(
    ("request_id", "body", "status"),
    [("x1", b"{}", 404), ("r1", b'{"to":"z"}', 404), ("r1", b'{"from":"z"}', 400), ("r1", b" " * 70_000, 413)],
)
def test_a_move_that_is_not_asked_well(request_id: str, body: bytes, status: int) -> None:
    assert call(app(), "POST", f"/requests/{request_id}/migrate", body=body).status == status


def test_explanations_show_moves_and_what_they_began() -> None:
    telemetry = Telemetry()
    telemetry.record(decision("r1"))
    telemetry.record(moved("cut"))
    telemetry.record(settled("r1", attempt=2))
    page = call(app(telemetry=telemetry), "GET", "/requests/r1/explain").json()
    assert [move["result"] for move in page["moves"]] == ["cut"]
    assert [entry["attempt_id"] for entry in page["settled"]] == ["r1-2"]
