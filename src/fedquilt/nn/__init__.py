"""Layers, models, dropout and Adam over a cohort of clients."""
