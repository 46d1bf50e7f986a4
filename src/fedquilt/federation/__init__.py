"""Real sites on real machines: the same round loop and methods, carried by Flower. A site is a cohort of one.

At the coordinator
    coordinator.py, server_app.py   Flower's ServerApp: the round loop of `fedquilt.training.loop`, the run folder
    engine.py                       the engine that asks sites over Flower's grid
    roster.py                       who is who, and how replies are fetched
    bounds.py, guarding.py          which messages are taken; the server's step undone where it leads nowhere
    incidents.py                    what went wrong at whose site
At a site
    client_app.py, warm.py          Flower's ClientApp, and the process that it hands requests to
    answering.py, site.py, home.py  a request answered: what a site does with it, and what it has at home
Between them
    messages.py                     how a message is framed
    app/                            what `flwr run` is given
On one machine
    rehearsal.py, preparing.py      the whole federation with real processes, TLS and node keys
    keys.py, processes.py           throw-away keys; processes that end with us
"""
