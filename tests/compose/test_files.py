import resource

from headway.compose.files import KEPT, raise_file_limit, within_file_limit
from headway.compose.load import validate
from headway.compose.plan import Plan, make_plan
from headway.compose.registry import find
from headway.compose.source import parse


def plan(text: str) -> Plan:
    return make_plan(validate(parse(text, "f.yaml", {})), find([]))


def room(text: str, files: int) -> int:
    return within_file_limit(plan(text), files).gateway.limits.max_connections


def test_each_client_needs_two_files() -> None:
    assert room("{}", KEPT + 2000) == 1000
    assert room("replicas: [http://a, http://b]\n", KEPT + 2004) == 1000


def test_there_is_always_room_for_some() -> None:
    assert room("{}", 10) == 8


def test_what_is_stated_stays() -> None:
    assert room("limits: {max_connections: 5}\n", 100_000) == 5


def test_the_limit_is_lifted_as_far_as_it_goes() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        allowed = raise_file_limit()
        assert allowed == resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= before[0]
        assert raise_file_limit() == allowed
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before[0], resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
