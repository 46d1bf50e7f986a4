"""Hyperparameter search by validation only. Importing this needs Optuna: pip install 'fedquilt[tune]'."""

from fedquilt.errors import FedquiltError

try:
    import optuna  # noqa: F401  (first, so that the error is one sentence where it is missing)
except ImportError:
    raise FedquiltError("Tuning needs Optuna; install it with: pip install 'fedquilt[tune]'.") from None

from fedquilt.tuning.outcome import Trial, Tuned
from fedquilt.tuning.progress import SearchProgress
from fedquilt.tuning.search import Search, tune

__all__ = ["Search", "SearchProgress", "Trial", "Tuned", "tune"]
