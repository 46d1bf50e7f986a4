"""Real sites on real machines: the same round loop and methods, carried by Flower. A site is a cohort of one.

coordinator.py, server_app.py   Flower's ServerApp: who is there, the round loop of `fedquilt.training`, the run folder
engine.py                       the engine that asks sites over Flower's grid
site.py, client_app.py          Flower's ClientApp: what a site does with a request
messages.py, bounds.py          how a message is framed; which uploads are taken
rehearsal.py, keys.py           the whole federation on this machine, with real processes, TLS and node keys
app/                            what `flwr run` is given
"""
