"""What an engine's response told about itself, apart from its bytes. A value: who reads it is `relay`."""

import msgspec

from headway.wire.shapes import Usage


class Facts(msgspec.Struct, frozen=True, gc=False):
    """What a response said about itself, for the settlement."""

    usage: Usage | None = None
    tokens: int = 0
    hit_limit: bool = False


NO_FACTS = Facts()
