"""A user's tables as a graph: nodes.csv and edges.csv, or the same as parquet, as they are. See `fedquilt docs data`."""

from fedquilt.graphs.tables.dialect import LONGEST_LINE
from fedquilt.graphs.tables.options import TableOptions, read_table_options, table_options
from fedquilt.graphs.tables.read import TABLE_ENDS, Tables, is_table, read_tables, read_tables_fully

__all__ = [
    "LONGEST_LINE",
    "TABLE_ENDS",
    "TableOptions",
    "Tables",
    "is_table",
    "read_table_options",
    "read_tables",
    "read_tables_fully",
    "table_options",
]
