"""The HTML report: one file with tables and charts of a run, a comparison or a study, which needs no network."""

from fedquilt.reports.page.build import write_page
from fedquilt.reports.page.data import HeaderCell, Page, PageCell, PageFacts, PageRun, PageTable
from fedquilt.reports.page.folders import read_page_run
from fedquilt.reports.page.of_runs import page_of_comparison, page_of_run
from fedquilt.reports.page.of_tables import page_table

__all__ = [
    "HeaderCell",
    "Page",
    "PageCell",
    "PageFacts",
    "PageRun",
    "PageTable",
    "page_of_comparison",
    "page_of_run",
    "page_table",
    "read_page_run",
    "write_page",
]
