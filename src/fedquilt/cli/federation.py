"""`fedquilt federation`: writes configurations of nginx, for the coordinator's proxy and for a site's relay to it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from fedquilt.cli.console import say
from fedquilt.cli.targets import check_new_folder

HELP = """What stands between the machines of a federation: the coordinator's proxy, and a site's relay to it.

Whoever reaches Flower's SuperLink can register nodes and start runs. So it listens on its own machine only, and SuperNodes \
reach it through a proxy that lets nothing else through; see 'fedquilt docs federation'.
"""

federation = typer.Typer(
    help=HELP, short_help="The coordinator's proxy, and a site's relay to it.", no_args_is_help=True
)
Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder to write.", show_default=False)]


@federation.command(
    "proxy",
    epilog="[dim]For example:[/]\n\n[bold cyan]fedquilt federation proxy proxy --listen 0.0.0.0:8000[/]\n\n"
    "[bold cyan]fedquilt federation proxy proxy --allow 192.0.2.7,198.51.100.0/24[/]",
)
def proxy(
    folder: Folder,
    listen: Annotated[str, typer.Option("--listen", help="Where SuperNodes connect.")] = "0.0.0.0:8000",
    superlink_port: Annotated[int, typer.Option("--superlink-port", help="The SuperLink's port on 127.0.0.1.")] = 8001,
    certificate: Annotated[Path, typer.Option("--certificate", help="Of this machine's name.")] = Path("server.pem"),
    key: Annotated[Path, typer.Option("--key", help="The certificate's private key.")] = Path("server.key"),
    authority: Annotated[Path, typer.Option("--authority", help="The certificate that signed it.")] = Path("ca.crt"),
    allow: Annotated[
        str | None, typer.Option("--allow", help="Addresses and networks of sites, with commas. Default: all.")
    ] = None,
    site_authority: Annotated[
        Path | None,
        typer.Option("--site-authority", help="Ask callers for certificates that this one signed (see relay)."),
    ] = None,
) -> None:
    """Write the configuration of nginx as the proxy in front of the SuperLink.

    Only what SuperNodes call passes; FOLDER must be new or empty.
    """
    from fedquilt.federation.nginx.proxy import Proxy

    addresses = [] if allow is None else allow.split(",")
    settings = Proxy(listen, superlink_port, certificate, key, authority, site_authority, addresses)
    _write(folder, settings.config())


@federation.command(
    "relay",
    epilog="[dim]For example:[/]\n\n[bold cyan]fedquilt federation relay relay --coordinator coordinator.example:8000[/]",
)
def relay(
    folder: Folder,
    coordinator: Annotated[str, typer.Option("--coordinator", help="The proxy's name and port.", show_default=False)],
    port: Annotated[int, typer.Option("--port", help="The relay's port on 127.0.0.1.")] = 8002,
    certificate: Annotated[Path, typer.Option("--certificate", help="The site's, also for localhost.")] = Path(
        "site.pem"
    ),
    key: Annotated[Path, typer.Option("--key", help="The certificate's private key.")] = Path("site.key"),
    authority: Annotated[
        Path, typer.Option("--authority", help="The certificate that signed the coordinator's.")
    ] = Path("ca.crt"),
) -> None:
    """Write the configuration of nginx as a site's relay to a proxy that asks for certificates.

    A SuperNode cannot show one itself. FOLDER must be new or empty.
    """
    from fedquilt.federation.nginx.relay import Relay

    _write(folder, Relay(coordinator, port, certificate, key, authority).config())


def _write(folder: Path, text: str) -> None:
    from fedquilt.federation.nginx.config_files import CONFIG, find_nginx, is_root, start_command, write_config

    check_new_folder(folder)
    write_config(folder, text)
    program = find_nginx() or "nginx"
    say(f"Written: {folder / CONFIG}. Start it with: {shlex.join(start_command(folder, program))}")
    if program == "nginx":
        say("nginx 1.20 or newer is not installed here; your distribution has it.")
    if is_root():
        say("Written as root, so nginx will run as root; better do this as a user of its own.")
