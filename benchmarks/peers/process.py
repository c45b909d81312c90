"""The harness's side of a peer: its process, and the commands to it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from highway.process.readable import readable
from measure import Absent, Work

HERE = Path(__file__).resolve().parent


class Process:
    """A script of this folder in a process of its own: it takes commands, one a line, and answers in lines of JSON.

    Args:
        python: Interpreter of its environment.
        script: File in this folder, without ``.py``.
        arguments: Of the script.
        timeout: Seconds that an answer may take.
        variables: Environment variables besides those of this process.

    Attributes:
        hello: What it said at its start.

    Raises:
        Absent: it has no environment, or does not start.
    """

    def __init__(
        self, python: Path, script: str, arguments: Sequence[str | Path], timeout: float = 300, variables: Mapping[str, str] | None = None
    ) -> None:
        if not python.exists():
            raise Absent("no environment; create it with 'tox -e bench-peers'")
        self.timeout = timeout
        self._command = [python, HERE / f"{script}.py", *arguments]
        self._variables = os.environ | dict(variables or {})
        self.start()

    def start(self) -> None:
        """Start it, and wait until it is ready."""
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  # close() closes it
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True, env=self._variables
        )
        try:
            self.hello = self.answer()
        except BaseException:
            self.close()
            raise

    @property
    def versions(self) -> dict[str, str]:
        """Packages that it uses, and their versions."""
        return self.hello["versions"]

    def tell(self, command: str) -> None:
        """Write a command."""
        assert self._process.stdin
        try:
            print(command, file=self._process.stdin, flush=True)
        except BrokenPipeError:
            raise Absent(self._last_words()) from None

    def answer(self) -> dict[str, Any]:
        """Wait for an answer."""
        stdout = self._process.stdout
        assert stdout
        if not readable([stdout], self.timeout):
            self._process.kill()
            raise Absent(f"no answer within {self.timeout:g} s")
        line = stdout.readline()
        answer = json.loads(line) if line else {"error": self._last_words()}
        if "error" in answer:
            raise Absent(answer["error"])
        return answer

    def close(self) -> None:
        """End it: at the end of its input, or by force if it does not listen."""
        assert self._process.stdin and self._process.stdout
        try:
            self._process.stdin.close()
            self._process.wait(10)
        except (subprocess.TimeoutExpired, BrokenPipeError):
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._errors.close()

    def _last_words(self) -> str:
        try:
            code = self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._errors.seek(0)
        lines = [line.strip() for line in self._errors if line.strip() and not line.lstrip().startswith("@")]  # "@": a frame of a stack
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return f"ended with {how}: {lines[-1] if lines else 'it printed nothing'}"


class Peer:
    """A loader, which works only when it is told to.

    Args:
        process: Runs a script that :func:`worker.serve` serves; others may use it too, in turns.
        mode: Which of the script's ways this one is; ``""`` if there is one.
    """

    def __init__(self, process: Process, mode: str = "") -> None:
        self.process, self.mode = process, mode
        self.deaths: list[str] = []

    def work(self) -> Work:
        """Have it go over all images once; its own clock counts, from the start of the iteration to its end.

        If it has died, it is started again, warmed up by one pass, and asked again, once; ``deaths`` says of what.
        """
        try:
            return Work(**self._ask("pass"))
        except Absent as error:
            self.deaths.append(str(error))
        self.process.close()
        self.process.start()
        self._ask("pass")
        return Work(**self._ask("pass"))

    def check(self, path: Path) -> np.ndarray:
        """Have it see that each image comes once, and return the last of them: uint8 ``(B, H, W, 3)``. ``path`` is overwritten."""
        self._ask("check", str(path))
        return np.load(path)

    def _ask(self, *command: str) -> dict[str, Any]:
        self.process.tell(json.dumps([*command, self.mode] if self.mode else command))
        return self.process.answer()
