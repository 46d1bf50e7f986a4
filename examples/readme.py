import fedquilt

compared = fedquilt.compare(
    ["majority", "local", "fedavg", "quilt"],
    "patchwork",  # a graph that is built in
    partition="natural",  # ... with ten clients
    split="5/45/50",  # one label in twenty to train on
    rounds=40,
    seeds=[0, 1],
)
print(compared)
