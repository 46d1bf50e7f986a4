"""The rehearsal: a whole federation on one machine.

prepare.py    checks the sites and the folder, and copies the sites
rehearsal.py  starts Flower's processes and runs the training
processes.py  a group of processes that end together
keys.py       certificates and node keys for one rehearsal
"""
