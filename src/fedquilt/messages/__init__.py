"""Messages between clients and the server: named tensors that the method declares, and their wire format."""
