"""Compare three methods, and write the table, the figures and the page of the comparison."""

import fedquilt
from fedquilt.cli import main

few_labels = {"partition": "natural", "split": "5/45/50", "rounds": 30, "seeds": [0, 1]}
fedquilt.compare(["majority", "local", "quilt"], "patchwork", out="compared", **few_labels)

main(["show", "compared"])  # as: fedquilt show compared
main(["report", "compared"])  # as: fedquilt report compared
