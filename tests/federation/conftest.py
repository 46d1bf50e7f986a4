import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedquilt[flower]'")
