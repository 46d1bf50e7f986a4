"""Figures, tables and HTML reports of runs. matplotlib is imported when a figure is drawn, not before."""

from fedquilt.reports.figures import client_bars, convergence, heatmap, similarity_rounds
from fedquilt.reports.partition_picture import partition_picture
from fedquilt.reports.tables import comparison_table, run_table, to_markdown

__all__ = [
    "client_bars",
    "comparison_table",
    "convergence",
    "heatmap",
    "partition_picture",
    "run_table",
    "similarity_rounds",
    "to_markdown",
]
