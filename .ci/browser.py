"""Open the pages in Chromium: none is wider than its window or reports an error; screenshots are left beside them.

    python .ci/browser.py [FOLDER | PAGE ...]        default: pages

Each page is opened at 1280 and at 390 pixels, in light and in dark, and what is learned on it (.learn) is a picture of
its own. This wants Debian's package chromium; where it is not installed it says so and passes.
"""

import shutil
import sys
from pathlib import Path

WIDTHS = (1280, 390)
# How many pixels a page is too wide, its height, how many boxes of code scroll sideways, and of how many that are seen.
MEASURE = """() => {
const boxes = [...document.querySelectorAll("pre")].filter(e => e.checkVisibility());
return [Math.max(document.documentElement.scrollWidth, document.body.scrollWidth) - innerWidth,
  document.body.scrollHeight, boxes.filter(e => e.scrollWidth > e.clientWidth).length, boxes.length];
}"""
# What is learned, without its slider: x, y, width and height.
LEARNED = """() => {
document.querySelectorAll(".learn input, .learn output").forEach(e => e.remove());
document.querySelectorAll(".now").forEach(e => e.classList.remove("now"));
const boxes = [...document.querySelectorAll(".learn figure, [data-tree]")].map(e => e.getBoundingClientRect());
if (!boxes.length) return null;
const [x, y] = [boxes[0].x - 6, boxes[0].y - 6], right = Math.min(x + 1000, Math.max(...boxes.map(box => box.right)));
return {x, y, width: right - x + 6, height: Math.max(...boxes.map(box => box.bottom)) - y + 6};
}"""


def look(browser, page: Path, width: int, scheme: str) -> list[str]:
    """Open a page, write its screenshot and return what is wrong with it."""
    where, found = f"{page.name} at {width} pixels, {scheme}", []
    window = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    window.on("console", lambda said: found.append(f"{where}: {said.text}"))
    window.on("pageerror", lambda error: found.append(f"{where}: {error}"))
    window.goto(page.resolve().as_uri())
    over, height, cut, boxes = window.evaluate(MEASURE)
    found += [f"{where}: {over} pixels too wide"] if over > 0 else []
    print(f"{where}: {height} pixels, {cut} of {boxes} boxes cut, {page.stat().st_size} bytes")
    folder = page.parent / "screenshots"
    window.screenshot(path=folder / f"{page.stem}-{width}-{scheme}.png", full_page=True)
    if (width, scheme) == (WIDTHS[0], "light") and (clip := window.evaluate(LEARNED)):
        window.screenshot(path=folder / f"{page.stem}-learn.png", full_page=True, clip=clip)
    window.close()
    return found


def main(pages: list[Path]) -> int:
    """Look at the pages; return 1 if anything is wrong."""
    if not (chromium := shutil.which("chromium") or shutil.which("google-chrome")):
        print("browser: no Chromium here (apt-get install chromium): not looked at")
        return 0
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        found = [
            f for page in pages for width in WIDTHS for s in ("light", "dark") for f in look(browser, page, width, s)
        ]
    print(*found, f"browser: {len(pages)} pages; look at {pages[0].parent}/screenshots", sep="\n")
    return int(bool(found))


if __name__ == "__main__":
    given = [Path(name) for name in sys.argv[1:] or ["pages"]]
    sys.exit(main([page for path in given for page in (sorted(path.glob("*.html")) if path.is_dir() else [path])]))
