"""What methods and metrics are called in figures, tables and pages, and how to read a metric."""

from __future__ import annotations

from dataclasses import dataclass

# The signs by which every table says how a number stands to a published one, here and in studies.
EXCEEDED_SIGN, REACHED_SIGN, MISSED_SIGN = "▲", "≈", "▼"


@dataclass(frozen=True)
class MetricName:
    """How readers know a metric: its title inside a sentence, whether it is a percentage, and its direction."""

    title: str
    percent: bool = True
    higher_is_better: bool = True

    @property
    def heading(self) -> str:
        """The title with a capital letter: "Accuracy"."""
        return f"{self.title[:1].upper()}{self.title[1:]}"

    @property
    def label(self) -> str:
        """An axis label: "Accuracy (%)"."""
        return f"{self.heading} (%)" if self.percent else self.heading

    @property
    def unit(self) -> str:
        """What follows a value: a space and a percent sign, or nothing."""
        return "\u00a0%" if self.percent else ""


# As the tasks have them: known here too, so that a report of them does not import PyTorch.
_KNOWN = {
    "accuracy": MetricName("accuracy"),
    "auc": MetricName("ROC AUC"),
    "roc_auc": MetricName("ROC AUC"),
    "macro-f1": MetricName("macro F1"),
    "balanced-accuracy": MetricName("balanced accuracy"),
    "average-precision": MetricName("average precision"),
    "log-loss": MetricName("log-loss", percent=False, higher_is_better=False),
    "ece": MetricName("calibration error", higher_is_better=False),
}


def metric_name(metric: str) -> MetricName:
    """The metric as its task describes it; a metric that no task has is taken for a percentage."""
    if metric in _KNOWN:
        return _KNOWN[metric]
    from fedquilt.tasks.base import TASKS

    for task in TASKS.all().values():
        if found := task.metrics.get(metric):
            return MetricName(found.title, found.scale == 100.0, found.higher_is_better)
    return MetricName(metric.replace("_", " ").strip())


def method_title(method: str) -> str:
    """A method's name as papers write it; the plain name of a method that is not installed here."""
    from fedquilt.methods.base import methods

    known = methods()
    return known[method].title if method in known else method
