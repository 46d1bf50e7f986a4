"""Differential privacy for uploads, and the accountant of what is spent."""
