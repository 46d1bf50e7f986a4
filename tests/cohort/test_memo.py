"""Values derived from immutable data are computed once."""

from __future__ import annotations

from fedquilt.cohort.memo import Memo


class Pair(Memo):
    """Two numbers."""

    def __init__(self, a: int, b: int) -> None:
        self.a, self.b = a, b


def test_a_value_is_computed_once_for_each_object_and_name() -> None:
    computed: list[int] = []

    def total(pair: Pair) -> int:
        computed.append(pair.a)
        return pair.a + pair.b

    one, two = Pair(1, 2), Pair(3, 4)
    assert [one.once("sum", total), one.once("sum", total), two.once("sum", total)] == [3, 3, 7]
    assert one.once(("sum", "again"), total) == 3
    assert computed == [1, 3, 1]


def test_a_preset_value_is_not_computed() -> None:
    pair = Pair(1, 2)
    pair.preset("sum", 10)
    assert pair.once("sum", lambda _: 1 // 0) == 10
