"""Sessions keep to their replica: cases 109, 110 and 158, over sockets.

What must hold: one way of naming a session for all routes; a refusal or a death moves it on without an error and keeps
it there while that lasts; nobody else's session moves because somebody makes up names.
"""

import asyncio

import pytest

from headway.core.commands import Dispatch
from headway.core.constants import BrainConfig, HealthConfig
from headway.core.events import RequestArrived
from headway.core.request import RequestInfo
from headway.gateway.identity import session_of
from tests.cases.house import House, case, gather_bounded, rounds, until
from tests.harness import scripts
from tests.harness.client import Answer, chat

PLAIN = scripts.answer()
FOUR = (PLAIN,) * 4
ROUTES: dict[str, dict[str, object]] = {
    "/v1/chat/completions": chat(),
    "/v1/completions": {"model": "m", "prompt": "hi"},
    "/v1/responses": {"model": "m", "input": "hi"},
    "/v1/messages": {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5},
    "/v1/embeddings": {"model": "m", "input": "hi"},
    "/v1/score": {"model": "m", "text_1": "a", "text_2": "b"},
}
"""What generates, and what is only passed through."""


async def turn(house: House, session: str = "", path: str = "/v1/chat/completions", **fields: object) -> str:
    """One turn of a session, named in a header unless it is empty; the replica that answered it in the end."""
    headers = {"X-Session-Id": session} if session else {}
    answer: Answer = await house.ask({**ROUTES[path], **fields}, path, headers=headers)
    assert answer.status == 200, answer.body
    asked = last(house, session).id
    sent = (c for _, commands in reversed(house.journal) for c in commands if isinstance(c, Dispatch))
    return next(command.replica_id for command in sent if command.request_id == asked)


def last(house: House, session: str = "") -> RequestInfo:
    """The last request, of a session if one is given, as the brain was told."""
    key = session_of("", session)
    requests = (event.request for event, _ in reversed(house.journal) if isinstance(event, RequestArrived))
    return next(request for request in requests if not key or request.session_key == key)


def arrived(house: House) -> str:
    """The session of the last request."""
    return last(house).session_key


@case(*FOUR)
async def test_every_route_knows_a_session_by_its_header(house: House) -> None:
    """109: the same replica for all of them, and not the same for all sessions."""
    homes = set()
    for number in range(12):
        home = await turn(house, f"s{number}")
        assert {await turn(house, f"s{number}", path) for path in ROUTES} == {home}
        homes.add(home)
    assert len(homes) > 1


@case(*FOUR)
async def test_the_body_names_a_session_where_no_header_does(house: House) -> None:
    """109: `user`, a cache key, a conversation, whichever the route has; a header goes before them."""
    named: list[tuple[str, dict[str, object]]] = [
        ("/v1/chat/completions", {"user": "s1"}),
        ("/v1/chat/completions", {"prompt_cache_key": "s1", "user": "another"}),
        ("/v1/completions", {"user": "s1"}),
        ("/v1/responses", {"conversation": "s1", "user": "another"}),
        ("/v1/messages", {"metadata": {"user_id": "s1"}}),
        ("/v1/embeddings", {"user": "s1"}),
        ("/v1/score", {"user": "s1"}),
    ]
    home = await turn(house, "s1")
    key = arrived(house)
    for path, fields in named:
        assert (await turn(house, "", path, **fields), arrived(house)) == (home, key), (path, fields)
    await turn(house, "s2", user="s1")
    assert arrived(house) not in ("", key)


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param([], id="missing"),
        pytest.param([("X-Session-Id", "")], id="empty"),
        pytest.param([("X-Session-Id", "k" * 10_000)], id="10 KB"),
        pytest.param([("X-Session-Id", "a"), ("X-Session-Id", "b")], id="twice"),
        pytest.param([("X-Session-Id", "a"), ("X-Session-Id", "a")], id="twice the same"),
    ],
)
@case(*FOUR)
async def test_a_header_that_says_nothing_leaves_it_to_the_body(house: House, lines: list[tuple[str, str]]) -> None:
    """109: no error, no session, all replicas; and the body's name counts as if there were no header."""
    for path, body in ROUTES.items():
        assert (await house.ask(body, path, headers=lines)).status == 200
        assert arrived(house) == ""
    await turn(house, user="u1")
    key = arrived(house)
    assert (await house.ask(chat(user="u1"), headers=lines)).status == 200
    assert arrived(house) == key != ""


async def homes(house: House, sessions: int = 40) -> dict[str, str]:
    """Where sessions are at home."""
    return {f"s{number}": await turn(house, f"s{number}") for number in range(sessions)}


@case(*(PLAIN,) * 3, brain=BrainConfig(health=HealthConfig(avoid_s=5.0)))
async def test_a_session_stays_where_its_first_turn_was_served(house: House) -> None:
    """110: its replica refuses, the retry lands at another, and so do the next turns; then that one dies."""
    session, owner = next((session, home) for session, home in (await homes(house)).items() if home == "r0")
    house.engines[0].then(*[scripts.error(503)] * 20)
    second = await turn(house, session)
    assert second != owner
    asked = len(house.engines[0].log.inference)
    assert [await turn(house, session) for _ in range(4)] == [second] * 4
    assert len(house.engines[0].log.inference) == asked, "who refused is left in peace"
    await house.engines[int(second[1:])].stop()
    assert await turn(house, session) not in (owner, second)


@pytest.mark.slow
@case(*(PLAIN,) * 3, brain=BrainConfig(health=HealthConfig(open_s=0.2, slow_start_s=0.2)))
async def test_only_sessions_of_the_dead_move_and_they_come_back(house: House) -> None:
    """110: the others do not notice."""
    before = await homes(house)
    await house.engines[1].stop()
    during = await homes(house)
    assert all(home == before[session] for session, home in during.items() if before[session] != "r1")
    assert "r1" not in during.values()
    await house.engines[1].start()
    house.add(house.engines[1].url, 1)
    await until(lambda: house.view(1).breaker.value == "closed" and house.view(1).slow_start == 1.0, 5.0)
    assert await homes(house) == before


@pytest.mark.slow
@case(*FOUR)
async def test_made_up_sessions_move_nobody(house: House) -> None:
    """158: while one client makes up a session for each request, those of others stay where they are."""
    before = await homes(house, 12)
    made_up = (turn(house, f"made up {number}") for number in range(rounds(100_000, 300)))
    flood = asyncio.create_task(gather_bounded(3, made_up))
    for _ in range(3):
        assert await homes(house, 12) == before
    await flood
    assert await homes(house, 12) == before
