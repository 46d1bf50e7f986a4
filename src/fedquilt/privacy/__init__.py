"""What leaves a client: declared names, how they are encoded, and the ledger that counts them."""
