"""The HTML report of a run, a comparison or a study: one file with tables and charts that needs no network."""

from fedquilt.reports.page.build import write_page
from fedquilt.reports.page.chart_data import page_run, read_page_run
from fedquilt.reports.page.data import HeaderCell, Page, PageCell, PageFacts, PageRun, PageTable
from fedquilt.reports.page.rich_table import page_table
from fedquilt.reports.page.run_pages import page_of_comparison, page_of_folder, page_of_run

__all__ = [
    "HeaderCell",
    "Page",
    "PageCell",
    "PageFacts",
    "PageRun",
    "PageTable",
    "page_of_comparison",
    "page_of_folder",
    "page_of_run",
    "page_run",
    "page_table",
    "read_page_run",
    "write_page",
]
