"""Write docs/assets/run-page.png anew: the page of a run of `make demo`, in a real browser (Debian: chromium)."""

import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO

import httpx
from playwright.sync_api import ViewportSize, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
REGISTRY = ROOT / ".demo" / "registry"
PICTURE = ROOT / "docs" / "assets" / "run-page.png"
URL = "http://127.0.0.1:8765"
ATTEMPTS, SHOWN = 100, 8
NEXT = "benchlock --registry .demo/registry db upgrade, or make the registry anew: rm -r .demo, then make demo"
SIZE: ViewportSize = {"width": 1100, "height": 900}


def main() -> None:
    """Serve the registry of the demo, and take the picture."""
    if not REGISTRY.exists():
        sys.exit("no registry: run `make demo` first")
    command: list[str | Path] = [
        Path(sys.executable).parent / "benchlock",
        "--registry",
        REGISTRY,
        "serve",
        "--open",
        "--port",
        "8765",
    ]
    with tempfile.TemporaryFile("w+") as messages:
        service = subprocess.Popen(command, stderr=messages)
        try:
            wait(service, messages)
            take_picture(find_done_run())
        finally:
            service.terminate()
            service.wait()


def wait(service: subprocess.Popen[bytes], messages: IO[str]) -> None:
    """Wait until the service is ready; if it ends or never is, exit with its own words and with what to do."""
    reason = "it printed nothing"
    for _ in range(ATTEMPTS):
        if service.poll() is not None:
            break
        try:
            answer = httpx.get(f"{URL}/v1/ready")
        except httpx.HTTPError:
            time.sleep(0.2)
            continue
        if answer.is_success:
            return
        reason = answer.text
        time.sleep(0.2)
    messages.seek(0)
    said = "\n".join(map(read_message, messages.read().splitlines()[-SHOWN:])) or reason
    sys.exit(f"cannot serve {REGISTRY} at {URL}:\n{said}\nnext: {NEXT}")


def read_message(line: str) -> str:
    """Return the message of a line of the service's log, which is JSON; another line as it is."""
    return str(json.loads(line)["message"]) if line.startswith("{") else line


def find_done_run() -> str:
    """Return the id of the newest done run, or exit with what to do."""
    runs = httpx.get(f"{URL}/v1/runs").json()["runs"]
    done = (run["start"]["id"] for run in runs if run["end"]["outcome"] == "done")
    return next(done, "") or sys.exit(f"{REGISTRY} has no done run\nnext: run `make demo`")


def take_picture(run: str) -> None:
    """Write the picture of the page of a run."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport=SIZE, color_scheme="light")
        page.goto(f"{URL}/runs/{run.removeprefix('run/')}")
        page.screenshot(path=PICTURE)


if __name__ == "__main__":
    main()
