"""Open the pages in Chromium and leave screenshots beside them.

    python .ci/browser.py [FOLDER]        default: pages

Each page is opened at 1280 and at 390 pixels, in light and in dark. None may be wider than its
window or report an error; at 1280 no line of code may be broken. What is learned on a page (.learn)
is a picture of its own. This wants Debian's package chromium; without it, it says so and passes.
"""

import itertools
import shutil
import sys
from pathlib import Path

# By how many pixels a page is wider than its window.
TOO_WIDE = "Math.max(document.documentElement.scrollWidth, document.body.scrollWidth) - innerWidth"
# Lines of code beside formulas that do not fit; all folds are open then.
BROKEN = """() => {
document.querySelectorAll("details").forEach(e => { e.open = true; });
return [...document.querySelectorAll(".row .line")]
  .filter(e => e.offsetHeight > 1.5 * parseFloat(getComputedStyle(e).lineHeight))
  .map(e => e.textContent);
}"""
# What is learned, as a picture that does not move.
STILL = """() => {
document.querySelectorAll(".learn input, .learn output, .learn > p").forEach(e => e.remove());
document.querySelectorAll(".now, .on").forEach(e => e.classList.remove("now", "on"));
document.querySelectorAll(".learn").forEach(e => {
  Object.assign(e.style, { width: e.dataset.tree ? "760px" : "fit-content",
    maxWidth: "1160px", padding: "12px" });
});
}"""


def look(browser, path: Path, width: int, scheme: str) -> list[str]:
    """Open a page, write its screenshot and return what is wrong with it."""
    name = f"{path.stem}-{width}-{scheme}"
    shots = path.parent / "screenshots"
    found = []
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.on("console", lambda said: found.append(f"{name}: {said.text}"))
    page.on("pageerror", lambda error: found.append(f"{name}: {error}"))
    page.goto(path.resolve().as_uri())
    if (over := page.evaluate(TOO_WIDE)) > 0:
        found.append(f"{name}: {over} pixels too wide")
    height = page.evaluate("document.body.scrollHeight")
    print(f"{name}: {height} pixels high, {path.stat().st_size} bytes")
    page.screenshot(path=shots / f"{name}.png", full_page=True)
    if (width, scheme) == (1280, "light") and page.locator(".learn").count():
        page.evaluate(STILL)
        page.locator(".learn").first.screenshot(path=shots / f"{path.stem}-learn.png")
    if width == 1280:
        for line in page.evaluate(BROKEN):
            found.append(f"{name}: a line of code is broken: {line}")
    page.close()
    return found


def main(folder: str = "pages") -> int:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if not chromium:
        print("browser: no Chromium here (apt-get install chromium): not looked at")
        return 0
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        pages = sorted(Path(folder).glob("*.html"))
        found = []
        for path, width, scheme in itertools.product(pages, (1280, 390), ("light", "dark")):
            found += look(browser, path, width, scheme)
    print(*found, f"browser: look at {folder}/screenshots", sep="\n")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
