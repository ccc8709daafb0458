"""The constants of the default policy: apart from it, because `make fast` compiles the policy, but never a Struct."""

import msgspec


class HeadroomConfig(msgspec.Struct, frozen=True):
    """`tolerance`: relative distance from the lowest cost within which chance decides: so much may the beliefs about
    equals differ, as that of an idle one is older (more would cost sessions their prefix). `crowded`: the used share
    of a KV pool from which its memory counts."""

    tolerance: float = 0.01
    crowded: float = 0.8
