"""Form data: the model field, wherever it is."""

import pytest

from headway.wire.openai import Body, BodyError, model_edits, multipart, splice

TYPE = 'multipart/form-data; boundary="b-1"'
FILE = (
    b'--b-1\r\nContent-Disposition: form-data; name="file"; filename="model.wav"\r\nContent-Type: audio/wav\r\n\r\n'
    + b'\r\n--b-2\r\nname="model"\r\n' * 1000
    + b"\r\n"
)


def field(name: str, value: str) -> bytes:
    return f'--b-1\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()


END = b"--b-1--\r\n"


@pytest.mark.parametrize(
    "body",
    [
        field("model", "whisper") + FILE + END,
        FILE + field("stream", "true") + field("model", "whisper") + END,
        b"preamble\r\n" + FILE + field("model", "whisper") + b"--b-1--",
    ],
)
def test_the_model_is_found_and_renamed_in_place(body: bytes) -> None:
    info = multipart(body, TYPE)
    assert isinstance(info, Body), info
    assert (info.model, info.form, info.stream) == ("whisper", True, b"true" in body)
    edits = model_edits(body, info, "large", TYPE)
    assert isinstance(edits, list)
    assert splice(body, edits) == body.replace(b"whisper", b"large")


@pytest.mark.parametrize(
    "content_type",
    ["multipart/form-data; boundary=b-1", "Multipart/Form-Data;charset=utf-8; BOUNDARY=b-1 ", TYPE],
)
def test_ways_to_write_the_content_type(content_type: str) -> None:
    info = multipart(field("model", "m") + END, content_type)
    assert isinstance(info, Body)


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (FILE + END, TYPE),
        (field("model", ""), TYPE),
        (field("model", "a") + field("model", "b") + END, TYPE),
        (field("model", "m") + END, "multipart/form-data"),
        (field("model", "m") + END, "multipart/form-data; boundary=other"),
        (b'--b-1\r\nContent-Disposition: form-data; name="model"\r\n\r\nendless', TYPE),
        (b"--b-1\r\nX: " + b"x" * 9000 + b"\r\n\r\nx\r\n" + END, TYPE),
        (FILE.replace(b'"file"', b'"model"') + END, TYPE),
        (b'--b-1\r\nContent-Disposition: form-data; name="model"\r\n\r\n\xff\r\n' + END, TYPE),
        (b"", TYPE),
        (field("model", "m") + field("x", "y") * 300 + END, TYPE),
    ],
)
def test_refusals(body: bytes, content_type: str) -> None:
    error = multipart(body, content_type)
    assert isinstance(error, BodyError)
    assert error.status == 400


def test_renaming_needs_the_same_content_type() -> None:
    assert isinstance(model_edits(b"", Body(model="m", form=True), "x", ""), BodyError)
