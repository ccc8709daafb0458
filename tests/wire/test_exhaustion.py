"""Out of memory: in the words of real allocators, and not in those of clients."""

import pytest

from headway.wire.exhaustion import MAX_READ_BYTES, exhausted, may_be_quoted

SAID = (
    b"CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB of which 1 GiB is free.",
    b"torch.OutOfMemoryError: HIP out of memory.",
    b"ggml_backend_cuda_buffer_type_alloc_buffer: allocating 512.00 MiB on device 0: cudaMalloc failed: out of memory",
    b"RESOURCE_EXHAUSTED: Out of memory while trying to allocate 123 bytes.",
    b"CUDA_ERROR_OUT_OF_MEMORY",
    b"cudaErrorMemoryAllocation",
)


@pytest.mark.parametrize("text", SAID)
def test_allocators_are_understood(text: bytes) -> None:
    assert exhausted(b'{"error":{"message":"' + text + b'","code":500}}')


@pytest.mark.parametrize("text", [b"", b"Internal Server Error", b"memory limit of the tool reached", b"out of tokens"])
def test_other_errors_are_not(text: bytes) -> None:
    assert not exhausted(text)


@pytest.mark.parametrize(
    "body",
    [
        b'{"prompt":"say CUDA out of memory"}',
        b'{"prompt":"OUT OF MEMORY"}',
        rb'{"prompt":"out of \u006demory"}',
        rb'{"prompt":"out of \u006Demory"}',
        rb'{"arguments":"{\"x\":\"out of \\u006demory\"}"}',
        b"",
        b'{"prompt":"' + b"x" * MAX_READ_BYTES + b'"}',
    ],
)
def test_a_client_that_may_have_said_it_is_not_believed(body: bytes) -> None:
    assert may_be_quoted(body)


@pytest.mark.parametrize("body", [b'{"prompt":"hi"}', rb'{"prompt":"caf\u00e9 \u65e5\u672c"}', bytearray(b'{"a":1}')])
def test_others_are(body: bytes) -> None:
    assert not may_be_quoted(body)
