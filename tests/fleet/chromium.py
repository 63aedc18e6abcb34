"""Headless Chromium driven over its own protocol (CDP) through two pipes: no driver program, no package, no port.

    with Browser.start() as browser:
        page = browser.open("http://127.0.0.1:4318/")
        page.evaluate("document.title")

A pipe carries JSON messages, each ended by a zero byte; an answer has its command's id, all else are events."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PATIENCE_S = float(os.environ.get("SEALIFT_TEST_PATIENCE", 600))  # seconds for anything: the machine may be busy
_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowRight": 39}


def executable() -> str | None:
    """The Chromium that is installed; SEALIFT_TEST_CHROMIUM names another one."""
    named = os.environ.get("SEALIFT_TEST_CHROMIUM")
    return named if named else next((found for name in _NAMES if (found := shutil.which(name))), None)


# The protocol's pipes are descriptors 3 and 4 there, whatever they are here.
_LAUNCH = "import os, sys; os.dup2(int(sys.argv[1]), 3); os.dup2(int(sys.argv[2]), 4); os.execv(sys.argv[3], sys.argv[3:])"


def _pipe() -> tuple[int, int]:
    """(to read, to write), numbered so that 3 and 4 stay free."""
    ends = os.pipe()
    found = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return found[0], found[1]


class ChromiumError(Exception):
    pass


@dataclass
class Browser:
    process: subprocess.Popen[bytes]
    commands: int
    answers: int
    _number: int = 0
    _bytes: bytes = b""
    events: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    @contextmanager
    def start(cls, program: str | None = None) -> Iterator[Browser]:
        found = program or executable()
        if found is None:
            raise ChromiumError("no Chromium; help: apt-get install chromium")
        theirs_in, ours_out = _pipe()
        ours_in, theirs_out = _pipe()
        with tempfile.TemporaryDirectory(prefix="sealift-chromium-", ignore_cleanup_errors=True) as profile:
            arguments = [
                "--headless", "--remote-debugging-pipe", f"--user-data-dir={profile}", "--no-first-run", "--disable-gpu", "--hide-scrollbars",
                "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-default-apps", "--no-default-browser-check",
                "--disable-dev-shm-usage", "--force-color-profile=srgb", "--font-render-hinting=none", "--lang=en-US", "--no-proxy-server",
                *(("--no-sandbox",) if os.geteuid() == 0 else ()), "about:blank",
            ]  # fmt: skip
            command = [sys.executable, "-c", _LAUNCH, str(theirs_in), str(theirs_out), found, *arguments]
            environment = {**os.environ, "HOME": profile, "TZ": "UTC", "DBUS_SESSION_BUS_ADDRESS": "disabled:"}
            process = subprocess.Popen(
                command, pass_fds=(theirs_in, theirs_out), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=environment
            )
            os.close(theirs_in)
            os.close(theirs_out)
            browser = cls(process, ours_out, ours_in)
            try:
                yield browser
            finally:
                try:
                    browser.send("Browser.close")
                except (ChromiumError, OSError):
                    process.kill()
                process.wait(PATIENCE_S)
                os.close(ours_out)
                os.close(ours_in)

    def send(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        number = self._number
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + PATIENCE_S
        while True:
            found = self._next(end)
            if found is None:
                raise ChromiumError(f"{method}: no answer within {PATIENCE_S:g} s")
            if found.get("id") == number:
                if "error" in found:
                    raise ChromiumError(f"{method}: {found['error']}")
                result: dict[str, Any] = found["result"]
                return result
            if "method" in found:
                self.events.append(found)

    def _next(self, end: float) -> dict[str, Any] | None:
        while b"\0" not in self._bytes:
            ready, _, _ = select.select([self.answers], [], [], max(end - time.monotonic(), 0))
            if not ready:
                return None
            part = os.read(self.answers, 1 << 20)
            if not part:
                raise ChromiumError("Chromium ended")
            self._bytes += part
        text, _, self._bytes = self._bytes.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message

    def listen(self, seconds: float) -> None:
        """Takes events for so long."""
        end = time.monotonic() + seconds
        while (found := self._next(end)) is not None:
            if "method" in found:
                self.events.append(found)

    def open(self, url: str, width: int = 1440, height: int = 900, scheme: str = "light", headers: dict[str, str] | None = None) -> Page:
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, target)
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            page.send(f"{domain}.enable")
        page.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        page.scheme(scheme)
        if headers:
            page.send("Network.setExtraHTTPHeaders", headers=headers)
        page.go(url)
        return page


@dataclass
class Page:
    browser: Browser
    session: str
    target: str

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self.browser.send(method, self.session, **parameters)

    def go(self, url: str) -> None:
        found = self.send("Page.navigate", url=url)
        if found.get("errorText"):
            raise ChromiumError(f"{url}: {found['errorText']}")
        self.until(f"document.readyState === 'complete' && location.href !== 'about:blank' && {json.dumps(found.get('loaderId', ''))} !== null")

    def evaluate(self, expression: str) -> Any:
        found = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise ChromiumError(f"{expression}: {found['exceptionDetails'].get('exception', {}).get('description', found['exceptionDetails'])}")
        return found["result"].get("value")

    def until(self, expression: str) -> Any:
        """The expression's value, as soon as it is true. A page that is being left answers nothing meanwhile."""
        end = time.monotonic() + PATIENCE_S
        problem = ""
        while time.monotonic() < end:
            try:
                if value := self.evaluate(expression):
                    return value
                problem = ""
            except ChromiumError as error:
                problem = str(error)
            self.browser.listen(0.05)
        raise ChromiumError(f"never true: {expression} {problem}")

    def leaving(self, act: Callable[[], Any]) -> None:
        """Does what leads to another document, and waits for that to be there."""
        self.evaluate("window.beforeLeaving = true")
        act()
        self.until("!window.beforeLeaving && document.readyState === 'complete'")

    def scheme(self, name: str) -> None:
        """Light or dark; without transitions, so that colours are there at once."""
        features = [{"name": "prefers-color-scheme", "value": name}, {"name": "prefers-reduced-motion", "value": "reduce"}]
        self.send("Emulation.setEmulatedMedia", features=features)

    def press(self, key: str) -> None:
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        about: dict[str, Any] = {"key": key, "code": key, "windowsVirtualKeyCode": _KEYS.get(key, ord(key[0].upper()))}
        self.send("Input.dispatchKeyEvent", type="keyDown" if text else "rawKeyDown", **about, **({"text": text} if text else {}))
        self.send("Input.dispatchKeyEvent", type="keyUp", **about)

    def type(self, text: str) -> None:
        self.send("Input.insertText", text=text)

    def picture(self, path: Path, whole: bool = False) -> None:
        data = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(data))

    def events(self, method: str) -> list[dict[str, Any]]:
        return [e["params"] for e in self.browser.events if e.get("sessionId") == self.session and e["method"] == method]

    def problems(self) -> list[str]:
        """What the console holds: errors, warnings, broken policies, uncaught exceptions."""
        self.browser.listen(0.05)
        found = [f"{e['entry']['level']}: {e['entry']['text']}" for e in self.events("Log.entryAdded") if e["entry"]["level"] in ("error", "warning")]
        found += [str(e["exceptionDetails"]) for e in self.events("Runtime.exceptionThrown")]
        return found + [str(e["args"]) for e in self.events("Runtime.consoleAPICalled") if e["type"] in ("error", "warning")]

    def requests(self) -> list[str]:
        return [e["request"]["url"] for e in self.events("Network.requestWillBeSent")]

    def close(self) -> None:
        self.browser.send("Target.closeTarget", targetId=self.target)
