"""fedquilt as a Flower app: what `flwr run` sends around is these few lines."""
