"""The allowlist: what is served, and that nothing else is, however it is spelt."""

import pytest

from headway.gateway.config import INFERENCE_PATHS
from headway.gateway.routes import KNOWN_V1, Kind, Routes, is_control

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
        "/v1/" + "x" * 253, "/admin", "/api/tags", "/api/pull", "/server_info", "/update_weights", "/v1/x%00",
    ],
)  # fmt: skip
def test_everything_else_does_not_exist(path: str) -> None:
    assert ROUTES.find(path) is None


CONTROL = (
    "/sleep", "/wake_up", "/is_sleeping", "/pause", "/resume", "/reset_prefix_cache", "/reset_mm_cache",
    "/collective_rpc", "/scale_elastic_ep", "/start_profile", "/stop_profile", "/v1/load_lora_adapter",
    "/v1/unload_lora_adapter", "/load", "/server_info", "/metrics", "/init_weight_transfer_engine", "/update_weights",
    "/get_world_size", "/abort_requests", "/flush_cache", "/clear_hicache_storage_backend",
    "/hicache/storage-backend", "/freeze_gc", "/abort_request", "/start_expert_distribution_record",
    "/update_weights_from_disk", "/get_weights_by_name", "/update_weight_version", "/release_memory_occupation",
    "/resume_memory_occupation", "/slow_down", "/pause_generation", "/open_session", "/set_internal_state",
    "/configure_logging", "/v1/loads", "/get_server_info", "/health_generate", "/release_memory", "/slots/0",
    "/props", "/lora-adapters", "/models/load", "/models/unload", "/api/pull", "/api/delete", "/api/blobs/x",
    "/v2/repository/models/m/load", "/v2/cudasharedmemory/status", "/v2/logging",
)  # fmt: skip
"""What vLLM, SGLang, TensorRT-LLM, Triton, llama.cpp and Ollama do on POST beside inference."""


@pytest.mark.parametrize("path", CONTROL)
def test_no_list_opens_control_paths(path: str) -> None:
    wide = Routes(("/", "/v1/", "/v2/", "/api/", "/engine/", path, f"{path}/", "/sl%65ep"))
    assert wide.find("/sl%65ep") is None
    for spelling in (path, f"{path}/x", path.upper(), f"/engine{path}", f"/engine/v1{path}"):
        assert wide.find(spelling) is None


def test_a_wide_list_opens_the_rest() -> None:
    wide = Routes(("/",))
    for path in ("/invocations", "/v1/responses/r1/cancel", "/apply-template", "/v2/models/m/infer", "/encode"):
        assert wide.find(path) is not None
    assert not any(map(is_control, (*INFERENCE_PATHS, *KNOWN_V1)))


def test_templates_cannot_be_varied_by_clients() -> None:
    found = {route.template for n in range(1000) if (route := ROUTES.find(f"/v1/x{n}"))}
    assert found == {"/v1/*"}
