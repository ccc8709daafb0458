"""The allowlist: what is served, and that nothing else is, however it is spelt."""

import pytest

from headway.gateway.config import INFERENCE_PATHS
from headway.gateway.routes import Kind, Routes

ROUTES = Routes(INFERENCE_PATHS)


@pytest.mark.parametrize(
    ("path", "template"),
    [
        ("/v1/chat/completions", "/v1/chat/completions"),
        ("/v1/audio/transcriptions", "/v1/audio/transcriptions"),
        ("/v1/some/new-thing", "/v1/*"),
        ("/tokenize", "/tokenize"),
        ("/api/chat", "/api/chat"),
        ("/inference/v1/generate", "/inference/v1/generate"),
    ],
)
def test_inference_paths(path: str, template: str) -> None:
    route = ROUTES.find(path)
    assert route is not None
    assert (route.kind, route.template, route.methods) == (Kind.INFERENCE, template, ("POST",))


def test_own_paths() -> None:
    kinds = {path: route.kind for path in ("/v1/models", "/v1/models/org/m", "/health") if (route := ROUTES.find(path))}
    assert kinds == {"/v1/models": Kind.MODELS, "/v1/models/org/m": Kind.MODEL, "/health": Kind.HEALTH}


@pytest.mark.parametrize(
    "path",
    [
        "/", "/v1", "/v1/", "//v1/chat/completions", "/v1//chat", "/v1/../sleep", "/v1/./x", "/v1/%2e%2e/sleep",
        "/V1/x",
        "/v1/x/", "/v1/..", "/v1/x/..", "/v1/a..b/../c", "/sleep", "/wake_up", "/abort_request", "/flush_cache",
        "/metrics",
        "/v1/load_lora_adapter", "/v1/Load_Lora_Adapter", "/v1/unload_lora_adapter", "/v1/loads", "/slots/0", "/props",
        "/tokenize/", "/tokenize/x", "/Tokenize", "/v1\\x", "/v1/x;y", "/v1/%63hat/completions", "/v1/models/",
        "/admin", "/api/tags", "/api/pull", "/server_info", "/update_weights", "/v1/x%00",
    ],
)  # fmt: skip
def test_everything_else_does_not_exist(path: str) -> None:
    assert ROUTES.find(path) is None


def test_templates_cannot_be_varied_by_clients() -> None:
    found = {route.template for n in range(1000) if (route := ROUTES.find(f"/v1/x{n}"))}
    assert found == {"/v1/*"}
