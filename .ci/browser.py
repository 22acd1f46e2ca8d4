"""Open the pages in Chromium: none is wider than its window or reports an error; screenshots are left beside them.

    python .ci/browser.py [FOLDER | PAGE ...]        default: pages

Each page is opened at 1280 and at 390 pixels, in light and in dark. This wants Debian's packages chromium and
chromium-driver; where they are not installed it says so and passes.
"""

import base64
import json
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

WIDTHS = (1280, 390)
SCHEMES = ("light", "dark")
FLAGS = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --hide-scrollbars --disable-sync"
FLAGS += " --disable-background-networking --disable-component-update"
# How many pixels a page is too wide, and what sticks out of it; what is in a box that scrolls by itself does not.
OVERFLOW = """
const over = Math.max(document.documentElement.scrollWidth, document.body.scrollWidth) - innerWidth;
const boxes = [...document.querySelectorAll("main *, nav *")].filter(e => !e.closest("pre, .scroll, .maths"));
const widest = boxes.filter(e => e.getBoundingClientRect().right > innerWidth);
return over > 0 ? [over, ...widest.slice(0, 3).map(e => e.outerHTML.slice(0, 200))] : [];
"""
# Boxes of code that scroll sideways where all is unfolded that a reader sees at first.
CUT = """
const boxes = [...document.querySelectorAll("pre")].filter(e => e.checkVisibility());
return [document.body.scrollHeight, boxes.filter(e => e.scrollWidth > e.clientWidth).length, boxes.length];
"""
# What is learned, without its slider, as a picture for README.md.
LEARNED = """
document.querySelectorAll(".learn input, .learn output").forEach(e => e.remove());
document.querySelectorAll(".now").forEach(e => e.classList.remove("now"));
const boxes = [...document.querySelectorAll(".learn figure, [data-tree]")].map(e => e.getBoundingClientRect());
if (!boxes.length) return null;
const [x, y] = [boxes[0].x - 6, boxes[0].y - 6], right = Math.min(x + 1000, Math.max(...boxes.map(box => box.right)));
return {x, y, width: right - x + 6, height: Math.max(...boxes.map(box => box.bottom)) - y + 6, scale: 1.5};
"""
LONGEST = 16_000  # pixels of a page in its screenshot


class Chromium:
    """A headless Chromium, spoken to through ChromeDriver's HTTP interface."""

    def __init__(self, chromium: str, driver: str, profile: str):
        self.process = subprocess.Popen([driver, "--port=0"], stdout=subprocess.PIPE, text=True)
        line = next(line for line in self.process.stdout if "started successfully on port" in line)
        self.url = f"http://localhost:{line.split()[-1].rstrip('.')}/session"
        options = {"binary": chromium, "args": [*FLAGS.split(), f"--user-data-dir={profile}"]}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        self.url += "/" + self.post("", capabilities={"alwaysMatch": wanted})["sessionId"]

    def post(self, path: str, **body):
        request = urllib.request.Request(
            self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def command(self, name: str, **parameters):
        """A command of the DevTools protocol."""
        return self.post("/goog/cdp/execute", cmd=name, params=parameters)

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()


def look(browser: Chromium, page: Path, width: int, scheme: str) -> list[str]:
    """Open a page, write its screenshot and return what is wrong with it."""
    media = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.command("Emulation.setEmulatedMedia", features=media)
    browser.command("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    browser.post("/url", url=page.resolve().as_uri())
    where, found = f"{page.name} at {width} pixels, {scheme}", []
    if over := browser.post("/execute/sync", script=OVERFLOW, args=[]):
        found.append(f"{where}: {over[0]} pixels too wide: {over[1:]}")
    found += [f"{where}: {entry['message']}" for entry in browser.post("/se/log", type="browser")]
    height, cut, boxes = browser.post("/execute/sync", script=CUT, args=[])
    print(f"{where}: {height} pixels, {cut} of {boxes} boxes cut, {page.stat().st_size} bytes")
    shots = {f"{page.stem}-{width}-{scheme}": dict(x=0, y=0, width=width, height=min(LONGEST, height), scale=1)}
    if (width, scheme) == (WIDTHS[0], SCHEMES[0]):
        shots[f"{page.stem}-learn"] = browser.post("/execute/sync", script=LEARNED, args=[])
    folder = page.parent / "screenshots"
    folder.mkdir(exist_ok=True)
    for name, clip in shots.items():
        if clip:
            shot = browser.command("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)["data"]
            (folder / f"{name}.png").write_bytes(base64.b64decode(shot))
    return found


def main(pages: list[Path]) -> int:
    """Look at the pages; return 1 if anything is wrong."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if not (chromium and driver):
        print(
            "browser: no Chromium with its ChromeDriver here (apt-get install chromium chromium-driver): not looked at"
        )
        return 0
    found, started = [], time.monotonic()
    with tempfile.TemporaryDirectory() as profile:
        browser = Chromium(chromium, driver, profile)
        try:
            for page in pages:
                for width in WIDTHS:
                    for scheme in SCHEMES:
                        found += look(browser, page, width, scheme)
        finally:
            browser.close()
    print(*found, sep="\n", end="\n" if found else "")
    seconds = time.monotonic() - started
    print(f"browser: {len(pages)} pages, {len(found)} problems, {seconds:.0f} s; look at {pages[0].parent}/screenshots")
    return 1 if found else 0


if __name__ == "__main__":
    given = [Path(name) for name in sys.argv[1:] or ["pages"]]
    sys.exit(main([page for path in given for page in (sorted(path.glob("*.html")) if path.is_dir() else [path])]))
