import os

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedquilt[flower]'")
# Requests are answered in this process unless a test says otherwise.
os.environ["FEDQUILT_WARM"] = "0"
