"""The page on this machine: a server that gives one page and nothing else."""

from __future__ import annotations

import webbrowser
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from luminal.base.errors import InputError

HOST = "127.0.0.1"


def serve(page: str, port: int = 0, browser: bool = True) -> None:
    """Serves a page until Ctrl-C, says where, and opens a browser if there is one. Port 0: any that
    is free. Raises InputError for a port that cannot be had.
    """
    with server(page, port) as listening:
        address = f"http://{HOST}:{listening.server_port}/"
        print(f"luminal viz: {address} (Ctrl-C ends it)", flush=True)
        if browser:
            _open(address)
        try:
            listening.serve_forever()
        except KeyboardInterrupt:
            print()


def server(page: str, port: int = 0) -> ThreadingHTTPServer:
    """A server of a page that listens already. Raises InputError for a port that cannot be had."""
    body = page.encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.partition("?")[0]
            # Whoever makes a browser ask this address by another name (DNS rebinding) is another
            # site, and the page has a user's code in it.
            host = (self.headers.get("Host") or "").rpartition(":")[0]
            if name not in ("/", "/index.html") or host not in (HOST, "localhost"):
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: who looks at a page need not be told of it."""

    try:
        return ThreadingHTTPServer((HOST, port), Handler)
    except (OSError, OverflowError) as error:
        raise InputError(
            f"viz: port {port} of {HOST} cannot be had ({error}); --port 0 takes any that is free"
        ) from None


def _open(address: str) -> None:
    """Opens a browser; where there is none, the address was printed."""
    with suppress(webbrowser.Error):
        webbrowser.open(address)
