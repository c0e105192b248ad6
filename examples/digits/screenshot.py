"""Write docs/assets/run-page.png anew: the page of a run of `make demo`, in a real browser (Debian: chromium)."""

import shutil
import subprocess
import sys
import time
from pathlib import Path

import httpx
from playwright.sync_api import ViewportSize, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
REGISTRY = ROOT / ".demo" / "registry"
PICTURE = ROOT / "docs" / "assets" / "run-page.png"
URL = "http://127.0.0.1:8765"
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
    service = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        wait()
        runs = httpx.get(f"{URL}/v1/runs").json()["runs"]
        run = next(run["start"]["id"] for run in runs if run["end"]["outcome"] == "done")
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            page = browser.new_page(viewport=SIZE, color_scheme="light")
            page.goto(f"{URL}/runs/{run.removeprefix('run/')}")
            page.screenshot(path=PICTURE)
    finally:
        service.terminate()
        service.wait()


def wait() -> None:
    """Wait until the service answers."""
    for _ in range(100):
        try:
            httpx.get(f"{URL}/v1/health").raise_for_status()
        except httpx.HTTPError:
            time.sleep(0.2)
        else:
            return
    sys.exit("the service does not answer")


if __name__ == "__main__":
    main()
