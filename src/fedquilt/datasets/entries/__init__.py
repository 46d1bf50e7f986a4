"""The datasets of the catalogue. A module registers one dataset or several of one family; a new module is found by itself."""
