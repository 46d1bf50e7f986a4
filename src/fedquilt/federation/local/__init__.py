"""A whole federation on this machine: the rehearsal."""
