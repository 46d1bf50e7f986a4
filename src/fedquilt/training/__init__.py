"""Training: the round loop (`loop`), one round (`round`), CUDA graphs of rounds (`captured_rounds`), checkpoints, engines."""
