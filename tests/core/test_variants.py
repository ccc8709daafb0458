"""What a public name stands for, who may serve it, and what the client is told."""

import pytest

from headway.core.commands import Abort, Dispatch, Hold, Reject
from headway.core.constants import BrainConfig, SchedulerConfig
from headway.core.events import DrainAsked, ProbeFailed, ReplicasChanged, TenantsChanged
from headway.core.ids import ReplicaId
from headway.core.outcome import OutcomeKind
from headway.core.precision import EIGHT, FOUR, FULL
from headway.core.replica import ReplicaSpec
from headway.core.tenant import Tenant
from headway.core.variants import HEADER, Variants, with_floor
from tests.core.house import Fixed, House, decision, only, request, sent_to, spec

ONE_EACH = BrainConfig(scheduler=SchedulerConfig(max_in_flight=1))


def stands_for(*specs: ReplicaSpec, name: str = "m") -> Variants:
    variants = Variants()
    variants.reset(name, specs)
    return variants


def variant(name: str, precision: str, place: int = 0) -> ReplicaSpec:
    return spec(name, precision=precision, variants={"m": place})


def mixed(policy: object | None = None, config: BrainConfig | None = None, **precisions: str) -> House:
    """A house with one replica of each precision, by name; bf16 and fp8 if nothing is said."""
    house = House(policy, config)
    for name, precision in (precisions or {"a": "bf16", "b": "fp8"}).items():
        house.add(name, precision=precision)
    return house


def refusal(commands: list[object]) -> Reject:
    (found,) = only(commands, Reject)  # type: ignore[arg-type]
    return found


# -- what a name stands for ------------------------------------------------------------------------------------


def test_without_an_order_a_name_stands_for_the_best_there_is() -> None:
    assert stands_for(spec("a", precision="fp8"), spec("b", precision="bf16")).nominal == FULL
    assert stands_for(spec("a", precision="fp8"), spec("b", precision="Q4_K")).nominal == EIGHT
    assert stands_for().nominal == 0


def test_with_an_order_it_stands_for_the_most_wanted() -> None:
    assert stands_for(variant("a", "fp8"), variant("b", "bf16", 1)).nominal == EIGHT
    assert stands_for(variant("a", "int4"), variant("b", "bf16"), variant("c", "fp8", 1)).nominal == FULL


def test_the_most_wanted_of_several_is_unquantised_if_it_does_not_say() -> None:
    variants = stands_for(variant("a", ""), variant("b", "fp8", 1))
    assert (variants.nominal, variants.lowest, variants.highest) == (FULL, EIGHT, FULL)
    assert not variants.uniform


def test_who_does_not_say_counts_as_what_the_name_stands_for() -> None:
    assert stands_for(spec("a", precision="fp8"), spec("b")).uniform
    assert stands_for(spec("a"), spec("b")).uniform


def test_what_was_listed_first_is_remembered_while_it_is_away() -> None:
    variants = stands_for(variant("a", "bf16"), variant("b", "fp8", 1))
    variants.reset("m", [variant("b", "fp8", 1)])
    assert (variants.nominal, variants.highest, variants.uniform) == (FULL, EIGHT, False)
    variants.reset("m", [variant("a", "fp8"), variant("b", "fp8", 1)])
    assert variants.nominal == EIGHT, "the most wanted is served in another precision now"


def test_without_an_order_nothing_is_remembered() -> None:
    variants = stands_for(spec("a", precision="bf16"), spec("b", precision="fp8"))
    variants.reset("m", [spec("b", precision="fp8")])
    assert (variants.nominal, variants.uniform, variants.lasting) == (EIGHT, True, False)


def test_floors_have_few_names() -> None:
    assert with_floor(request("r", precision_floor="float16")).precision_floor == "bf16"
    assert with_floor(request("r", precision_floor="int8")).precision_floor == "fp8"
    assert with_floor(request("r", precision_floor="nonsense")).precision_floor == "nonsense"


# -- who serves a request --------------------------------------------------------------------------------------


def test_nobody_descends_without_consent() -> None:
    house = mixed(Fixed({"a": 9.0, "b": 1.0}))
    out = house.ask("r1")
    assert sent_to(out) == "a"
    assert only(out, Dispatch)[0].disclosed == ()
    house.tell(DrainAsked(house.now, ReplicaId("a")))
    assert refusal(house.ask("r2")).code == "no_replica"


def test_whoever_consents_descends_and_is_told() -> None:
    house = mixed(Fixed({"a": 9.0, "b": 1.0, "c": 0.5}), a="bf16", b="fp8", c="awq")
    out = house.ask("r1", precision_floor="int8")
    assert sent_to(out) == "b"
    assert only(out, Dispatch)[0].disclosed == ((HEADER, "fp8"),)
    assert only(house.ask("r2", precision_floor="any"), Dispatch)[0].disclosed == ((HEADER, "int4"),)


def test_rising_is_free_and_not_worth_a_word() -> None:
    house = House(Fixed({"a": 1.0, "b": 9.0}))
    house.tell(ReplicasChanged(0.0, (variant("a", "bf16", 1), variant("b", "fp8"))))
    house.add("a", precision="bf16", variants={"m": 1})
    house.add("b", precision="fp8", variants={"m": 0})
    out = house.ask("r1")
    assert sent_to(out) == "a", "the name stands for fp8, and bf16 is better"
    assert only(out, Dispatch)[0].disclosed == ()
    assert sent_to(house.ask("r2", precision_floor="bf16")) == "a"


def test_a_precision_that_nobody_has_is_the_clients_error() -> None:
    house = mixed(a="fp8", b="fp8")
    said = refusal(house.ask("r1", precision_floor="bf16"))
    assert (said.status, said.code) == (400, "precision_unavailable")
    assert "bf16" in said.message
    assert "fp8" in said.message
    assert refusal(house.ask("r2", precision_floor="fine")).code == "precision_unavailable"
    assert sent_to(house.ask("r3", precision_floor="fp8"))


def test_a_precision_is_unavailable_where_none_is_known() -> None:
    house = mixed(a="", b="")
    said = refusal(house.ask("r1", precision_floor="bf16"))
    assert (said.status, said.code) == (400, "precision_unavailable")


def test_the_tenants_floor_holds_where_the_request_states_none() -> None:
    house = mixed(Fixed({"a": 9.0, "b": 1.0}))
    house.tell(TenantsChanged(0.0, (Tenant("t", precision_floor="fp8"),)))
    assert sent_to(house.ask("r1", tenant="t")) == "b"
    assert sent_to(house.ask("r2", tenant="t", precision_floor="bf16")) == "a"
    assert sent_to(house.ask("r3", tenant="u")) == "a"


def test_who_waits_for_one_precision_blocks_nobody_else() -> None:
    house = mixed(config=ONE_EACH)
    assert sent_to(house.ask("r1")) == "a"
    assert only(house.ask("r2"), Hold)
    assert sent_to(house.ask("r3", precision_floor="fp8")) == "b"
    assert only(house.ask("r4", precision_floor="fp8"), Hold)
    assert sent_to(house.end("r3-0")) == "b"
    assert sent_to(house.end("r1-0")) == "a"


def test_held_requests_of_a_precision_that_leaves_wait_for_its_return() -> None:
    house = mixed(config=ONE_EACH)
    house.ask("r1")
    assert only(house.ask("r2"), Hold)
    house.tell(ReplicasChanged(house.now, (variant("a", "bf16"), variant("b", "fp8", 1))))
    out = house.tell(ReplicasChanged(house.now, removed=(ReplicaId("a"),)))
    assert sent_to(out) is None
    assert [abort.attempt_id for abort in only(out, Abort)] == ["r1-0"]
    out = house.end("r1-0", OutcomeKind.RESET)
    assert sent_to(out) is None
    assert refusal(out).status == 502, "no retry descends"
    assert sent_to(house.add("c", precision="bf16", variants={"m": 0})) == "c"


def test_a_name_that_was_gone_still_stands_for_what_it_stood_for() -> None:
    house = House()
    house.add("a", precision="bf16", variants={"m": 0})
    house.tell(ReplicasChanged(house.now, removed=(ReplicaId("a"),)))
    house.add("b", precision="fp8", variants={"m": 1})
    assert refusal(house.ask("r1")).code == "precision_unavailable"


def test_the_last_replica_of_a_precision_is_never_ejected() -> None:
    house = mixed(Fixed({"a": 1.0, "b": 1.0}))
    for number in range(3):
        house.ask(f"r{number}")
        house.end(f"r{number}-0", OutcomeKind.SERVER_ERROR, status=500)
    assert house.view("a").breaker.value == "open"
    assert sent_to(house.ask("r9")) == "a"


@pytest.mark.parametrize(("floor", "longest"), [("", 1000), ("fp8", 5000)])
def test_lengths_are_those_of_whoever_may_serve_it(floor: str, longest: int) -> None:
    house = House()
    house.add("a", precision="bf16", max_model_tokens=1000)
    house.add("b", precision="fp8", max_model_tokens=5000)
    assert sent_to(house.ask("r1", prompt_tokens=longest - 10, precision_floor=floor))
    said = refusal(house.ask("r2", prompt_tokens=longest + 10, precision_floor=floor))
    assert said.code == "context_length_exceeded"
    assert f"{longest} tokens" in said.message


def test_models_of_one_precision_are_one_pool() -> None:
    house = mixed(a="fp8", b="int8", c="")
    pool = house.brain._scheduler.pools["m"]
    assert pool.above == {}
    assert pool.reaching("") is pool
    assert pool.reaching("int4") is pool
    assert decision(house.ask("r1")).exclusions == {}


def test_pools_follow_the_fleet() -> None:
    house = mixed(a="bf16", b="fp8", c="int4")
    pool = house.brain._scheduler.pools["m"]
    assert sorted(pool.above) == [EIGHT, FULL]
    before = pool.above[FULL]
    house.add("d", precision="bf16")
    assert pool.above[FULL] is before
    house.ask("r1")
    assert [view.id for view in before.candidates] == ["a", "d"]
    house.tell(ReplicasChanged(house.now, removed=(ReplicaId("c"),)))
    assert sorted(pool.above) == [FULL]
    house.tell(ProbeFailed(house.now, ReplicaId("a"), refused=True))
    house.ask("r2")
    assert [view.id for view in before.candidates] == ["d"]
    assert pool.reaching("bf16") is before
    assert FOUR < EIGHT < FULL
