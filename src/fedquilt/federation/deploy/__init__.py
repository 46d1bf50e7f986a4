"""Files that keep a site running: a unit of systemd, and a container file."""
