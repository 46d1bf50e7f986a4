"""The only things that cross between a client and the server: named, declared tensors, and their bytes."""
