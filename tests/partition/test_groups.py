from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedquilt.partition.groups import groups


@given(st.lists(st.integers(0, 4), max_size=30))
def test_each_label_has_its_indices_in_rising_order(labels: list[int]) -> None:
    found = groups(np.array(labels, dtype=np.int64), 5)
    assert [held.tolist() for held in found] == [
        [place for place, label in enumerate(labels) if label == wanted] for wanted in range(5)
    ]
