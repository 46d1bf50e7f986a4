"""The kinds of partition, one module each, named after its kind. A new module is found by itself."""
