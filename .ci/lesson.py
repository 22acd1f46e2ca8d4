"""Lessons: PACKAGE/lesson.py (jupytext, percent format) is the source of lesson.ipynb and .png.

    python .ci/lesson.py write PACKAGE          execute the cells, write the notebook and picture
    python .ci/lesson.py check PACKAGE          tell it here; the notebook has the same cells, run
    python .ci/lesson.py seeds PACKAGE [COUNT]  ten seeds: by how much does each comparison hold?

The picture is the output of the cell tagged so: `# %% tags=["picture"]`. The cell tagged "learn"
prints a line of JSON, which the pages draw (pages/heat.py). A lesson runs in a copy of its folder,
renamed, without the rest. The findings with which it ends are the messages of its asserts.
"""

import ast
import base64
import contextlib
import io
import json
import os
import re
import shutil
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import jupytext
import nbformat

sys.path.insert(0, str(Path(__file__).parent / "pages"))
from heat import heat  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]


def has_tag(cell, tag: str) -> bool:
    return tag in cell.metadata.get("tags", [])


def write(folder: Path) -> list[str]:
    """Execute lesson.py cell by cell in the package's folder; raises what a cell raises."""
    from nbclient import NotebookClient

    os.environ["PYTHONWARNINGS"] = "ignore"  # of libraries about this machine
    os.environ.pop("MPLBACKEND", None)  # the notebook's own one keeps the pictures
    notebook = jupytext.read(folder / "lesson.py")
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"  # the same at every run
    options = {"timeout": 600, "kernel_name": "python3", "record_timing": False}
    NotebookClient(notebook, resources={"metadata": {"path": folder}}, **options).execute()
    for cell in notebook.cells:
        if has_tag(cell, "learn"):
            tables = json.loads(cell.outputs[0]["text"])
            tables = tables if isinstance(tables, list) else [tables]
            drawn = "".join(heat(**table) for table in tables)
            cell.outputs[1:] = [nbformat.v4.new_output("display_data", {"text/html": drawn})]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    notebook.metadata = {"kernelspec": kernel}
    (folder / "lesson.png").write_bytes(picture(notebook))
    nbformat.write(notebook, folder / "lesson.ipynb")
    return problems(folder)


def picture(notebook) -> bytes:
    """The PNG of the cell with the tag "picture"."""
    for cell in notebook.cells:
        for output in cell.outputs if has_tag(cell, "picture") else ():
            if "image/png" in output.get("data", {}):
                return base64.b64decode(output["data"]["image/png"])
    sys.exit('no cell has tags=["picture"] and draws one')


def problems(folder: Path) -> list[str]:
    """What is wrong with the committed lesson, its asserts aside."""
    source = jupytext.read(folder / "lesson.py")
    made = nbformat.read(folder / "lesson.ipynb", as_version=4)
    wrong = []
    if contents(source) != contents(made):
        wrong.append("lesson.ipynb has other cells than lesson.py")
    if any(cell.cell_type == "code" and not cell.execution_count for cell in made.cells):
        wrong.append("lesson.ipynb was not executed")
    if (folder / "lesson.png").read_bytes() != picture(made):
        wrong.append("lesson.png is not the notebook's picture")
    return [f"{words}: nox -s lesson -- {folder.name} --write" for words in wrong]


def contents(notebook) -> list[tuple[str, str]]:
    """Kind and text of each cell."""
    return [(cell.cell_type, cell.source.strip()) for cell in notebook.cells]


def bare(side: ast.expr) -> str:
    """One side of a comparison without the number that is added to it."""
    is_sum = isinstance(side, ast.BinOp) and isinstance(side.op, ast.Add | ast.Sub)
    if is_sum and isinstance(side.right, ast.Constant):
        side = side.left
    return f"({ast.unparse(side)})"


def differences(test: ast.expr) -> list[str]:
    """How much larger the larger side is, as Python, in each comparison of a test by < or >."""
    found = []
    for part in test.values if isinstance(test, ast.BoolOp) else [test]:
        signs = part.ops if isinstance(part, ast.Compare) else [None]
        if all(isinstance(sign, ast.Lt | ast.Gt) for sign in signs):
            sides = [bare(side) for side in (part.left, *part.comparators)]
            for sign, left, right in zip(signs, sides, sides[1:], strict=False):
                is_greater = isinstance(sign, ast.Gt)
                found.append(f"{left} - {right}" if is_greater else f"{right} - {left}")
    return found


class Noted(ast.NodeTransformer):
    """Each assert becomes a call with its test, its words, its message and its differences."""

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        words = ast.unparse(node.test)
        numbers = ", ".join(differences(node.test))
        message = ast.unparse(node.msg) if node.msg else repr(words)
        return ast.parse(f"_noted({words}, {words!r}, {message}, [{numbers}])").body[0]


def play(folder: Path, seed: int, is_told: bool) -> dict:
    """Run lesson.py in a copy of its folder: renamed, without the rest, from elsewhere.

    Returns what its asserts find, which of them fail, and the least difference of each that
    compares.
    """
    found = {"findings": [], "failed": [], "margins": {}}

    def noted(holds, words: str, message: str, numbers: list) -> None:
        if not holds:
            found["failed"].append(message)
        elif numbers:
            found["findings"].append(message)
        if numbers:
            found["margins"][words] = min(map(float, numbers))

    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "vendor", f"{folder.name}_copied", "lesson.py")
        left_behind = shutil.ignore_patterns("__pycache__", "tests", "experiments")
        shutil.copytree(folder, path.parent, ignore=left_behind)
        os.chdir(place)
        text = path.read_text(encoding="utf-8")
        if text.count("\nseed = 0\n") != 1:
            sys.exit("lesson.py must have one line `seed = 0`")
        text = text.replace("\nseed = 0\n", f"\nseed = {seed}\n")
        names = {"__file__": str(path), "__name__": "__main__", "_noted": noted}
        for cell in jupytext.reads(text, "py:percent").cells:
            is_shown = is_told and not has_tag(cell, "learn")
            output = sys.stdout if is_shown else io.StringIO()
            with contextlib.redirect_stdout(output):
                if cell.cell_type == "markdown":
                    told = re.sub(r"\s*<details>.*?</details>", "", cell.source, flags=re.S)
                    print(f"\n{told}\n", flush=True)
                else:
                    tree = ast.fix_missing_locations(Noted().visit(ast.parse(cell.source)))
                    exec(compile(tree, str(path), "exec"), names)
    return found


def run(folder: Path, seed: int = 0, is_told: bool = True) -> dict:
    """The same in a process of its own."""
    with ProcessPoolExecutor(1) as pool:
        return pool.submit(play, folder, seed, is_told).result()


def seeds(folder: Path, count: int) -> int:
    """Print the least and the mean difference of each comparison's sides.

    Returns 1 if an assert fails or a least difference is below half of its mean.
    """
    by_seed = []
    for seed in range(count):
        found = run(folder, seed, is_told=False)
        verdict = found["failed"] or ["all asserts hold"]
        print(f"seed {seed}:", *verdict, sep="\n    ", flush=True)
        by_seed.append(found)
    is_bad = any(found["failed"] for found in by_seed)
    print(f"{'':75}{'least':>9}{'mean':>9}  half of it")
    for words in by_seed[0]["margins"]:
        margins = [found["margins"][words] for found in by_seed]
        least, mean = min(margins), sum(margins) / count
        is_reached = least >= mean / 2
        is_bad |= not is_reached
        verdict = "reached" if is_reached else "NOT REACHED"
        print(f"{words[:75]:75}{least:9.2f}{mean:9.2f}  {verdict}")
    return int(is_bad)


def check(folder: Path) -> list[str]:
    """Tell the lesson and what it found; return what does not hold."""
    found = run(folder)
    print("\nWhat was found\n==============")
    for finding in found["findings"]:
        print(f"- {finding}")
    print(f"The same with its picture: {folder.name}/lesson.ipynb and {folder.name}/lesson.png")
    return [f"does not hold: {words}" for words in found["failed"]] + problems(folder)


def main(mode: str, package: str, count: str = "10") -> int:
    folder = ROOT / package
    if mode == "seeds":
        return seeds(folder, int(count))
    wrong = write(folder) if mode == "write" else check(folder)
    print(*wrong, sep="\n", end="\n" if wrong else "")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
