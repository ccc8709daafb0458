"""Formats and mappings of columns."""

import pytest

from headway.workload.columns import FORMATS, Columns, TraceError, detect, field_names, parse_columns


def test_mapping_from_the_command_line() -> None:
    assert parse_columns("arrival=t:ns,input=i:0.25,output=o:0.5,hashes=h:16,session=s:spread,tenant=w") == Columns(
        arrival="t",
        input="i",
        output="o",
        session="s",
        hashes="h",
        tenant="w",
        arrival_unit_s=1e-9,
        input_unit_tokens=0.25,
        output_unit_tokens=0.5,
        block_tokens=16,
        spread=True,
    )


@pytest.mark.parametrize(
    "text",
    [
        "arrival=t",
        "arrival=t:days,input=i,output=o",
        "input=i:x,arrival=t,output=o",
        "who=x",
        "arrival=,input=i,output=o",
        "arrival=t,input=i,output=o,hashes=h",
        "arrival=t,input=i,output=o,session=s:x",
        "arrival=t,input=i,output=o,tenant=s:1",
        "arrival=t,input=i,output=o,hashes=h:0",
        "arrival=t,input=i,output=o,hashes=h:-5",
        "arrival=t,input=i:0,output=o",
        "arrival=t,input=i:-1,output=o",
        "arrival=t,input=i,output=o:nan",
        "arrival=t,input=i,output=o:inf",
        "arrival=t,input=i,input=j,output=o",
        "nonsense",
    ],
)
def test_bad_mappings_are_refused(text: str) -> None:
    with pytest.raises(TraceError, match="column mapping"):
        parse_columns(text)


def test_known_formats_are_recognised_by_their_columns() -> None:
    for name, columns in FORMATS.items():
        assert detect(f"{columns.input},x,{columns.output},{columns.arrival}\n") == name
    assert detect('{"timestamp": 0, "input_length": 1, "output_length": 2, "hash_ids": [1]}') == "mooncake"
    assert detect("a,b,c") == ""
    assert detect("session,input,arrival,output") == "arrival=arrival,input=input,output=output,session=session"
    assert detect("arrival,input") == ""
    assert detect("") == ""


def test_names_of_a_first_line() -> None:
    assert field_names('\ufeff"a",b\r\n') == {"a", "b"}
    with pytest.raises(TraceError, match="line 1"):
        field_names('{"a":' + "[" * 100_000)
    with pytest.raises(TraceError, match="line 1"):
        field_names('{"a": ')
