"""A headless Chromium, told what to do through pipes (the DevTools protocol, one page)."""

from __future__ import annotations

import base64
import fcntl
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
        self.errors: list[str] = []  # of scripts and of the console, since the page was opened
        self._session: str | None = None
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Runtime", "Log", "Performance"):
            self._call(f"{domain}.enable")
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

    def resize(self, width: int, height: int) -> None:
        """To a window of so many pixels."""
        self._call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                   deviceScaleFactor=1, mobile=False)  # fmt: skip

    def press(self, key: str, *, shift: bool = False) -> None:
        """A key, as a person does: "Enter", "ArrowDown", "/"."""
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        for kind in ("keyDown", "keyUp"):
            self._call("Input.dispatchKeyEvent", type=kind, key=key, modifiers=8 * shift,
                       windowsVirtualKeyCode={"Escape": 27, "Enter": 13}.get(key, 0),
                       **({"text": text} if kind == "keyDown" and text else {}))  # fmt: skip

    def processor_seconds(self) -> float:
        """Of all threads that run the page, since it was opened."""
        metrics = {m["name"]: m["value"] for m in self._call("Performance.getMetrics")["metrics"]}
        return float(metrics["ProcessTime"])

    def picture(self) -> bytes:
        """What is in sight, as PNG."""
        return base64.b64decode(self._call("Page.captureScreenshot", format="png")["data"])

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
            self._note(answer)

    def _note(self, event: dict[str, Any]) -> None:
        """Keeps what went wrong in the page."""
        told = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            details = told["exceptionDetails"]
            self.errors.append(details.get("exception", details).get("description", str(details)))
        elif event.get("method") == "Log.entryAdded" and told["entry"]["level"] == "error":
            self.errors.append(told["entry"]["text"])
        elif event.get("method") == "Runtime.consoleAPICalled" and told["type"] == "error":
            self.errors.append(str(told["args"]))

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
        # By copies whose numbers are free: 3 or 4 may be one of the ends.
        copies = [fcntl.fcntl(end, fcntl.F_DUPFD, 10) for end in (theirs_in, theirs_out)]
        for number, copy in enumerate(copies, 3):
            os.dup2(copy, number)

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
