"""A real Chromium that cannot leave this machine, the built site and a fresh JupyterLab for it to open.

Where one of them is missing the tests are skipped with the reason; where CI is set they fail with it. Screenshots go to
artifacts/browser, to be looked at.
"""

from __future__ import annotations

import functools
import http.server
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

import pytest

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "artifacts" / "browser"
LOOPBACK = {"127.0.0.1", "localhost", "::1", None}  # None: data: and blob: addresses have no host
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",  # no other name is even looked up
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test of this folder drives a browser."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


def missing(reason: str) -> NoReturn:
    """Skip for `reason`, or fail where CI allows no skip."""
    if os.environ.get("CI"):
        pytest.fail(f"CI allows no skip: {reason}", pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """Playwright's handle on the system's Chromium."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("Playwright is not installed; it comes with the extra `dev`")
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        missing("there is no Chromium on the PATH (Debian, Ubuntu: apt-get install chromium)")
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=program, args=FLAGS)


class Watched:
    """A page, and what went wrong on it: console errors, failed loads, requests to other machines."""

    def __init__(self, context: Any) -> None:
        self.context = context
        self.faults: list[str] = []
        context.on("request", lambda request: self._look(request.url))
        self.page = context.new_page()
        self.page.set_default_timeout(20_000)
        self.page.on("console", lambda m: self.faults.append(f"console: {m.text}") if m.type == "error" else None)
        self.page.on("pageerror", lambda error: self.faults.append(f"script: {error}"))
        self.page.on("websocket", lambda opened: self._look(opened.url))
        self.page.on("response", lambda r: self.faults.append(f"{r.status}: {r.url}") if r.status >= 400 else None)

    def _look(self, url: str) -> None:
        if urlsplit(url).hostname not in LOOPBACK:  # it will fail, by the rules above
            self.faults.append(f"a request to another machine: {url}")

    def picture(self, name: str) -> None:
        """A screenshot of the window for the artefacts."""
        PICTURES.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=PICTURES / f"{name}.png")

    def whole_picture(self, name: str) -> None:
        """A screenshot of the whole page, which may be as high as thirty windows."""
        PICTURES.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=PICTURES / f"{name}.jpg", full_page=True, type="jpeg", quality=75)


DESKTOP = (1280, 900)


@pytest.fixture
def watch(chromium: Any) -> Iterator[Any]:
    """`watch(size)` opens an empty page; at the end of the test none may have seen a fault."""
    opened: list[Watched] = []

    def open_page(size: tuple[int, int] = DESKTOP) -> Watched:
        width, height = size
        opened.append(Watched(chromium.new_context(viewport={"width": width, "height": height})))
        return opened[-1]

    yield open_page
    faults = [fault for watched in opened for fault in watched.faults]
    for watched in opened:
        watched.context.close()
    assert faults == []


# The built site ---------------------------------------------------------------------------------------------------


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture(scope="session")
def built() -> Path:
    """The folder of the HTML book as it follows from the notebooks now."""
    if shutil.which("make") is None or not (ROOT / ".venv-site" / "for-the-site").exists():
        missing("there is no environment for the HTML book; `make site` makes it")
    made = subprocess.run(["make", "site"], cwd=ROOT, capture_output=True, text=True, encoding="utf-8", check=False)
    assert made.returncode == 0, f"make site failed, and a warning is a failure:\n{made.stdout}\n{made.stderr}"
    return ROOT / "_build" / "html"


def serve(folder: Path) -> http.server.ThreadingHTTPServer:
    """A server of a folder's files on a free port of this machine."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


@pytest.fixture(scope="session")
def site(built: Path) -> Iterator[str]:
    """The address of the built book."""
    server = serve(built)
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


# JupyterLab -------------------------------------------------------------------------------------------------------


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Lab:
    """A JupyterLab with settings, workspaces and notebooks of its own, in `home`."""

    def __init__(self, home: Path) -> None:
        self.notebooks = home / "notebooks"
        self.notebooks.mkdir()
        self.port = free_port()
        config = home / "config"
        (config / "labconfig").mkdir(parents=True)
        # What make does once for a reader: the first screen asks nothing and fetches no news.
        switched_off = {"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}
        (config / "labconfig" / "page_config.json").write_text(json.dumps(switched_off), encoding="utf-8")
        # Every cell is in the page, not only those in sight, so that what has run can be seen.
        tracker = home / "settings" / "@jupyterlab" / "notebook-extension" / "tracker.jupyterlab-settings"
        tracker.parent.mkdir(parents=True)
        tracker.write_text(json.dumps({"windowingMode": "none"}), encoding="utf-8")
        own = {"JUPYTER_CONFIG_DIR": config, "JUPYTER_DATA_DIR": home / "data", "IPYTHONDIR": home / "ipython"}
        own |= {"JUPYTERLAB_SETTINGS_DIR": home / "settings", "JUPYTERLAB_WORKSPACES_DIR": home / "workspaces"}
        environment = os.environ | {name: str(path) for name, path in own.items()}
        environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", f"--port={self.port}"]
        command += ["--IdentityProvider.token=", f"--ServerApp.root_dir={self.notebooks}", "--ServerApp.port_retries=0"]
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            command.append("--allow-root")
        self.log = home / "jupyterlab.log"
        with self.log.open("w", encoding="utf-8") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT, cwd=home)
        for _ in range(240):
            assert self.process.poll() is None, self.log.read_text(encoding="utf-8")
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/api", timeout=5).close()
                return
            except (urllib.error.URLError, TimeoutError):
                time.sleep(0.25)
        raise TimeoutError(f"JupyterLab did not answer within a minute:\n{self.log.read_text(encoding='utf-8')}")

    def open(self, page: Any, notebook: str) -> None:
        """Open a notebook of the folder and wait until its kernel can be used."""
        workspace = re.sub(r"\W", "", notebook)
        page.goto(f"http://127.0.0.1:{self.port}/lab/workspaces/{workspace}/tree/{notebook}")
        page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=60_000)
        page.wait_for_selector('.jp-Toolbar-kernelName:has-text("Python 3")', timeout=60_000)
        page.wait_for_selector('.jp-Notebook-ExecutionIndicator[data-status="idle"]', timeout=60_000)

    def run_all(self, page: Any, seconds: float = 100) -> None:
        """Run every cell by the menu, as a reader would, and wait until the last has run."""
        prompts = """[...document.querySelectorAll(".jp-CodeCell .jp-InputPrompt")].map((p) => p.textContent)"""
        waits = r"/^\[( |[*])\]/.test(p)"  # "[ ]:" has not run, "[*]:" is running; a folded cell shows nothing
        for _ in range(10):
            page.click('.lm-MenuBar-itemLabel:text-is("Run")')
            page.click('.lm-Menu-itemLabel:text-is("Run All Cells")')
            time.sleep(2)
            if not page.evaluate(f"{prompts}.every((p) => p === '' || p === '[ ]:')"):
                break  # a kernel that is just starting may not have heard the first time
        idle = """document.querySelector(".jp-Notebook-ExecutionIndicator").dataset.status == 'idle'"""
        page.wait_for_function(f"() => {idle} && !{prompts}.some((p) => {waits})", timeout=1000 * seconds)

    def stop(self) -> None:
        """End the server; it ends its kernels."""
        self.process.terminate()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@pytest.fixture(scope="session")
def lab(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A fresh JupyterLab on an empty folder."""
    if not shutil.which("jupyter") and not Path(sys.executable).with_name("jupyter").exists():
        missing("JupyterLab is not installed; it comes with the extra `book`")
    started = Lab(tmp_path_factory.mktemp("lab"))
    yield started
    started.stop()
