"""A real browser for tests: headless Chromium, driven through chromedriver's HTTP interface (W3C WebDriver)."""

import base64
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
_PATIENCE = 30  # seconds until the driver must answer


class Browser:
    """One window. What is not a method here is asked for with `cdp` (Chrome's DevTools protocol)."""

    def __init__(self, profile):
        chromium = shutil.which("chromium")
        driver = shutil.which("chromedriver")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._root = f"http://127.0.0.1:{port}"
        self._driver = subprocess.Popen(
            [driver, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            self._wait()
            options = {"binary": chromium, "args": [*FLAGS, f"--user-data-dir={profile}"]}
            wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
            made = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
            self._session = f"/session/{made['sessionId']}"
        except BaseException:
            self._driver.kill()
            self._driver.wait()
            raise

    def _wait(self):
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until:
            try:
                if self._ask("GET", "/status")["ready"]:
                    return
            except OSError:
                time.sleep(0.05)
        raise TimeoutError("chromedriver does not answer")

    def _ask(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._root + path, data, {"Content-Type": "application/json"}, method=method)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=_PATIENCE) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(error.read().decode()) from None

    def _do(self, path, **body):
        return self._ask("POST", self._session + path, body)

    def open(self, page):
        self._do("/url", url=page.as_uri())
        until = time.monotonic() + 60
        while self.run("return document.readyState") != "complete":  # a busy machine is late
            assert time.monotonic() < until, f"{page} is not read"
            time.sleep(0.05)

    def run(self, script, *arguments):
        """The value that a function body of JavaScript returns."""
        return self._do("/execute/sync", script=script, args=list(arguments))

    def cdp(self, command, **parameters):
        return self._do("/goog/cdp/execute", cmd=command, params=parameters)

    def resize(self, width, height=900):
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def media(self, kind="", scheme="light"):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.cdp("Emulation.setEmulatedMedia", media=kind, features=features)

    def messages(self):
        """What the console has heard since it was last asked."""
        return self._do("/se/log", type="browser")

    def screenshot(self):
        """The whole page as PNG."""
        return base64.b64decode(self.cdp("Page.captureScreenshot", captureBeyondViewport=True)["data"])

    def pdf(self):
        return base64.b64decode(self.cdp("Page.printToPDF", printBackground=False)["data"])

    def close(self):
        try:
            self._ask("DELETE", self._session)
        finally:
            self._driver.terminate()
            self._driver.wait()
