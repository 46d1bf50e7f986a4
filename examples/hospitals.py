"""Three hospitals, each with its own tables, train together."""

from pathlib import Path

import fedquilt

folders = sorted((Path(__file__).parent / "hospitals").iterdir())  # hospital-a, hospital-b, hospital-c
few_labels = {"split": "10/40/50", "rounds": 40, "seeds": [0, 1]}

for method in ("local", "fedavg", "quilt"):
    run = fedquilt.run(method, folders, **few_labels)
    print(run)
    for seed in run.result["seeds"]:
        best = run.records[seed["seed"]][seed["best_round"]]
        each = zip(seed["client_names"], best["clients"]["test"], strict=True)
        print(f"  seed {seed['seed']}:", ", ".join(f"{name} {test:.0f}" for name, test in each))
