"""The scoreboard: all studies on one page, from finished cells or from reports.

results    the summaries of all studies, from cells or from report.csv
verdicts   how many printed numbers were exceeded, reached, missed, not run
ranking    ranks of methods over all places, with intervals and tests
costs      time and bytes beside accuracy
claims     what the papers claim of their mechanisms, and whether it shows
figures, page   show them
"""
