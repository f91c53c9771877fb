"""The process that serves: sockets, signals, logs."""

from __future__ import annotations

import json
import logging
import time
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from luminal.serve.connection import Connection

BACKLOG = 256  # connections that wait to be accepted


class JsonLines(logging.Formatter):
    """A log record as one line of JSON; what is JSON already becomes part of it."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{moment}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        text = record.getMessage()
        line |= json.loads(text) if record.name.endswith(".access") else {"message": text}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


def log_as_json(level: str = "INFO") -> None:
    """Sends the server's logs to the standard error, a JSON object a line."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    for name in ("luminal.serve", "uvicorn"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(level)


def make_server(app: ASGIApp, host: str, port: int, drain: int) -> uvicorn.Server:
    """A server; `drain`: seconds that running requests have after SIGTERM or Ctrl-C."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            host=host,
            port=port,
            backlog=BACKLOG,
            timeout_graceful_shutdown=drain,
            access_log=False,
            log_config=None,
            http=Connection,
            ws="none",
            server_header=False,
        )
    )
