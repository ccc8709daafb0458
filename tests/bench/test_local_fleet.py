"""What a local fleet is started with. Starting it for real is tests/cli/test_demo."""

from pathlib import Path

from headway.bench import local_fleet
from headway.bench.demo import FLEET
from headway.bench.local_fleet import Address
from headway.compose.settings import Settings


def test_the_gateways_settings_are_valid() -> None:
    replicas = [Address(replica.name, f"http://127.0.0.1:{9000 + n}") for n, replica in enumerate(FLEET.replicas)]
    settings = Settings.model_validate(local_fleet._settings(FLEET, "round_robin", replicas, 1234, 1235))
    assert settings.policy.name == "round_robin"
    assert [replica.gpu for replica in settings.replicas] == ["h100-80gb", "h100-80gb", "a100-40gb", "a100-40gb"]
    assert settings.replicas[0].labels == {"name": "h100-a"}
    assert (settings.listen.port, settings.admin.port) == (1234, 1235)


def test_free_ports_differ() -> None:
    assert len(set(local_fleet._free_ports(5))) == 5


def test_a_port_is_read_once_it_is_written(tmp_path: Path) -> None:
    ready = tmp_path / "x.ready"
    assert local_fleet._port_in(ready) == 0
    ready.write_text('{"po')
    assert local_fleet._port_in(ready) == 0
    ready.write_text('{"port": 9000, "control_port": 9001}')
    assert local_fleet._port_in(ready) == 9000
