"""python .ci/pages [--root FOLDER] [--out pages] [PACKAGE ...]: see README.md here."""

import argparse
import sys
from pathlib import Path

import document
from page import Page

ROOT = Path(__file__).resolve().parents[2]


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="pages", description="Set each paper's formulas and code side by side."
    )
    parser.add_argument(
        "packages", nargs="*", help="folders below the root; default: those with a PAPER.md"
    )
    parser.add_argument("--root", type=Path, default=ROOT)
    parser.add_argument("--out", type=Path, default=ROOT / "pages")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    if (options.out / "index.html").exists():  # pages of the last time
        for old in options.out.glob("*.*"):
            old.unlink()
    all_packages = sorted(path.parent.name for path in options.root.glob("*/PAPER.md"))
    packages = options.packages or all_packages
    problems = []
    for name in packages:
        page = Page(options.root / name, options.out)
        page.write()
        problems += [f"{name}/{problem}" for problem in page.problems]
    document.write_index(options.root / "README.md", options.out, packages)
    problems += document.problems(options.out)
    print(*problems, f"open {options.out / 'index.html'}", sep="\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
