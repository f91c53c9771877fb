"""A headless Chromium, told what to do through pipes (the DevTools protocol, one page)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

PROGRAM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
SWITCHES = (
    "--headless=new --no-sandbox --disable-gpu --remote-debugging-pipe --no-first-run".split()
)


class Page:
    """What is open in the browser. `to` and `back` are pipes of messages that end with a 0."""

    def __init__(self, to: IO[bytes], back: IO[bytes], url: str) -> None:
        self._to, self._back = to, back
        self._count = 0
        self._session: str | None = None
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        self._call("Page.navigate", url=url)
        self.wait("document.readyState == 'complete'")

    def value(self, expression: str) -> Any:
        """Of JavaScript in the page."""
        found = self._call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def wait(self, condition: str, within: float = 30.0) -> None:
        """Until it holds in the page."""
        end = time.monotonic() + within
        while not self.value(condition):
            assert time.monotonic() < end, (
                f"{condition} does not hold: {self.value('document.body.innerText')}"
            )
            time.sleep(0.05)

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        self._to.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = json.loads(self._read())
            if answer.get("id") == self._count:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result

    def _read(self) -> bytes:
        found = bytearray()
        while (byte := self._back.read(1)) != b"\0":
            assert byte, "the browser is gone"
            found += byte
        return bytes(found)


@contextmanager
def opened(url: str) -> Iterator[Page]:
    """A page in a browser of its own."""
    assert PROGRAM is not None
    (theirs_in, ours_out), (ours_in, theirs_out) = os.pipe(), os.pipe()

    def connect() -> None:  # the browser reads 3 and writes 4
        for number, end in ((13, theirs_in), (14, theirs_out)):
            os.dup2(end, number)
        os.dup2(13, 3)
        os.dup2(14, 4)

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [PROGRAM, *SWITCHES, f"--user-data-dir={profile}"],
            stderr=subprocess.DEVNULL,
            close_fds=False,
            preexec_fn=connect,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        with os.fdopen(ours_out, "wb", 0) as to, os.fdopen(ours_in, "rb") as back:
            try:
                yield Page(to, back, url)
            finally:
                process.kill()
                process.wait()
