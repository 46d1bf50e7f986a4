"""Speed and memory of fedquilt, measured against what people would write themselves. Never run as a test."""
