"""A table as people have it: semicolons, decimal commas, Latin-1, categories, gaps, dates, wrong rows, repeated edges."""

from __future__ import annotations

from pathlib import Path

HEADER = "Patient;Diagnose;Alter;Größe;CRP;Raucher;Stadt;Aufnahme;Bemerkung"
ROWS = [
    "p01;gesund;31;1,82;0,4;no;Köln;2021-03-01;kommt zur Kontrolle",
    "p02;krank;67;1,65;12,75;yes;Düsseldorf;2021-03-02;Überweisung Dr. Weiß",
    "p03;gesund;45;1,7;1.204,5;No;Köln;2021-03-05;",
    "p04;krank;;1,71;NA;YES;Münster;2021-03-09;sieht nächste Woche wieder",
    "p05;;52;1,9;3,1;no;Köln;2021-04-01;unklar",
    "p06;gesund;29;1,6;0,9;;?;2021-04-02;-",
    ";;;;;;;;",
    'p07;krank;71;1,75;25;yes;Düsseldorf;2021-04-03;"Ödeme; beide\nBeine"',
    "p08;gesund;38;1,68;?;no;Köln;2021-04-04;nichts",
]
# What cannot be guessed, in the lines after those above.
WRONG_ROWS = [
    "p09;krank;vierzig;1,8;2,5;yes;Köln;2021-04-05;x",
    "p10;krank;50;1,8",
    "p03;gesund;33;1,77;0,2;no;Köln;2021-04-06;doppelt",
    ";gesund;33;1,77;0,2;no;Köln;2021-04-06;ohne Nummer",
    "p11;gesund;33;1.77;0,2;maybe;Köln;2021-04-06;y",
]
EDGES = "von;nach;Kontakte\np01;p02;3\np02;p01;1\np02;p03;1,5\np03;p04;2\np04;p05;1\np05;p06;1\np06;p06;9\np07;p08;1\n"
GRAPH_YAML = """\
id: Patient
label: Diagnose
source: von
target: nach
weight: Kontakte
drop: [Aufnahme, Bemerkung]
"""


def write_messy(folder: Path, wrong: bool = False, options: str | None = GRAPH_YAML) -> Path:
    """The tables in a new folder; `wrong`: with rows that have to be refused."""
    folder.mkdir(parents=True)
    text = "\r\n".join([HEADER, *ROWS, *(WRONG_ROWS if wrong else []), ""])
    (folder / "nodes.csv").write_bytes(text.encode("cp1252"))
    (folder / "edges.csv").write_text(EDGES + ("p08;p99;1\n" if wrong else ""), encoding="utf-8-sig")
    if options is not None:
        (folder / "graph.yaml").write_text(options, encoding="utf-8")
    return folder


def write_large_messy(folder: Path, nodes: int) -> Path:
    """The same rows again and again under other ids, joined to a ring: enough to train on."""
    whole = [row.split(";") for row in ROWS if row[0] == "p" and row.count(";") == 8]
    rows = [";".join([f"p{n:03d}", *whole[n % len(whole)][1:]]) for n in range(nodes)]
    folder.mkdir(parents=True)
    (folder / "nodes.csv").write_bytes("\r\n".join([HEADER, *rows]).encode("cp1252"))
    ring = (f"p{n:03d};p{(n + step) % nodes:03d};1,5\n" for n in range(nodes) for step in (1, 7))
    (folder / "edges.csv").write_text("von;nach;Kontakte\n" + "".join(ring), encoding="utf-8")
    (folder / "graph.yaml").write_text(GRAPH_YAML, encoding="utf-8")
    return folder
