"""Real sites on real machines: the round loop and the methods of the simulation, over Flower. A site is a cohort of one.

Both sides
    protocol.py           the headers of requests and replies
    message_checks.py     which messages are used
    flower_messages.py    headers and tensors as Flower's messages
    server_app.py, client_app.py, app/   the Flower app that `flwr run` starts
    parent_process.py     ends Flower's processes with their parents
coordinator/              the round loop, the engine that asks sites, the run folder
site/                     one organisation: its graph, its state, what may leave it
nginx/                    the proxy in front of the SuperLink, and a site's relay to it
local/                    the rehearsal: a whole federation on one machine, with real processes, TLS and node keys
"""

from fedquilt.common.printable import printable_logger

# Peers write part of what is logged: whatever module logs, no line can be forged and no terminal commanded.
for _name in ("flwr", "fedquilt.site"):
    printable_logger(_name)
