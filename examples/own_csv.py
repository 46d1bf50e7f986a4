"""From two tables, as a spreadsheet saved them, to predictions for patients who are not in them."""

from pathlib import Path

import fedquilt

tables = Path(__file__).parent / "patients"  # nodes.csv, edges.csv and graph.yaml: put your own folder here

graph, _ = fedquilt.load_graph(tables)
print(f"{graph.nodes} patients, {graph.edges.shape[1]} contacts")
print("classes:", ", ".join(graph.class_names))
print("features:", ", ".join(graph.feature_names))

for method in ("majority", "local", "quilt"):
    run = fedquilt.run(method, tables, partition="natural", rounds=40)
    print(run)

predictions = run.predict(client="mean", data=tables / "new.csv")
predictions.write("predictions.csv")
print(Path("predictions.csv").read_text(), end="")
