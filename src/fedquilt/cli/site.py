"""`fedquilt site`: checks a site, shows what would leave it and what has left it, and writes example sites."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedquilt.cli import options as o
from fedquilt.cli.console import results, say
from fedquilt.cli.methods import short
from fedquilt.cli.targets import check_new_folder
from fedquilt.errors import FedquiltError
from fedquilt.runs.read_config import parse_settings

if TYPE_CHECKING:
    from fedquilt.federation.site.check import SiteReport
    from fedquilt.federation.site.status import SiteStatus

SiteFile = Annotated[Path, typer.Argument(metavar="SITE", help="The site's site.yaml.", show_default=False)]

# \b keeps the lines of a paragraph apart.
HELP = """A site: your own graph in a federation with others.

SITE is the site's site.yaml, for example:

\b
[cyan]name: st-anna[/]
[cyan]graph: graph/     # nodes.csv and edges.csv, or an npz file[/]
[cyan]state: state      # the folder for what is private[/]
[cyan]permits: [weights, counts, figures]    # what may leave; by default weights and counts[/]

'fedquilt docs sites' has all that it may say.
"""

site = typer.Typer(help=HELP, short_help="A site: your own graph in a federation with others.", no_args_is_help=True)


@site.command(
    "check",
    epilog="[dim]For example:[/]\n\n[bold cyan]fedquilt site check site.yaml[/]\n\n"
    "[bold cyan]fedquilt site check site.yaml --method fedpub[/]",
)
def check(
    path: SiteFile,
    method: Annotated[
        str | None,
        typer.Option("--method", "-m", help="Refuse the site where it does not permit what this method sends."),
    ] = None,
    assignments: o.Set = None,
) -> None:
    """See whether a site is ready, and what each method would send from it.

    SITE is the site's site.yaml: its name, graph and state; see 'fedquilt docs sites'.
    """
    if assignments and method is None:
        raise FedquiltError("--set is about one method's settings; say which one with --method.")
    from fedquilt.federation.site.check import check_site
    from fedquilt.federation.site.permits import in_words

    report = check_site(path, method, parse_settings(assignments or []))
    _describe(report)
    _permits_table(report)
    _uploads_table(report)
    say(f"Features: {report.preparation}")
    for sentence in (*report.privacy, *report.masking):
        say(f"Privacy: {sentence}")
    for warning in report.graph.warnings:
        say(f"Warning: {warning}")
    if not report.says_permits:
        say("This site.yaml does not say what may leave (permits), so only weights and counts may.")
    for line in report.methods:
        if line.refused:
            say(f"Not ready for {line.method}, which sends {in_words(line.refused)} too; it needs '{line.needs}'.")
    if not report.reports_metrics:
        say(_without_figures(report))
    none = "no method may run here but those that send nothing"
    sends = {line.method for line in report.methods if line.uploads}
    may = ", ".join(report.permitted) if sends & set(report.permitted) else f"{none}: {', '.join(report.permitted)}"
    say(f"Permitted: {may}.")
    refused = ", ".join(line.method for line in report.methods if line.refused)
    say(f"Site '{report.site.name}' is ready" + (f" for these, and not for {refused}." if refused else "."))


@site.command("status", epilog="[dim]For example:[/]\n\n[bold cyan]fedquilt site status site.yaml[/]")
def status(
    path: Annotated[Path, typer.Argument(metavar="[SITE]", help="The site's site.yaml.")] = Path("site.yaml"),
    as_json: o.Json = False,
) -> None:
    """See what a site did so far: rounds, the last contact, what left, epsilon, incidents.

    SITE is the site's site.yaml; by default, site.yaml in this folder. All of it is from the site's state folder.
    """
    from fedquilt.federation.site.status import site_status

    found = site_status(path)
    if as_json:
        say(json.dumps(found.to_dict(), ensure_ascii=False))
        return
    _status_table(found)
    if found.runs:
        _runs_table(found)
    if found.left:
        _left_table(found)
    for line in found.incidents:
        say(f"{line.get('at')} {line.get('what')}: {line.get('reason')}")
    more = found.incident_count - len(found.incidents)
    if more > 0:
        say(f"{more:,} incidents before these are in incidents.jsonl of the state folder.")


@site.command("key", epilog="[dim]For example:[/]\n\n[bold cyan]fedquilt site key site.yaml[/]")
def key(path: SiteFile) -> None:
    """Print the key by which other sites know this one in secure aggregation; it is made where there is none.

    SITE is the site's site.yaml. The others write the key into theirs, under secure_peers; see 'fedquilt docs sites'.
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


@site.command(
    "service",
    epilog="[dim]For example:[/]\n\n"
    "[bold cyan]fedquilt site service site.yaml --coordinator coordinator.example:8000 --out service[/]",
)
def service(
    path: SiteFile,
    coordinator: Annotated[
        str, typer.Option("--coordinator", help="Where SuperNodes connect: a name and a port.", show_default=False)
    ],
    authority: Annotated[
        Path, typer.Option("--authority", help="The certificate that signed the coordinator's.")
    ] = Path("ca.crt"),
    node_key: Annotated[Path, typer.Option("--node-key", help="The site's private key.")] = Path("node-key"),
    user: Annotated[str, typer.Option("--user", help="The user that the unit runs as.")] = "fedquilt",
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write; it must be new.")] = Path("service"),
) -> None:
    """Write what keeps a site running: a unit of systemd, and a container file.

    SITE is the site's site.yaml. 'fedquilt docs deploy-a-site' says how to use them.
    """
    from fedquilt.federation.deploy.site_files import UNIT, Service

    check_new_folder(out)
    made = Service(path, coordinator, authority, node_key, user).write(out)
    say(f"Written: {', '.join(map(str, made))}.")
    say(f"With systemd: sudo cp {out / UNIT} /etc/systemd/system/ && sudo systemctl enable --now {UNIT}")
    say(f"In a container: the first lines of {made[1]} say how.")


def _describe(report: SiteReport) -> None:
    from rich.table import Table

    site, (train, val, test) = report.site, report.parts
    table = Table(title=site.name, title_justify="left", title_style="bold", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("graph", site.graph)
    for what, value in report.graph.rows():
        table.add_row(what, value)
    table.add_row("split", f"{report.split}: {train:,} train, {val:,} val, {test:,} test")
    table.add_row("state", site.state)
    table.add_row("permits", site.permits if isinstance(site.permits, str) else ", ".join(site.permits) or "nothing")
    quota = site.quota
    table.add_row("quota", f"{quota.runs:,} runs, {quota.gigabytes:g} GB, {quota.requests:,} requests a day")
    table.add_row("device", site.device)
    results().print(table)


def _uploads_table(report: SiteReport) -> None:
    from rich.table import Table

    from fedquilt.federation.site.permits import METRICS_SPEC

    table = Table(title="What would leave this site", title_justify="left", title_style="bold")
    for heading in ("Method", "Permitted", "It sends", "Kind", "What that reveals"):
        table.add_column(heading)
    for line in report.methods:
        verdict = "no" if line.refused else "not masked" if line.method in report.unmaskable else "yes"
        if not line.uploads:
            table.add_row(line.method, verdict, "nothing", "", "")
        for number, (spec, names) in enumerate(line.uploads):
            refused = [name for name in names if name in line.refused]
            mark = "" if not refused else " (not permitted)" if refused == names else " (not permitted in part)"
            first = (line.method, verdict) if number == 0 else ("", "")
            table.add_row(*first, short(spec.name) + mark, spec.kind, spec.reveals)
        table.add_section()
    reports = "yes" if report.reports_metrics else "no"
    table.add_row("any", reports, METRICS_SPEC.name, METRICS_SPEC.kind, METRICS_SPEC.reveals)
    results().print(table)


def _permits_table(report: SiteReport) -> None:
    """Which of the methods' tensors each permit stands for."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(title="What each permit lets leave", title_justify="left", title_style="bold")
    table.add_column("Permit")
    table.add_column("Tensors")
    for permit, names in report.permits.items():
        table.add_row(escape(permit), ", ".join(names) or "none of what these methods send")
    if report.permits:
        results().print(table)


def _without_figures(report: SiteReport) -> str:
    """What it means that losses and metrics are not reported."""
    site = report.site
    why = "permits" if site.dp is None or site.dp.report else "dp.report"
    return (
        f"Losses and metrics (figures) stay here ({why} does not let them leave): this site has no say in which round is "
        "best, and its accuracy is not in the coordinator's result."
    )


def _status_table(found: SiteStatus) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(found.name), title_justify="left", title_style="bold", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("state", escape(found.state))
    table.add_row("first contact", found.first_contact or "never")
    table.add_row("last contact", found.last_contact or "never")
    table.add_row("requests", ", ".join(f"{count:,} {kind}" for kind, count in found.requests.items()) or "none")
    table.add_row("rounds trained", f"{found.rounds:,}")
    table.add_row("left the site", f"{sum(each.bytes for each in found.left.values()):,} bytes")
    if found.epsilon is not None:
        limit = "no limit" if found.budget is None else f"{found.budget:g}"
        table.add_row("epsilon spent", f"{found.epsilon:.3g} of {limit}, in {found.protected_uploads:,} uploads")
    table.add_row("disk", f"{found.disk_bytes:,} of {found.quota['bytes']:,.0f} bytes")
    table.add_row("incidents", f"{found.incident_count:,}")
    results().print(table)


def _runs_table(found: SiteStatus) -> None:
    from rich.table import Table

    table = Table(title="Runs", title_justify="left", title_style="bold")
    for heading in ("Run", "Method", "State", "Rounds", "Last contact", "Bytes that left"):
        table.add_column(heading, justify="right" if heading.startswith("Bytes") else "left")
    for run in found.runs:
        trained = (
            "?" if run.trained is None else f"{run.trained:,} of {run.rounds:,}" if run.rounds else f"{run.trained:,}"
        )
        table.add_row(run.run, run.method or "?", run.state, trained, run.last or "?", f"{run.bytes:,}")
    results().print(table)


def _left_table(found: SiteStatus) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table(title="What left this site", title_justify="left", title_style="bold")
    table.add_column("Tensor")
    table.add_column("Times", justify="right")
    table.add_column("Bytes", justify="right")
    for name, left in sorted(found.left.items()):
        table.add_row(escape(name), f"{left.times:,}", f"{left.bytes:,}")
    results().print(table)
