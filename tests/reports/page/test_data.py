from __future__ import annotations

import pytest

from fedquilt.errors import FedquiltError
from fedquilt.reports.page.data import PageCell


def test_an_unknown_tone_is_refused() -> None:
    with pytest.raises(FedquiltError, match="There is no tone 'bset'; did you mean 'best'"):
        PageCell("x", tone="bset")
