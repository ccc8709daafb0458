"""Which replica has which prompt prefix in its cache: a bounded index of text blocks."""

import msgspec

from headway.core.ids import ReplicaId


class PrefixConfig(msgspec.Struct, frozen=True):
    """Constants of the prefix index. `block_bytes` is what the wire room hashes with."""

    block_bytes: int = 512
    max_blocks: int = 65536
    max_bytes: int = 64 * 1024 * 1024


class PrefixIndex:
    """Hashes of consecutive prompt blocks believed cached, per replica."""

    def __init__(self, config: PrefixConfig | None = None) -> None:
        self._config = config or PrefixConfig()

    def match(self, hashes: tuple[int, ...]) -> dict[ReplicaId, int]:
        """Consecutive leading blocks believed cached, per replica that has any worth naming."""
        return {}

    def insert(self, replica: ReplicaId, hashes: tuple[int, ...]) -> None:
        """The replica was sent a prompt of these blocks."""

    def forget(self, replica: ReplicaId) -> None:
        """The replica is gone or lost its cache."""

    def blocks(self, replica: ReplicaId) -> int:
        """Blocks believed cached at a replica."""
        return 0

    @property
    def bytes_estimate(self) -> int:
        """Memory of the index (bytes, estimated)."""
        return 0

    def trust(self, replica: ReplicaId) -> float:
        """Factor in [0, 1] by which hit forecasts of a replica are scaled."""
        return 1.0

    def correct(self, replica: ReplicaId, predicted_tokens: int, cached_tokens: int) -> None:
        """The engine measured `cached_tokens` where the index predicted `predicted_tokens` (unscaled)."""

    def resize(self, replica: ReplicaId, tokens_capacity: int, bytes_per_token: float) -> None:
        """Never believe more is cached than a KV pool of `tokens_capacity` holds."""
