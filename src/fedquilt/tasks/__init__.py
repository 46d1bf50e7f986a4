"""What is learned: outputs, split, loss, metrics and prediction. One file a task."""

NODE_CLASSIFICATION = "node-classification"
"""The task of a run that names none."""
LINK = "link"
"""Link prediction."""
NODE_REGRESSION = "node-regression"
"""A number for every node."""
