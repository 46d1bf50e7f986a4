"""Engines: they run the clients' part of a round. One file each, looked up by name (`registry`)."""
