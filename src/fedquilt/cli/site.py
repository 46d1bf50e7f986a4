"""`fedquilt site`: checks a site, shows what would leave it, and writes example sites."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedquilt.cli import options as o
from fedquilt.cli.console import results, say
from fedquilt.cli.methods import short
from fedquilt.cli.targets import check_new_folder

if TYPE_CHECKING:
    from fedquilt.federation.site.check import SiteReport

SiteFile = Annotated[Path, typer.Argument(metavar="SITE", help="The site's site.yaml.", show_default=False)]

# \b keeps the lines of a paragraph apart.
HELP = """A site: your own graph in a federation with others.

SITE is the site's site.yaml, for example:

\b
[cyan]name: st-anna[/]
[cyan]graph: graph/     # nodes.csv and edges.csv, or an npz file[/]
[cyan]state: state      # the folder for what is private[/]
[cyan]permits: all      # what may leave: all, or a list of uploads[/]

docs/sites.md has all that it may say.
"""

site = typer.Typer(help=HELP, short_help="A site: your own graph in a federation with others.", no_args_is_help=True)


@site.command("check", epilog="[dim]For example:[/]\n\n[bold cyan]fedquilt site check site.yaml[/]")
def check(path: SiteFile) -> None:
    """See whether a site is ready, and what each method would send from it.

    SITE is the site's site.yaml: its name, graph and state; see docs/sites.md.
    """
    from fedquilt.federation.site.check import check_site

    report = check_site(path)
    _describe(report)
    _uploads_table(report)
    for sentence in (*report.privacy, *report.masking):
        say(f"Privacy: {sentence}")
    for warning in report.graph.warnings:
        say(f"Warning: {warning}")
    none = "no method may run here but those that send nothing"
    sends = {line.method for line in report.methods if line.uploads}
    may = ", ".join(report.permitted) if sends & set(report.permitted) else f"{none}: {', '.join(report.permitted)}"
    say(f"Permitted: {may}.")
    say(f"Site '{report.site.name}' is ready.")


@site.command("key", epilog="[dim]For example:[/]\n\n[bold cyan]fedquilt site key site.yaml[/]")
def key(path: SiteFile) -> None:
    """Print the key by which other sites know this one in secure aggregation; it is made where there is none.

    SITE is the site's site.yaml. The others write the key into theirs, under secure_peers; see docs/sites.md.
    """
    from fedquilt.federation.secure.identity import site_identity
    from fedquilt.federation.secure.keys import fingerprint
    from fedquilt.federation.site.config import read_site

    say(fingerprint(site_identity(read_site(path).state).public))


@site.command(
    "example",
    epilog="[dim]For example:[/]\n\n[bold cyan]fedquilt site example sites --dataset cora --clients 3[/]\n\n"
    "[bold cyan]fedquilt rehearse --sites 'sites/*/site.yaml' --method fedssa[/]",
)
def example(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder to write.", show_default=False)],
    dataset: Annotated[
        str, typer.Option("--dataset", "-d", help="A name, an npz file or a folder of tables.")
    ] = "patchwork",
    kind: Annotated[str, typer.Option("--partition", "-p", help="How to cut it into sites.")] = "disjoint",
    clients: Annotated[int, typer.Option("--clients", "-c", help="Into how many sites.", min=1)] = 3,
    seed: Annotated[int, typer.Option("--seed", "-s", help="What random choices derive from.", min=0)] = 0,
    data: o.Data = None,
) -> None:
    """Write sites to try a federation with: a graph cut into some, each with its site.yaml.

    FOLDER is the folder to write; it must be new or empty.
    """
    check_new_folder(folder)
    from fedquilt.federation.site.examples import write_example_sites

    made = write_example_sites(folder, dataset=dataset, partition=kind, clients=clients, seeds=[seed], data=data)
    say(f"Written: {', '.join(map(str, made))}.")
    say(f"Try them with 'fedquilt rehearse --sites \"{folder}/*/{made[0].name}\" --method fedssa'.")


def _describe(report: SiteReport) -> None:
    from rich.markup import escape
    from rich.table import Table

    site, (train, val, test) = report.site, report.parts
    table = Table(title=escape(site.name), title_justify="left", title_style="bold", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("graph", escape(site.graph))
    for what, value in report.graph.rows():
        table.add_row(what, value)
    table.add_row("split", f"{report.split}: {train:,} train, {val:,} val, {test:,} test")
    table.add_row("state", escape(site.state))
    table.add_row("permits", site.permits if isinstance(site.permits, str) else ", ".join(site.permits) or "nothing")
    table.add_row("device", site.device)
    results().print(table)


def _uploads_table(report: SiteReport) -> None:
    from rich.table import Table

    from fedquilt.federation.site.permits import METRICS_SPEC

    table = Table(title="What would leave this site", title_justify="left", title_style="bold")
    for heading in ("Method", "Permitted", "It sends", "What that reveals"):
        table.add_column(heading)
    for line in report.methods:
        verdict = "no" if line.refused else "not masked" if line.method in report.unmaskable else "yes"
        if not line.uploads:
            table.add_row(line.method, verdict, "nothing", "")
        for number, spec in enumerate(line.uploads):
            name = short(spec.name) + (" (not permitted)" if spec in line.refused else "")
            table.add_row(*((line.method, verdict) if number == 0 else ("", "")), name, spec.reveals)
        table.add_section()
    table.add_row("any", "yes" if report.reports_metrics else "no", METRICS_SPEC.name, METRICS_SPEC.reveals)
    results().print(table)
