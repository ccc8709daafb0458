"""Pages of real engines, and pages no engine should send (case 091, fault F13)."""

import math
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.wire import promtext
from headway.wire.promtext import read


def values(page: bytes, name: str = "m") -> list[float]:
    return [value for _, value in read(page, frozenset({name})).get(name, [])]


def test_a_recorded_page(shared: Path) -> None:
    page = (shared / "fixtures/vllm/metrics-busy.body").read_bytes()
    names = frozenset(
        {"vllm:kv_cache_usage_perc", "vllm:num_requests_waiting_by_reason", "vllm:cache_config_info", "x"}
    )
    samples = read(page, names)
    assert samples["vllm:kv_cache_usage_perc"] == [({"engine": "0", "model_name": "tiny"}, pytest.approx(0.5106382))]
    assert [labels["reason"] for labels, _ in samples["vllm:num_requests_waiting_by_reason"]] == [
        "capacity",
        "deferred",
    ]
    assert samples["vllm:cache_config_info"][0][0]["kv_cache_size_tokens"] == "1536"
    assert (samples.malformed, samples.truncated, "x" in samples) == (0, False, False)


def test_every_recorded_sample_is_read_as_the_stock_parser_does(shared: Path) -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    for file in sorted((shared / "fixtures").glob("*/metrics-*.body")):
        text = file.read_text()
        stock: dict[str, list[tuple[dict[str, str], float]]] = {}
        for family in parser.text_string_to_metric_families(text):
            for sample in family.samples:
                # the stock parser appends _total to counters that lack it (llama.cpp's)
                name = sample.name if f"\n{sample.name}" in text else sample.name.removesuffix("_total")
                stock.setdefault(name, []).append((sample.labels, sample.value))
        ours = read(file.read_bytes(), frozenset(stock))
        assert ours.malformed == 0
        for name, series in stock.items():
            key = sorted((repr(sorted(labels.items())), repr(float(value))) for labels, value in series)
            assert sorted((repr(sorted(labels.items())), repr(value)) for labels, value in ours[name]) == key


def test_names_are_whole_names_at_the_start_of_a_line() -> None:
    page = b"# HELP m m 1\n# TYPE m gauge\nm_total 1\nxm 2\n m 3\nm 4\nm{} 5\nm:x 6\nm\t7"
    assert values(page) == [4.0, 5.0, 7.0]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1.0),
        ("-0.5", -0.5),
        ("+1e-3", 0.001),
        (".5", 0.5),
        ("1e308", 1e308),
        ("1e999", math.inf),
        ("+Inf", math.inf),
        ("-Inf", -math.inf),
        ("9007199254740993", 9007199254740992.0),
        ("1 1700000000000", 1.0),
        ('1 # {trace_id="x"} 0.5', 1.0),
        ("1\r", 1.0),
    ],
)
def test_values(text: str, value: float) -> None:
    assert values(f"m {text}\n".encode()) == [value]


def test_nan_is_handed_on() -> None:
    assert math.isnan(values(b"m NaN")[0])


@pytest.mark.parametrize(
    "line",
    [
        "m",
        "m ",
        "m x",
        "m 1_000",
        "m 0x10",
        "m 1.2.3",
        "m e5",
        "m infinity",
        "m{",
        "m{}",
        'm{a="b" 1',
        'm{a="b"}1',
        "m{a=b} 1",
        'm{a="b} 1',
        'm{a="b" c="d"} 1',
        'm{="b"} 1',
        'm{"m2",a="b"} 1',
        "m{a} 1",
    ],
)
def test_malformed_lines_are_skipped_and_counted(line: str) -> None:
    samples = read(f"m 1\n{line}\nm 2\n".encode(), frozenset({"m"}))
    assert [value for _, value in samples["m"]] == [1.0, 2.0]
    assert samples.malformed == (1 if line != "m" else 0)


def test_labels_and_their_escapes() -> None:
    page = b'm{a="x\\"y\\\\z\\nw",b = "\xc3\xa9{},=" , c="",} 1\n'
    assert read(page, frozenset({"m"}))["m"] == [({"a": 'x"y\\z\nw', "b": "é{},=", "c": ""}, 1.0)]


def test_invalid_utf8_in_a_label_is_replaced() -> None:
    assert read(b'm{a="\xff"} 1', frozenset({"m"}))["m"] == [({"a": "\ufffd"}, 1.0)]


def test_duplicates_stay_in_order() -> None:
    assert values(b'm{a="1"} 1\nm{a="1"} 2\nm 3') == [1.0, 2.0, 3.0]


def test_openmetrics_with_its_end_mark() -> None:
    page = b'# TYPE m counter\nm_total{a="b"} 5.0 1.7e9\nm_created{a="b"} 1.0\n# EOF\n'
    assert values(page, "m_total") == [5.0]


def test_a_page_beyond_the_cap_is_cut_at_a_line() -> None:
    page = b"m 1\nm 23456\nm 3\n"
    samples = read(page, frozenset({"m"}), max_bytes=9)
    assert [value for _, value in samples["m"]] == [1.0]
    assert samples.truncated


def test_a_page_of_50_mb_does_no_harm() -> None:
    page = b'm{a="b"} 1\n' * 4_600_000
    began = time.process_time()
    samples = read(page, frozenset({"m", "other"}))
    assert time.process_time() - began < 1.0
    assert len(samples["m"]) == promtext.MAX_READ_BYTES // len(b'{a="b"} 1')
    assert samples.truncated


@pytest.mark.parametrize(
    "line",
    [b"m{" + b'a="b",' * 700_000, b'm{a="' + b"b" * 4_000_000, b"m{" + b" " * 4_000_000, b"m " + b"1" * 4_000_000],
)
def test_a_line_without_end_is_not_parsed(line: bytes) -> None:
    began = time.process_time()
    samples = read(b"other 1\n" + line, frozenset({"m", "other"}))
    assert time.process_time() - began < 0.1
    assert samples.truncated
    assert "m" not in samples


@pytest.mark.parametrize(
    "line",
    [
        b'm{a="b"' + b" " * 250_000 + b"x",
        b"m{" + b'a="b",' * 40_000 + b"x",
        b'm{a="' + b"\\\\" * 120_000,
        b"m" + b" " * 250_000 + b"x",
        b"m " + b"1" * 250_000 + b"x",
        b"m{" + b"a" * 250_000 + b" x",
    ],
    ids=["blanks", "labels", "escapes", "gap", "digits", "name"],
)
def test_a_long_malformed_line_costs_no_more_than_its_length(line: bytes) -> None:
    began = time.process_time()
    samples = read(line + b"\n", frozenset({"m"}))
    assert time.process_time() - began < 0.1
    assert samples.malformed == 1


@pytest.mark.parametrize("page", [b"", b"\n", b"<html>busy</html>", b"\x00" * 999, b"m", b'{"m":1}', b"\xff\xfem 1"])
def test_other_pages_have_no_samples(page: bytes) -> None:
    samples = read(page, frozenset({"m"}))
    assert samples == {}
    assert samples.malformed == 0


LABELS = st.dictionaries(st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,5}", fullmatch=True), st.text(max_size=8), max_size=3)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["m", "mm", "other"]), LABELS, st.floats(allow_nan=False)), max_size=8))
def test_what_is_written_is_read(series: list[tuple[str, dict[str, str], float]]) -> None:
    def escaped(text: str) -> str:
        return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')

    lines = []
    for name, labels, value in series:
        text = ",".join(f'{key}="{escaped(label)}"' for key, label in labels.items())
        number = {math.inf: "+Inf", -math.inf: "-Inf"}.get(value, repr(value))
        lines.append(f"{name}{{{text}}} {number}")
    samples = read("\n".join(lines).encode(errors="replace"), frozenset({"m", "other"}))
    for name in ("m", "other"):
        assert samples.get(name, []) == [(labels, value) for n, labels, value in series if n == name]


@settings(deadline=None)
@given(st.binary(max_size=80))
def test_no_page_makes_it_raise(page: bytes) -> None:
    read(b"m" + page + b"\nm{" + page, frozenset({"m"}))
