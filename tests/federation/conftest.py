import os

import pytest

pytest.importorskip("flwr", reason="needs Flower: pip install 'fedquilt[flower]'")
# Requests are answered in this process unless a test says otherwise.
os.environ["FEDQUILT_WARM"] = "0"


@pytest.fixture(autouse=True, scope="session")
def outlive_parents() -> None:
    """This process is no ClientApp that ends with the one that started it."""
    from fedquilt.federation import client_app

    client_app.exit_with_parent = lambda: None  # type: ignore[assignment]
