"""A rank of a group that serves: `python -m luminal.serve.rank_process SETTINGS`, started by
`groups`.

The first rank has the HTTP server, on a port of this machine that it chooses. It reads its Settings
from that file, and writes the port to the standard output once texts can be written. Its standard
input ends when the group is to end.
"""

from __future__ import annotations

import json
import logging
import os
import pickle
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from luminal.base import host
from luminal.base.errors import LuminalError
from luminal.base.records import dataclass
from luminal.runtime.collectives.process import init
from luminal.serve.app import make_app
from luminal.serve.connection import BACKLOG, SPARE_FILES
from luminal.serve.load import load
from luminal.serve.orders import Limits
from luminal.serve.ranks import ALONE, Together
from luminal.serve.server import SWITCH, bound, freeze, log_as_json, make_server

REFUSED = 2
"""The status of a group that can never serve: of a model that is not there, or does not divide."""
SAID = 5.0  # seconds that other ranks leave to the first, to say what all of them have met


@dataclass(frozen=True, slots=True)
class Settings:
    """What a group serves: the arguments of `load`, and those of `make_app`."""

    model: Mapping[str, Any]
    limits: Limits
    keys: Sequence[str] = ()
    origins: Sequence[str] = ()


def main() -> None:
    """Serves until the standard input ends."""
    engine = init()
    log_as_json()
    logging.getLogger("uvicorn").setLevel(logging.WARNING)  # the process in front says the rest
    sys.setswitchinterval(SWITCH)
    sent = pickle.loads(Path(sys.argv[1]).read_bytes()) if engine.rank == 0 else None
    settings: Settings = engine.broadcast_object(sent, "the server's settings")
    ranks = Together(engine) if engine.size > 1 else ALONE
    try:
        served = load(**settings.model, ranks=ranks)
    except LuminalError as error:
        if engine.rank:
            time.sleep(SAID)
        print(f"error: {error}", file=sys.stderr, flush=True)
        sys.exit(REFUSED)
    freeze()
    if engine.rank:
        assert isinstance(ranks, Together)
        ranks.follow()
        return
    if isinstance(ranks, Together):
        ranks.lead()
    app = make_app(served, settings.limits, settings.keys, settings.origins)
    sockets = bound("127.0.0.1", 0)
    for listener in sockets:
        listener.listen(BACKLOG)
    host.raise_open_files(SPARE_FILES)
    server = make_server(app, 1, settings.limits.body)

    def end() -> None:
        os.read(sys.stdin.fileno(), 1)
        server.should_exit = True

    threading.Thread(target=end, name="luminal-end", daemon=True).start()
    print(json.dumps({"port": sockets[0].getsockname()[1]}), flush=True)
    server.run(sockets)
    if isinstance(ranks, Together):
        ranks.end()


if __name__ == "__main__":
    main()
