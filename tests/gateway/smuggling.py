"""A corpus of requests that two HTTP readers may understand differently, and what must become of each (B1).

Written from the rules of RFC 9110 and 9112 and from published classes of request smuggling (CL.TE, TE.CL, TE.TE, CL.0,
obfuscated Transfer-Encoding, chunk-extension and line-end confusion, h2c upgrades, nominated hop-by-hop headers).
Data only; `test_smuggling` sends it in several segmentations.

The rule behind the expectations: one request is understood in exactly one way or refused, and after a refusal nothing
that followed on the connection is ever read as a request.
"""

from dataclasses import dataclass

BODY = b'{"model":"m","messages":[]}'
LENGTH = f"Content-Length: {len(BODY)}"
CHUNKED = "Transfer-Encoding: chunked"
SIZE = b"%x" % len(BODY)
PATH = "/v1/chat/completions"
BAD = frozenset({400})


@dataclass(frozen=True)
class Entry:
    """`forwards`: bodies the engine must get, in order, each answered with 200.

    `refused`: statuses one of which must then answer the rest of `data`; `closes`: and the connection ends there.
    `either`: a refusal (400 or 505) instead of all of that is right, too. `absent`: headers the engine must not see.
    """

    name: str
    data: bytes
    forwards: tuple[bytes, ...] = ()
    refused: frozenset[int] = frozenset()
    closes: bool = True
    either: bool = False
    absent: tuple[str, ...] = ()


def head(
    *lines: str | bytes, start: str | bytes = f"POST {PATH} HTTP/1.1", host: str | bytes = "Host: gateway"
) -> bytes:
    """A request head. Lines are taken as they are, an empty `host` leaves it out."""
    raw = [line if isinstance(line, bytes) else line.encode("latin-1") for line in (start, host, *lines) if line]
    return b"\r\n".join(raw) + b"\r\n\r\n"


def post(*lines: str | bytes, body: bytes = BODY, start: str | bytes = f"POST {PATH} HTTP/1.1") -> bytes:
    """A request with these lines and the body behind it, whatever they say of its length."""
    return head(*lines, start=start) + body


def chunked(body: bytes, *lines: str | bytes) -> bytes:
    """A chunked request whose body is these raw bytes."""
    return head(CHUNKED, *lines) + body


GOOD = post(LENGTH)
SMUGGLED = post("Content-Length: 20", body=b'{"model":"smuggled"}')
ONE_CHUNK = SIZE + b"\r\n" + BODY + b"\r\n0\r\n\r\n"


def refuse(name: str, data: bytes, *statuses: int, after: tuple[bytes, ...] = (), closes: bool = True) -> Entry:
    """Nothing of it may be taken for a request. Where the connection must end, a smuggled one follows, as bait."""
    return Entry(name, data + SMUGGLED if closes else data, after, frozenset(statuses) or BAD, closes)


def forward(name: str, data: bytes, *bodies: bytes, either: bool = False, absent: tuple[str, ...] = ()) -> Entry:
    """Exactly these bodies arrive."""
    return Entry(name, data, bodies or (BODY,), either=either, absent=absent)


LENGTHS = (
    refuse("length_twice", post(LENGTH, LENGTH)),
    refuse("length_twice_unequal", post(LENGTH, "Content-Length: 0")),
    refuse("length_twice_other_case", post("content-length: 0", "CONTENT-LENGTH: 27")),
    refuse("length_list", post("Content-Length: 27, 27")),
    refuse("length_list_unequal", post("Content-Length: 27, 0")),
    refuse("length_plus", post("Content-Length: +27")),
    refuse("length_minus", post("Content-Length: -1")),
    refuse("length_minus_zero", post("Content-Length: -0")),
    refuse("length_hex", post("Content-Length: 0x1b")),
    refuse("length_spaced", post("Content-Length: 2 7")),
    refuse("length_trailing_text", post("Content-Length: 27abc")),
    refuse("length_semicolon", post("Content-Length: 27;")),
    refuse("length_empty", post("Content-Length:")),
    refuse("length_fraction", post("Content-Length: 27.0")),
    refuse("length_exponent", post("Content-Length: 1e1")),
    refuse("length_underscore", post("Content-Length: 2_7")),
    refuse("length_wraps_64_bits", post(f"Content-Length: {2**64 + 27}"), 400, 413),
    refuse("length_wraps_32_bits", post(f"Content-Length: {2**32 + 27}"), 400, 413),
    refuse("length_thousand_digits", post("Content-Length: " + "9" * 1000), 400, 413),
    refuse("length_unicode_digits", post("Content-Length: \u0662\u0667".encode())),
    refuse("length_vertical_tab", post("Content-Length: \x0b27")),
    refuse("length_form_feed", post("Content-Length: 27\x0c")),
    refuse("length_nul", post("Content-Length: 27\x00")),
    refuse("length_quoted", post('Content-Length: "27"')),
    refuse("length_space_before_colon", post("Content-Length : 27")),
    refuse("length_tab_before_colon", post("Content-Length\t: 27")),
    refuse("length_folded", post("Content-Length:\r\n 27")),
    refuse("length_on_continued_line", post("X: x\r\n Content-Length: 27", LENGTH)),
    refuse("length_underscored_name", post("Content_Length: 27"), 400, 411, closes=False),
    forward("length_no_space", post("Content-Length:27")),
    forward("length_blanks_around", post("Content-Length: \t 27 \t ")),
    forward("length_leading_zeros", post("Content-Length: 0027"), either=True),
    forward("length_then_second_request", GOOD + GOOD, BODY, BODY),
)  # fmt: skip

CODINGS = (
    refuse("length_and_chunked", chunked(ONE_CHUNK, LENGTH)),
    refuse("chunked_and_length", head(LENGTH, CHUNKED) + ONE_CHUNK),
    refuse("cl_te_classic", head("Content-Length: 6", CHUNKED) + b"0\r\n\r\nG"),
    refuse("te_cl_classic", head(CHUNKED, "Content-Length: 4") + b"5c\r\nGPOST / HTTP/1.1\r\n\r\n0\r\n\r\n"),
    refuse("zero_length_and_chunked", chunked(ONE_CHUNK, "Content-Length: 0")),
    refuse("coding_x_chunked", post("Transfer-Encoding: xchunked", body=ONE_CHUNK), 400, 501),
    refuse("coding_chunked_x", post("Transfer-Encoding: chunkedx", body=ONE_CHUNK), 400, 501),
    refuse("coding_identity", post("Transfer-Encoding: identity", LENGTH), 400, 501),
    refuse("coding_chunked_identity", post("Transfer-Encoding: chunked, identity", body=ONE_CHUNK), 400, 501),
    refuse("coding_identity_chunked", post("Transfer-Encoding: identity, chunked", body=ONE_CHUNK), 400, 501),
    refuse("coding_gzip_chunked", post("Transfer-Encoding: gzip, chunked", body=ONE_CHUNK), 400, 501),
    refuse("coding_chunked_gzip", post("Transfer-Encoding: chunked, gzip", body=ONE_CHUNK), 400, 501),
    refuse("coding_chunked_twice", post("Transfer-Encoding: chunked, chunked", body=ONE_CHUNK), 400, 501),
    refuse("coding_two_lines", chunked(ONE_CHUNK, "Transfer-Encoding: identity"), 400, 501),
    refuse("coding_two_lines_reversed", head("Transfer-Encoding: cow", CHUNKED) + ONE_CHUNK, 400, 501),
    refuse("coding_two_lines_chunked", chunked(ONE_CHUNK, CHUNKED), 400, 501),
    refuse("coding_empty", post("Transfer-Encoding:", LENGTH), 400, 501),
    refuse("coding_comma", post("Transfer-Encoding: ,chunked", body=ONE_CHUNK), 400, 501),
    refuse("coding_parameter", post("Transfer-Encoding: chunked;q=1", body=ONE_CHUNK), 400, 501),
    refuse("coding_quoted", post('Transfer-Encoding: "chunked"', body=ONE_CHUNK), 400, 501),
    refuse("coding_vertical_tab", post("Transfer-Encoding: \x0bchunked", body=ONE_CHUNK), 400, 501),
    refuse("coding_trailing_vertical_tab", post("Transfer-Encoding: chunked\x0b", body=ONE_CHUNK), 400, 501),
    refuse("coding_nul", post("Transfer-Encoding: chunked\x00", body=ONE_CHUNK), 400, 501),
    refuse("coding_non_breaking_space", post("Transfer-Encoding: \xa0chunked", body=ONE_CHUNK), 400, 501),
    refuse("coding_kelvin_sign", post("Transfer-Encoding: chun\u212aed".encode(), body=ONE_CHUNK), 400, 501),
    refuse("coding_space_before_colon", post("Transfer-Encoding : chunked", body=ONE_CHUNK)),
    refuse("coding_name_with_nul", post("Transfer\x00-Encoding: chunked", LENGTH)),
    refuse("coding_name_with_blank", post("Transfer-Encoding chunked: x", LENGTH)),
    refuse("coding_behind_bare_lf", post("X: x\nTransfer-Encoding: chunked", LENGTH)),
    refuse("coding_behind_bare_cr", post("X: x\rTransfer-Encoding: chunked", LENGTH)),
    refuse("coding_behind_double_cr", post("X: x\r\r\nTransfer-Encoding: chunked", LENGTH)),
    refuse("coding_folded", post("Transfer-Encoding:\r\n chunked", body=ONE_CHUNK)),
    refuse("coding_folded_tab", post("Transfer-Encoding:\r\n\tchunked", body=ONE_CHUNK)),
    refuse("coding_on_indented_line", post(" Transfer-Encoding: chunked", LENGTH)),
    refuse("coding_in_http_1_0", post(CHUNKED, body=ONE_CHUNK, start=f"POST {PATH} HTTP/1.0")),
    forward("coding_other_case", post("Transfer-Encoding: ChUnKeD", body=ONE_CHUNK)),
    forward("coding_name_other_case", post("tRANSFER-eNCODING: chunked", body=ONE_CHUNK)),
    forward("coding_tab_before", post("Transfer-Encoding:\tchunked", body=ONE_CHUNK), either=True),
    forward("coding_underscored_name", post("Transfer_Encoding: chunked", LENGTH), either=True),
    forward("coding_te_is_not_it", post("TE: chunked", LENGTH), absent=("te",)),
)  # fmt: skip

CHUNKS = (
    forward("chunk_one", chunked(ONE_CHUNK)),
    forward("chunks_of_one", chunked(b"".join(b"1\r\n%c\r\n" % byte for byte in BODY) + b"0\r\n\r\n")),
    forward("chunk_upper_case", chunked(SIZE.upper() + b"\r\n" + BODY + b"\r\n0\r\n\r\n")),
    forward("chunk_leading_zeros", chunked(b"0000" + ONE_CHUNK), either=True),
    forward("chunk_extension", chunked(SIZE + b";name=value\r\n" + BODY + b"\r\n0;x\r\n\r\n")),
    forward("chunk_extension_quoted", chunked(SIZE + b';a="b c"\r\n' + BODY + b"\r\n0\r\n\r\n"), either=True),
    forward("chunk_last_many_zeros", chunked(ONE_CHUNK.replace(b"\r\n0\r\n", b"\r\n0000\r\n")), either=True),
    forward("chunk_then_second_request", chunked(ONE_CHUNK) + GOOD, BODY, BODY),
    forward("trailer", chunked(ONE_CHUNK[:-2] + b"X-Sum: 1\r\n\r\n"), absent=("x-sum",), either=True),
    forward("trailer_length", chunked(ONE_CHUNK[:-2] + b"Content-Length: 5\r\n\r\n") + GOOD, BODY, BODY, either=True),
    forward("trailer_coding", chunked(ONE_CHUNK[:-2] + b"Transfer-Encoding: x\r\n\r\n"), either=True),
    forward("trailer_host", chunked(ONE_CHUNK[:-2] + b"Host: evil\r\n\r\n"), either=True),
    refuse("chunk_wraps_64_bits", chunked(b"1000000000000001b\r\n" + BODY + b"\r\n0\r\n\r\n"), 400, 413),
    refuse("chunk_wraps_32_bits", chunked(b"10000001b\r\n" + BODY + b"\r\n0\r\n\r\n"), 400, 413),
    refuse("chunk_0x", chunked(b"0x" + ONE_CHUNK)),
    refuse("chunk_plus", chunked(b"+" + ONE_CHUNK)),
    refuse("chunk_minus", chunked(b"-1\r\n" + BODY + b"\r\n0\r\n\r\n")),
    refuse("chunk_underscore", chunked(b"1_b\r\n" + BODY + b"\r\n0\r\n\r\n")),
    refuse("chunk_not_hex", chunked(b"1g\r\n" + BODY + b"\r\n0\r\n\r\n")),
    refuse("chunk_leading_space", chunked(b" " + ONE_CHUNK)),
    refuse("chunk_inner_space", chunked(b"1 b\r\n" + BODY + b"\r\n0\r\n\r\n")),
    refuse("chunk_empty_size", chunked(b"\r\n" + BODY + b"\r\n0\r\n\r\n")),
    refuse("chunk_only_extension", chunked(b";x\r\n" + BODY + b"\r\n0\r\n\r\n")),
    refuse("chunk_bare_lf_after_size", chunked(SIZE + b"\n" + BODY + b"\r\n0\r\n\r\n")),
    refuse("chunk_bare_cr_after_size", chunked(SIZE + b"\rx" + BODY + b"\r\n0\r\n\r\n")),
    refuse("chunk_extension_bare_lf", chunked(SIZE + b";x\n" + BODY + b"\r\n0\r\n\r\n")),
    refuse("chunk_extension_bare_cr", chunked(SIZE + b";x\ry\r\n" + BODY + b"\r\n0\r\n\r\n")),
    refuse("chunk_extension_lf_then_request", chunked(b"5;\nAAAAA\r\n0\r\n\r\n")),
    refuse("chunk_extension_quoted_crlf", chunked(SIZE + b';x="\r\n"\r\n' + BODY + b"\r\n0\r\n\r\n")),
    refuse("chunk_extension_nul", chunked(SIZE + b";\x00\r\n" + BODY + b"\r\n0\r\n\r\n")),
    refuse("chunk_extension_huge", chunked(SIZE + b";" + b"x" * 70_000 + ONE_CHUNK[2:]), 400, 413, 431),
    refuse("chunk_longer_than_size", chunked(b"5\r\n" + BODY + b"\r\n0\r\n\r\n")),
    refuse("chunk_ended_by_lf", chunked(SIZE + b"\r\n" + BODY + b"\n0\r\n\r\n")),
    refuse("chunk_ended_by_two_bytes", chunked(SIZE + b"\r\n" + BODY + b"XX0\r\n\r\n")),
    refuse("chunk_ended_by_cr_x", chunked(SIZE + b"\r\n" + BODY + b"\rX0\r\n\r\n")),
    refuse("chunk_last_by_lf", chunked(SIZE + b"\r\n" + BODY + b"\r\n0\n\n")),
    refuse("trailer_is_a_request", chunked(ONE_CHUNK[:-2] + b"GET /v1/models HTTP/1.1\r\n\r\n")),
    refuse("trailer_folded", chunked(ONE_CHUNK[:-2] + b"X: 1\r\n 2\r\n\r\n")),
    refuse("trailer_bare_lf", chunked(ONE_CHUNK[:-2] + b"X: 1\n\r\n")),
    refuse("trailer_huge", chunked(ONE_CHUNK[:-2] + b"X: " + b"x" * 70_000 + b"\r\n\r\n"), 400, 413, 431),
)  # fmt: skip

LINES = (
    refuse("bare_lf_everywhere", GOOD.replace(b"\r\n", b"\n")),
    refuse("bare_lf_ends_head", GOOD.replace(b"\r\n\r\n", b"\r\n\n")),
    refuse("lf_cr", GOOD.replace(b"\r\n", b"\n\r")),
    refuse("bare_cr_in_start", post(LENGTH, start=f"POST {PATH}\rX HTTP/1.1")),
    refuse("leading_blank", b" " + GOOD),
    refuse("leading_nul", b"\x00" + GOOD),
    refuse("start_two_blanks", post(LENGTH, start=f"POST  {PATH} HTTP/1.1")),
    refuse("start_tab", post(LENGTH, start=f"POST\t{PATH}\tHTTP/1.1")),
    refuse("start_trailing_blank", post(LENGTH, start=f"POST {PATH} HTTP/1.1 ")),
    refuse("start_no_version", post(LENGTH, start=f"POST {PATH}")),
    refuse("start_no_target", post(LENGTH, start="POST HTTP/1.1")),
    refuse("start_two_versions", post(LENGTH, start=f"POST {PATH} HTTP/1.1 HTTP/1.1")),
    refuse("start_method_not_token", post(LENGTH, start=f"PO(ST {PATH} HTTP/1.1")),
    refuse("version_lower_case", post(LENGTH, start=f"POST {PATH} http/1.1"), 400, 505),
    refuse("version_2", post(LENGTH, start=f"POST {PATH} HTTP/2.0"), 400, 505),
    refuse("version_0_9", post(LENGTH, start=f"POST {PATH} HTTP/0.9"), 400, 505),
    refuse("version_long", post(LENGTH, start=f"POST {PATH} HTTP/1.10"), 400, 505),
    refuse("http2_preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, 505),
    refuse("tls_hello", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n"),
    refuse("target_nul", post(LENGTH, start=f"POST {PATH}\x00 HTTP/1.1")),
    refuse("target_blank", post(LENGTH, start=f"POST {PATH} x HTTP/1.1")),
    refuse("target_high_bytes", post(LENGTH, start=f"POST {PATH}\xff HTTP/1.1")),
    refuse("target_control", post(LENGTH, start=f"POST {PATH}\x7f HTTP/1.1")),
    refuse("header_nul", post(LENGTH, "X: a\x00b")),
    refuse("header_control", post(LENGTH, "X: a\x01b")),
    refuse("header_bare_cr", post(LENGTH, "X: a\rb")),
    refuse("header_no_name", post(LENGTH, ": x")),
    refuse("header_no_colon", post(LENGTH, "X")),
    refuse("header_name_not_token", post(LENGTH, "X(y): 1")),
    refuse("header_name_high_byte", post(LENGTH, "X\xff: 1")),
    refuse("header_name_blank", post(LENGTH, "X Y: 1")),
    refuse("header_folded", post(LENGTH, "X: a\r\n b")),
    refuse("header_first_line_indented", head(LENGTH, host=" Host: gateway") + BODY),
    refuse("head_too_long", post(LENGTH, "X: " + "x" * 40_000), 431),
    refuse("headers_too_many", post(LENGTH, *(f"X{i}: 1" for i in range(150))), 431),
    refuse("target_too_long", post(LENGTH, start=f"POST {PATH}?{'x' * 9000} HTTP/1.1"), 414),
    forward("leading_crlf", b"\r\n" + GOOD, either=True),
    forward("leading_crlfs", b"\r\n\r\n" + GOOD, either=True),
    forward("header_empty_value", post(LENGTH, "X:")),
    forward("header_high_bytes", post(LENGTH, "X: caf\xe9"), either=True),
    forward("version_1_2", post(LENGTH, start=f"POST {PATH} HTTP/1.2"), either=True),
)  # fmt: skip

HOSTS = (
    refuse("host_twice", post(LENGTH, "Host: evil")),
    refuse("host_twice_equal", post(LENGTH, "Host: gateway")),
    refuse("host_missing", head(LENGTH, host="") + BODY),
    refuse("host_blank_inside", head(LENGTH, host="Host: a b") + BODY),
    refuse("host_with_user", head(LENGTH, host="Host: user@gateway") + BODY),
    refuse("host_with_path", head(LENGTH, host="Host: gateway/x") + BODY),
    refuse("host_list", head(LENGTH, host="Host: gateway, evil") + BODY),
    refuse("target_authority", post(LENGTH, start="POST evil:443 HTTP/1.1"), 400, 404, closes=False),
    refuse("target_star", post(LENGTH, start="POST * HTTP/1.1"), 400, 404, 405, closes=False),
    refuse("target_relative", post(LENGTH, start="POST v1/chat/completions HTTP/1.1"), 400, 404, closes=False),
    refuse("target_other_scheme", post(LENGTH, start=f"POST ftp://gateway{PATH} HTTP/1.1"), 400, 404, closes=False),
    refuse("connect", head(start="CONNECT evil:443 HTTP/1.1"), 400, 404, 405, 501, closes=False),
    refuse("trace", head(start="TRACE / HTTP/1.1"), 400, 404, 405, 501, closes=False),
    forward("target_absolute", post(LENGTH, start=f"POST http://gateway{PATH} HTTP/1.1")),
    forward("target_absolute_other_host", post(LENGTH, start=f"POST http://evil.example{PATH} HTTP/1.1"), either=True),
    forward("host_in_http_1_0_missing", head(LENGTH, host="", start=f"POST {PATH} HTTP/1.0") + BODY, either=True),
)  # fmt: skip

HOPS = (
    forward(
        "upgrade_h2c",
        post(LENGTH, "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA"),
        absent=("upgrade", "http2-settings"),
    ),
    forward("upgrade_websocket", post(LENGTH, "Connection: Upgrade", "Upgrade: websocket"), absent=("upgrade",)),
    forward("nominated_header", post(LENGTH, "Connection: X-Internal", "X-Internal: 1"), absent=("x-internal",)),
    forward("nominated_length", post(LENGTH, "Connection: Content-Length"), either=True),
    forward("nominated_coding", chunked(ONE_CHUNK, "Connection: Transfer-Encoding"), either=True),
    forward("nominated_host", post(LENGTH, "Connection: Host"), either=True),
    forward("hop_by_hop", post(LENGTH, "Keep-Alive: 5", "Proxy-Connection: keep-alive", "TE: trailers", "Trailer: X"),
            absent=("keep-alive", "proxy-connection", "te", "trailer")),
    forward("proxy_credentials", post(LENGTH, "Proxy-Authorization: Basic eDp5"), absent=("proxy-authorization",)),
    refuse("expect_other", post(LENGTH, "Expect: 200-maybe"), 400, 417, closes=False),
)  # fmt: skip

LEFTOVERS = (
    refuse("garbage_behind", GOOD + b"\x00\x01garbage\r\n\r\n", after=(BODY,)),
    refuse("bad_request_behind", GOOD + post("Content-Length: x"), after=(BODY,)),
    Entry("body_of_unknown_path", post(f"Content-Length: {len(SMUGGLED)}", body=SMUGGLED, start="POST /no HTTP/1.1"),
          refused=frozenset({404}), closes=False),
    Entry("body_of_get", post(f"Content-Length: {len(SMUGGLED)}", body=SMUGGLED, start=f"GET {PATH} HTTP/1.1"),
          refused=frozenset({400, 404, 405}), closes=False),
    Entry("body_of_options", post(f"Content-Length: {len(SMUGGLED)}", body=SMUGGLED, start=f"OPTIONS {PATH} HTTP/1.1"),
          refused=frozenset({200, 204, 400, 404, 405}), closes=False),
    Entry("body_of_delete", post(f"Content-Length: {len(SMUGGLED)}", body=SMUGGLED, start=f"DELETE {PATH} HTTP/1.1"),
          refused=frozenset({400, 404, 405}), closes=False),
    Entry("body_that_is_no_json", post(f"Content-Length: {len(SMUGGLED)}", body=SMUGGLED), refused=BAD, closes=False),
    Entry("chunked_body_that_is_no_json", chunked(b"%x\r\n%b\r\n0\r\n\r\n" % (len(SMUGGLED), SMUGGLED)), refused=BAD,
          closes=False),
    Entry("behind_connection_close", post(LENGTH, "Connection: close") + SMUGGLED, (BODY,)),
    Entry("behind_http_1_0", post(LENGTH, start=f"POST {PATH} HTTP/1.0") + SMUGGLED, (BODY,)),
)  # fmt: skip

ENTRIES = (*LENGTHS, *CODINGS, *CHUNKS, *LINES, *HOSTS, *HOPS, *LEFTOVERS)
