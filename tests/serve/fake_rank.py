"""What stands in for a group of ranks: it has no model, and starts at once.

`/who` gives its process number, `/stream` events without end, and `/quiet` no answer.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from contextlib import suppress

import luminal_rank


def answer(client: socket.socket) -> None:
    """Answers one request."""
    path = client.recv(1 << 16).split(b" ")[1]
    head = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: "
    with suppress(OSError), client:
        if path == b"/who":
            client.sendall(head + b"text/plain\r\n\r\n%d" % os.getpid())
        elif path == b"/stream":
            # In chunks: a stream that just stops was not ended by who wrote it.
            client.sendall(head + b"text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
            while True:
                client.sendall(b"9\r\ndata: 1\n\n\r\n")
                time.sleep(0.01)
        elif path == b"/metrics":
            client.sendall(head + b'text/plain\r\n\r\n# HELP a b\nplain 1.0\nwith{x="y"} 2.0\n')
        elif path == b"/quiet":
            client.recv(1)


def main() -> None:
    """Serves until the standard input ends."""
    watched = luminal_rank.registered()  # as a rank is that a launcher starts
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    print("a line of some library")
    if "HANGS" in os.environ:
        time.sleep(100)
    print(json.dumps({"port": listener.getsockname()[1]}), flush=True)
    while sys.stdin.buffer.read(1 << 16):
        pass
    if watched is not None:
        print(0, file=watched)


if __name__ == "__main__":
    main()
