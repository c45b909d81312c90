"""A headless Chromium that tests look at pages with, over the pipe that it has for this: no driver, no port, no package."""

import base64
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from highway.process.readable import readable

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
ANSWER = 60  # seconds that it may take to answer


class Chromium:
    """A browser with one page, which notes what scripts and the security policy complain of."""

    def __init__(self, folder: Path) -> None:
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions"]
        options += ["--remote-debugging-pipe", f"--user-data-dir={folder}", "--disable-background-networking", "--no-proxy-server"]
        script = f'exec 3<&{to_read} 4>&{to_write}; exec "$@"'
        self._process = subprocess.Popen(
            ["bash", "-c", script, "-", PROGRAM, *options, "about:blank"],
            pass_fds=(to_read, to_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(to_read)
        os.close(to_write)
        self._number, self._session, self._rest = 0, None, b""
        self.complaints: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Performance"):
            self.call(f"{domain}.enable")

    def call(self, method, **parameters):
        """Send a command, and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                return answer["result"]
            if answer.get("method") == "Runtime.exceptionThrown":
                self.complaints.append(str(answer["params"]["exceptionDetails"]))
            if answer.get("method") == "Log.entryAdded" and answer["params"]["entry"]["level"] == "error":
                self.complaints.append(str(answer["params"]["entry"]))

    def _next(self):
        while b"\0" not in self._rest:
            assert readable([self._read], ANSWER), "Chromium does not answer"
            read = os.read(self._read, 1 << 20)
            assert read, "Chromium has ended"
            self._rest += read
        message, _, self._rest = self._rest.partition(b"\0")
        return json.loads(message)

    def open(self, url, width=1360, height=900, dark=False, is_phone=False):
        """Show a page."""
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=scheme)
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=is_phone)
        self.call("Page.navigate", url=url)

    def run(self, script):
        """Return what an expression of JavaScript gives, which may be a promise."""
        result = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def texts(self, selector):
        """Return the texts of some elements."""
        return self.run(f"[...document.querySelectorAll({json.dumps(selector)})].map((one) => one.textContent)")

    def rows(self, table):
        """Return the texts of a table's body."""
        cells = "(row) => [...row.children].map((cell) => cell.textContent)"
        return self.run(f"[...document.querySelectorAll({json.dumps(table + ' tbody tr')})].map({cells})")

    def memory(self):
        """Return what the pages take, after a collection of garbage: nodes, listeners, bytes of scripts, bytes of the processes."""
        self.call("HeapProfiler.collectGarbage")
        found = {one["name"]: one["value"] for one in self.call("Performance.getMetrics")["metrics"]}
        self._session, page = None, self._session  # processes are those of the browser, not of a page
        processes = self.call("SystemInfo.getProcessInfo")["processInfo"]
        self._session = page
        pages = [Path(f"/proc/{one['id']}/statm").read_text().split()[1] for one in processes if one["type"] == "renderer"]
        resident = sum(map(int, pages)) * os.sysconf("SC_PAGE_SIZE")
        return found["Nodes"], found["JSEventListeners"], found["JSHeapUsedSize"], resident

    def until(self, script, timeout=100):
        """Wait until an expression is true, and return its value."""
        code = f"""new Promise((done) => {{
            const until = Date.now() + {1000 * timeout};
            const look = () => {{
                let found = null;
                try {{ found = ({script}); }} catch (error) {{ found = null; }}
                if (found || Date.now() > until) done(found); else setTimeout(look, 50);
            }};
            look();
        }})"""
        found = self.run(code)
        assert found, f"not within {timeout} s: {script}; the page says: {self.run('document.body.innerText')[:3000]}"
        return found

    def screenshot(self, path, whole=True):
        """Write what is seen, or the whole page, as PNG."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        Path(path).write_bytes(base64.b64decode(shot["data"]))

    def close(self):
        os.close(self._write)  # by which it ends
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        os.close(self._read)


@pytest.fixture
def chromium(tmp_path):
    if PROGRAM is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    browser = Chromium(tmp_path / "chromium")
    yield browser
    browser.close()
