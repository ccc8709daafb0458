"""TGI: a batch's largest length is what it takes from the pool."""

from headway.core.ids import ReplicaId
from headway.engines.tgi import INFO, PAGE, PLUGIN
from tests.engines import pages

TGI = PLUGIN.factory(None)


def test_a_page() -> None:
    reading = TGI.read({PAGE: pages.TGI.encode()}, ReplicaId("r"), "m", 5.0, 9)
    sample = reading.sample
    assert (sample.kv_used_tokens, sample.running, sample.waiting, reading.missing) == (1234, 3, 7, ())


def test_before_the_first_batch_gauges_are_missing() -> None:
    reading = TGI.read({PAGE: b"tgi_queue_size 0\n"}, ReplicaId("r"), "m", 5.0, 9)
    assert (reading.sample.waiting, reading.sample.running) == (0, None)
    assert reading.missing == ("tgi_batch_current_max_tokens", "tgi_batch_current_size")


def test_it_is_known_by_its_limits() -> None:
    info = (
        b'{"model_id":"m","max_total_tokens":4096,"max_batch_total_tokens":16000,"version":"3.3","model_dtype":"f16"}'
    )
    facts = TGI.detect({INFO: info})
    assert (facts.engine, facts.models, facts.max_model_tokens, facts.kv_capacity_tokens) == (
        "tgi",
        ("m",),
        4096,
        16000,
    )
    assert (facts.version, facts.precision) == ("3.3", "f16")
    assert TGI.detect({INFO: b'{"model_id":"m"}'}) is None
    assert TGI.detect({}) is None
