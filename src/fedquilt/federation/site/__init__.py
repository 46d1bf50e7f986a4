"""The side of an organisation. What happens to a request of the coordinator:

client_app.py -> worker_process.py -> request_handler.py -> run_client.py -> site.py

worker_process.py   the process that stays loaded between requests, and the socket to it
request_handler.py  `RequestHandler`: picks the site and its client of the run, turns errors into refusals
run_client.py       `RunClient`: trains one round of one run with a cohort of one
site.py             `Site`: the graph, split, budget, state and ledger that a site.yaml (config.py) describes

permits.py, budget.py, ledger.py   what may leave, what privacy was spent, what left
state.py                           what is saved of each run
quota.py, contacts.py, log.py      how much a coordinator gets, when it asked, and what happened
check.py, status.py, examples.py, predict.py   the commands `site check`, `site status`, `site example` and `predict`
"""
