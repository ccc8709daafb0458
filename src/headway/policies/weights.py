"""The constants of the default policy: apart from it, because `make fast` compiles the policy, but never a Struct."""

import msgspec


class HeadroomConfig(msgspec.Struct, frozen=True):
    """`tolerance`: relative distance from the lowest cost within which chance decides (0: exact ties
    only; sessions then stay where their prefix is). `crowded`: the used share of a
    KV pool from which its memory counts."""

    tolerance: float = 0.0
    crowded: float = 0.8
