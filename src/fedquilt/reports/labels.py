"""What methods and metrics are called in figures, tables and pages."""

from __future__ import annotations


def method_title(method: str) -> str:
    """A method's name as papers write it; the plain name of a method that is not installed here."""
    from fedquilt.methods.base import methods

    known = methods()
    return known[method].title if method in known else method


def metric_label(metric: str) -> str:
    """An axis label: "accuracy" becomes "Accuracy (%)"."""
    names = {"roc_auc": "ROC AUC", "auc": "ROC AUC", "rocauc": "ROC AUC", "f1": "F1", "macro_f1": "Macro F1"}
    name = names.get(metric.lower(), metric.replace("_", " ").strip())
    return f"{name[:1].upper()}{name[1:]} (%)"
