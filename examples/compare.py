"""Compare three methods on Cora in ten clients; `python compare.py patchwork` needs no download."""

import sys

import fedquilt

dataset = sys.argv[1] if len(sys.argv) > 1 else "cora"
runs = fedquilt.compare(["majority", "local", "quilt"], dataset, clients=10, rounds=20, seeds=[0, 1])

for run in runs:
    print(run)
