"""The round loop, and the engines that carry rounds out."""
