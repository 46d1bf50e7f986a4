import fedquilt

few_labels = {"partition": "natural", "split": "5/45/50", "rounds": 40, "seeds": [0, 1]}

for method in ("local", "fedavg", "quilt"):
    run = fedquilt.run(method, "patchwork", **few_labels)
    print(run)
