"""Files are found, unpacked and named in errors."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from headway.compose.traces import open_workload
from headway.workload.columns import TraceError
from headway.workload.request import Workload
from headway.workload.sources import Options

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 23:59:59.0,374,44\n"
RATES = "client,timestamp,rate,cv,pattern,arg1,arg2\n0,0,0.5,1.0,Gamma,1.0,0.5\n"
TOKENS = '{"client": 0, "timestamp": 0, "input_tokens": {"10": 1.0}, "output_tokens": {"4": 1.0}}\n'


def opened(what: str | Path, options: Options | None = None) -> Workload:
    return open_workload(str(what), np.random.default_rng(1), options)


def test_plain_and_packed_files_are_equal(tmp_path: Path) -> None:
    plain, packed = tmp_path / "conv.csv", tmp_path / "conv.csv.gz"
    plain.write_text(AZURE)
    packed.write_bytes(gzip.compress(AZURE.encode()))
    assert opened(plain) == opened(packed)
    assert opened(packed).name == "conv"


def test_a_servegen_pool_is_two_files(tmp_path: Path) -> None:
    rates = tmp_path / "servegen_rates_x.csv.gz"
    rates.write_bytes(gzip.compress(RATES.encode()))
    with pytest.raises(TraceError, match=r"servegen_tokens_x\.jsonl\.gz"):
        opened(rates)
    (tmp_path / "servegen_tokens_x.jsonl.gz").write_bytes(gzip.compress(TOKENS.encode()))
    assert len(opened(rates, Options(span_s=600.0)).requests) == 300


def test_generated_workloads_go_by_name() -> None:
    assert opened("chat", Options(rate=2.0, span_s=20.0)).span_s == 20.0


@pytest.mark.parametrize(
    ("name", "content"),
    [("x.csv.gz", b"not gzip"), ("x.csv.gz", gzip.compress(b"a" * 99)[:-9]), ("x.csv", b"\xff\xfe,\xff")],
)
def test_files_that_cannot_be_read(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TraceError, match=f"{name}: cannot be read"):
        opened(tmp_path / name)
    with pytest.raises(TraceError, match="cannot be read"):
        opened(tmp_path / "absent.csv")
