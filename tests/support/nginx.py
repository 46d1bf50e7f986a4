"""nginx with a configuration of ours, in front of a server that keeps what reaches it."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from fedquilt.federation.nginx.config_files import find_nginx, start_command, write_config

HOST = "127.0.0.1"
needs_nginx = pytest.mark.skipif(find_nginx() is None, reason="needs nginx, which your distribution has")


@contextmanager
def running_nginx(folder: Path, config: str, port: int) -> Iterator[None]:
    """nginx with a configuration, which listens on `port`."""
    write_config(folder, config)
    program = find_nginx()
    assert program is not None
    process = subprocess.Popen(start_command(folder, program, " master_process off;"), stderr=subprocess.PIPE)
    try:
        until = time.monotonic() + 10
        while True:
            try:
                socket.create_connection((HOST, port), timeout=1).close()
                break
            except OSError:
                said = process.stderr.read() if process.poll() is not None and process.stderr is not None else b""
                assert process.poll() is None, said
                assert time.monotonic() < until
                time.sleep(0.02)
        yield
    finally:
        process.terminate()
        process.communicate()


class SuperLinkDouble:
    """An HTTPS server on loopback that answers every request with 200, and keeps its method, path and headers."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self.reached: list[tuple[str, str, dict[str, str], int]] = []
        reached = self.reached

        class Handler(BaseHTTPRequestHandler):
            protocol_version: ClassVar[str] = "HTTP/1.1"

            def do(self) -> None:
                size = len(self.rfile.read(int(self.headers.get("Content-Length", 0))))
                reached.append((self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, size))
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"ok")

            def __getattr__(self, name: str) -> Callable[[], None]:
                if name.startswith("do_"):
                    return self.do
                raise AttributeError(name)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer((HOST, 0), Handler)
        self.server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.port = self.server.server_address[1]

    def __enter__(self) -> SuperLinkDouble:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()


def tls_socket(port: int, authority: Path, alpn: list[str] | None = None) -> ssl.SSLSocket:
    """A connection to this machine whose certificate the authority signed."""
    context = ssl.create_default_context(cafile=str(authority))
    if alpn:
        context.set_alpn_protocols(alpn)
    return context.wrap_socket(socket.create_connection((HOST, port), timeout=10), server_hostname=HOST)


def status_of(port: int, authority: Path, request: bytes) -> int:
    """The status of the answer to a request that is sent as it is; 0 where the connection is closed instead."""
    with tls_socket(port, authority) as connection:
        connection.sendall(request)
        answer = connection.recv(4096)
    return int(answer.split()[1]) if answer.startswith(b"HTTP/") else 0
