"""The command line: all commands, and the one place where errors become a sentence and an exit status."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from fedquilt.cli import (
    bench,
    compare,
    data,
    demo,
    docs,
    errors,
    federation,
    methods,
    predict,
    rehearse,
    report,
    run,
    show,
    site,
    study,
    study_graphs,
    tune,
)
from fedquilt.cli.console import say
from fedquilt.cli.graph import graph_check, graph_import

DEBUG = "--debug"
TRAIN, LOOK, PREPARE = "Train", "Look at results", "Before training"
SITE = "A site of your own"


def example(*commands: str) -> str:
    """Format the end of a help text: commands to try."""
    return "\n\n".join(["[dim]For example:[/]", *(f"[bold cyan]{command}[/]" for command in commands)])


app = typer.Typer(
    name="fedquilt",
    help="Train one personal graph neural network per data owner, together, without moving anyone's graph.",
    epilog=example("fedquilt demo", "fedquilt run --dataset cora --clients 10 --seeds 0,1,2"),
    rich_markup_mode="rich",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)
graph = typer.Typer(help="One graph of your own.", no_args_is_help=True)

app.command(
    rich_help_panel=TRAIN,
    epilog=example("fedquilt demo"),
)(demo.demo)
app.command(
    rich_help_panel=TRAIN,
    epilog=example(
        "fedquilt run --method fedpub --dataset cora --partition overlapping --clients 30 --seeds 0,1,2",
        "fedquilt run --method fedavg --dataset my-graph.npz --rounds 50 --set lr=0.005 --set hidden=64",
    ),
)(run.run)
app.command(
    rich_help_panel=TRAIN,
    epilog=example("fedquilt compare --methods local,fedavg,fedpub,quilt --dataset cora --clients 10 --seeds 0,1,2"),
)(compare.compare)
app.command(
    rich_help_panel=TRAIN,
    epilog=example("fedquilt tune --method fedpub --dataset cora --clients 10 --seeds 0,1 --trials 30"),
)(tune.tune)
app.command(
    rich_help_panel=TRAIN,
    epilog=example("fedquilt resume runs/quilt-cora-disjoint-10"),
)(run.resume)
app.command(
    rich_help_panel=LOOK,
    epilog=example("fedquilt show runs/quilt-cora-disjoint-10"),
)(show.show)
app.command(
    rich_help_panel=LOOK,
    epilog=example("fedquilt report runs/compare-cora-disjoint-10 --open", "fedquilt report fedpub-table-2"),
)(report.report)
app.command(
    rich_help_panel=LOOK,
    epilog=example(
        "fedquilt bench --quick",
        "fedquilt bench --method fedpub,quilt --cell cora/disjoint/10 --out bench.json --figure bench.svg",
    ),
)(bench.bench)
app.command(
    rich_help_panel=LOOK,
    epilog=example("fedquilt docs", "fedquilt docs data"),
)(docs.docs)
app.command(
    rich_help_panel=PREPARE,
    epilog=example("fedquilt methods", "fedquilt methods quilt"),
)(methods.methods)
app.command(
    rich_help_panel=PREPARE,
    epilog=example("fedquilt datasets --data graphs"),
)(data.datasets)
app.command(
    rich_help_panel=PREPARE,
    epilog=example("fedquilt partition cora --kind disjoint --clients 10 --out cut.npz --picture cut.png"),
)(data.partition)
graph.command("check", epilog=example("fedquilt graph check my-graph.npz", "fedquilt graph check my-tables/"))(
    graph_check
)
graph.command(
    "import",
    epilog=example(
        "fedquilt graph import my-tables/ --out mine.npz",
        "fedquilt graph import patients.csv contacts.csv --id patient --label diagnosis --drop name --out mine.npz",
    ),
)(graph_import)
study.study.command("graphs", epilog=example("fedquilt study graphs roman-empire,questions --seeds 3 --jobs 2"))(
    study_graphs.graphs
)
app.add_typer(
    study.study,
    name="study",
    rich_help_panel=TRAIN,
    epilog=example(
        "fedquilt study run fedpub-table-2 --only dataset=cora,clients=10 --jobs 2",
        "fedquilt study report fedpub-table-2",
    ),
)
app.command(
    rich_help_panel=SITE,
    epilog=example(
        "fedquilt predict runs/quilt-cora-disjoint-10 --client 3 --nodes new.csv --out predictions.csv",
        "fedquilt predict site.yaml --nodes new-nodes.npz --out predictions.csv",
    ),
)(predict.predict)
app.command(
    rich_help_panel=SITE,
    epilog=example("fedquilt rehearse --sites a/site.yaml,b/site.yaml,c/site.yaml --method fedssa --out rehearsal"),
)(rehearse.rehearse)
app.add_typer(site.site, name="site", rich_help_panel=SITE, epilog=example("fedquilt site check site.yaml"))
app.add_typer(
    federation.federation,
    name="federation",
    rich_help_panel=SITE,
    epilog=example("fedquilt federation proxy proxy --listen 0.0.0.0:8000"),
)
app.add_typer(graph, name="graph", rich_help_panel=PREPARE, epilog=example("fedquilt graph check my-graph.npz"))


def _version(wanted: bool) -> None:
    if wanted:
        from fedquilt.common.version import VERSION

        say(f"fedquilt {VERSION}")
        raise typer.Exit


@app.callback()
def global_options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
    debug: Annotated[
        bool, typer.Option(DEBUG, help="Show where an error came from; works after any command too.")
    ] = False,
) -> None:
    """The options of all commands; `main` removes --debug before this is called."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status; an error is printed as one sentence."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = DEBUG in given
    given = [argument for argument in given if argument != DEBUG]
    try:
        status = typer.main.get_command(app).main(given or ["--help"], prog_name="fedquilt", standalone_mode=False)
        sys.stdout.flush()  # a full disk shows now, and not when Python ends
    except (KeyboardInterrupt, typer.Abort):
        status = errors.STOPPED
        errors.explain(errors.StoppedError("stopped."), debug)
    except Exception as error:
        errors.drop_unwritten_output()
        return errors.explain(error, debug)
    else:
        if status == errors.STOPPED:  # Typer's exit status for Ctrl-C
            errors.explain(errors.StoppedError("stopped."), debug)
    return status if isinstance(status, int) else 0
