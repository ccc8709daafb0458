"""Which URLs may be replicas."""

import ipaddress

import pytest

from headway.coordinate.validate import Refused, address_refused, leads_to, replica_url


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://10.0.0.5:8000", "http://10.0.0.5:8000"),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000"),
        ("HTTPS://GPU-1.Example.COM", "https://gpu-1.example.com"),
        ("http://host/prefix/", "http://host/prefix"),
        ("http://[::1]:8000", "http://[::1]:8000"),
        ("http://[FD00::5]/v", "http://[fd00::5]/v"),
        ("http://vllm-0.vllm.llm.svc.cluster.local:8000", "http://vllm-0.vllm.llm.svc.cluster.local:8000"),
        ("http://my_service:1", "http://my_service:1"),
        ("http://8gpu-node:8000", "http://8gpu-node:8000"),
        ("http://host:80/v1", "http://host"),
        ("https://host:443", "https://host"),
        ("https://host:80", "https://host:80"),
        ("http://[0:0::1]:80", "http://[::1]"),
        ("http://host/w\u00e9/", "http://host/w%C3%A9"),
        ("http://host/w%c3%a9", "http://host/w%C3%A9"),
        ("http://host/[a]b%2fc%7Ed", "http://host/%5Ba%5Db%2Fc~d"),
        ("http://host/a:b@c;d=1,2/..x", "http://host/a:b@c;d=1,2/..x"),
        ("http://host/%76%31", "http://host"),
    ],
)
def test_ordinary_urls_are_taken_in_one_form(text: str, url: str) -> None:
    assert replica_url(text) == url


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ftp://host", "only http"),
        ("file:///etc/passwd", "only http"),
        ("//host", "only http"),
        ("host:8000", "only http"),
        ("", "only http"),
        ("http://", "no host"),
        ("http://:8000", "no host"),
        ("http://user@host", "credentials"),
        ("http://user:secret@host", "credentials"),
        ("http://@host", "credentials"),
        ("http://host?x=1", "no query"),
        ("http://host/#f", "no query"),
        ("http://host?", "no query"),
        ("http://host:99999", "not a URL"),
        ("http://host:x", "not a URL"),
        ("http://[::1", "not a URL"),
        ("http://ho st", "blanks"),
        ("http://host\r\nX: y", "blanks"),
        ("http://host\\@evil", "blanks"),
        ("http://" + "a" * 3000, "too long"),
        ("http://host/a/../b", "oddly"),
        ("http://host/./a", "oddly"),
        ("http://host/a/%2e%2E", "oddly"),
        ("http://host/50%", "oddly"),
        ("http://host/50%zz", "oddly"),
        ("http://-x-", "not a host name"),
        ("http://h%6fst", "not a host name"),
        ("http://хост", "not a host name"),
        ("http://169.254.169.254/latest", "metadata"),
        ("http://169.254.1.1", "link-local"),
        ("http://[fe80::1]", "link-local"),
        ("http://[fe80::1%25eth0]", "link-local"),
        ("http://[fd00:ec2::254]", "metadata"),
        ("http://100.100.100.200", "metadata"),
        ("http://168.63.129.16", "metadata"),
        ("http://metadata.google.internal", "metadata"),
        ("http://METADATA.google.internal.:80", "metadata"),
        ("http://0.0.0.0:8000", "unspecified"),
        ("http://[::]", "unspecified"),
        ("http://224.0.0.1", "multicast"),
        ("http://[ff02::1]", "multicast"),
        ("http://255.255.255.255", "broadcast"),
        ("http://[::ffff:169.254.169.254]", "metadata"),
        ("http://[64:ff9b::a9fe:a9fe]", "metadata"),
        ("http://[2002:a9fe:a9fe::1]", "metadata"),
        ("http://2852039166", "unusual spelling"),
        ("http://0xA9FEA9FE", "unusual spelling"),
        ("http://0251.0376.0251.0376", "unusual spelling"),
        ("http://169.16689662", "unusual spelling"),
        ("http://127.1:8000", "unusual spelling"),
        ("http://169.254.169.254.", "unusual spelling"),
    ],
)
def test_other_urls_are_refused_with_a_reason(text: str, reason: str) -> None:
    refused = replica_url(text)
    assert isinstance(refused, Refused)
    assert reason in str(refused)


def test_a_secret_is_not_repeated_in_the_reason() -> None:
    assert "secret" not in str(replica_url("http://user:secret@host"))


@pytest.mark.parametrize("text", ["127.0.0.1", "10.1.2.3", "192.168.0.1", "::1", "fd00::1", "8.8.8.8"])
def test_loopback_private_and_public_addresses_may_be_replicas(text: str) -> None:
    assert address_refused(ipaddress.ip_address(text)) == ""


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://a:1/v1", "http://a:1"),
        ("http://a:1/v1/", "http://a:1"),
        ("http://a:1/llm/v1", "http://a:1/llm"),
        ("http://a:1/v10", "http://a:1/v10"),
        ("http://a:1/xv1", "http://a:1/xv1"),
    ],
)
def test_the_address_that_openai_clients_are_given_may_be_used(text: str, url: str) -> None:
    assert replica_url(text) == url


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/x/v1/completions/", "/v1/models", "/metrics"])
def test_a_route_is_no_engine(path: str) -> None:
    assert "leave it out" in str(replica_url(f"http://a:1{path}"))


@pytest.mark.parametrize(
    ("url", "bound", "port", "expected"),
    [
        ("http://127.0.0.1:8800", "127.0.0.1", 8800, True),
        ("http://127.0.0.1:8800/path", "127.0.0.1", 8800, True),
        ("https://127.0.0.1:8800", "127.0.0.1", 8800, True),
        ("http://127.0.0.1:8801", "127.0.0.1", 8800, False),
        ("http://localhost:7", "::1", 7, True),
        ("http://[::1]:7", "0.0.0.0, ::", 7, True),
        ("http://127.0.0.9:7", "0.0.0.0", 7, True),
        ("http://127.0.0.9:7", "127.0.0.1", 7, False),  # another program's
        ("http://[::ffff:127.0.0.1]:7", "127.0.0.1", 7, True),
        ("http://10.0.0.5:7", "10.0.0.5,10.0.0.6", 7, True),
        ("http://10.0.0.7:7", "10.0.0.5,10.0.0.6", 7, False),
        ("http://gateway.example", "Gateway.example", 80, True),
        ("https://[fd00::7]", "[fd00::7]", 443, True),
        ("http://127.0.0.1:8800", "127.0.0.1", 0, False),  # not bound
    ],
)
def test_a_port_of_our_own_is_known(url: str, bound: str, port: int, expected: bool) -> None:
    assert leads_to(url, bound, port) is expected
