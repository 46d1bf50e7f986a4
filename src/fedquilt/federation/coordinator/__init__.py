"""The coordinator of a federation. It runs the round loop, writes the run folder, and holds no graph.

coordinator.py         `Coordinator`: one training from the first greeting to the result
config.py, planning.py what the run config says; whether the sites can and may train it
roster.py              which site runs on which node
engine.py              `FlowerEngine`: rounds whose clients are sites
dispatch.py            sends requests over Flower's grid and collects the replies
finite_aggregation.py  aggregation without uploads that lead to infinite numbers
incidents.py           incidents.jsonl
"""
