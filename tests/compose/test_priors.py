import msgspec

from headway.compose.priors import features
from headway.core.ids import ReplicaId
from headway.core.replica import ReplicaSpec

SPEC = ReplicaSpec(ReplicaId("a"), "http://a", model="llama-3.1-8b", gpu="h100-80gb")


def test_a_known_gpu_gives_priors_of_speed() -> None:
    known = features(SPEC)
    assert set(known) == {"prefill_tokens_per_s", "step_base_s", "step_per_request_s", "step_per_token_s"}
    assert known["prefill_tokens_per_s"] > 1000


def test_the_slower_card_is_expected_to_be_slower() -> None:
    slower = features(msgspec.structs.replace(SPEC, gpu="l4"))
    assert slower["prefill_tokens_per_s"] < features(SPEC)["prefill_tokens_per_s"]
    assert slower["step_base_s"] > features(SPEC)["step_base_s"]


def test_what_is_not_known_gives_none() -> None:
    assert features(msgspec.structs.replace(SPEC, model="my-own")) == {}
    assert features(msgspec.structs.replace(SPEC, gpu="my-own")) == {}
    assert features(msgspec.structs.replace(SPEC, gpu="")) == {}
    assert features(msgspec.structs.replace(SPEC, model="")) == {}


def test_what_is_stated_stays() -> None:
    assert features(msgspec.structs.replace(SPEC, features={"step_base_s": 1.0})) == {"step_base_s": 1.0}
