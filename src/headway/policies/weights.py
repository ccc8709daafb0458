"""The constants of the policies that `make fast` compiles: apart from them, because it must never compile a Struct."""

import msgspec


class HeadroomConfig(msgspec.Struct, frozen=True):
    """`tolerance`: relative distance from the lowest cost within which chance decides: so much may the beliefs about
    equals differ, as that of an idle one is older (more would cost sessions their prefix). `crowded`: the used share
    of a KV pool from which its memory counts."""

    tolerance: float = 0.01
    crowded: float = 0.8


class RoundRobinConfig(msgspec.Struct, frozen=True):
    """`max_models` bounds the state: the model not asked for longest starts anew."""

    max_models: int = 1024
