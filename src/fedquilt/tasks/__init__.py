"""What is learned: outputs, split, loss, metrics and prediction. One file a task."""
