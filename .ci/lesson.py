"""Lessons: PACKAGE/lesson.py (jupytext, percent format) is the source; lesson.ipynb and lesson.png
are made from it.

    python .ci/lesson.py write PACKAGE          execute the cells, write PACKAGE/lesson.ipynb and
    PACKAGE/lesson.png
    python .ci/lesson.py check PACKAGE          tell the lesson in the terminal; lesson.ipynb has
    the same cells, run
    python .ci/lesson.py seeds PACKAGE [COUNT]  run it with ten seeds: by how much does each
    comparison hold?

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
LARGEST = 300_000  # bytes of lesson.ipynb


def has_tag(cell, tag: str) -> bool:
    return tag in cell.metadata.get("tags", [])


def write(folder: Path) -> list[str]:
    """Execute lesson.py cell by cell in the package's folder, where a reader opens it; raises what
    a cell raises.
    """
    from nbclient import NotebookClient

    os.environ["PYTHONWARNINGS"] = "ignore"  # of libraries about this machine
    os.environ.pop("MPLBACKEND", None)  # the notebook's own one keeps the pictures
    notebook = jupytext.read(folder / "lesson.py")
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"  # the same at every run
    place = {"metadata": {"path": folder}}
    NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources=place, record_timing=False
    ).execute()
    for cell in notebook.cells:
        if has_tag(cell, "learn"):
            tables = json.loads(cell.outputs[0]["text"])
            drawn = "".join(
                heat(**table) for table in (tables if isinstance(tables, list) else [tables])
            )
            cell.outputs[1:] = [nbformat.v4.new_output("display_data", {"text/html": drawn})]
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}
    }
    (folder / "lesson.png").write_bytes(picture(notebook))
    nbformat.write(notebook, folder / "lesson.ipynb")
    return problems(folder)


def picture(notebook) -> bytes:
    """The PNG of the cell with the tag "picture"."""
    outputs = [
        output for cell in notebook.cells if has_tag(cell, "picture") for output in cell.outputs
    ]
    pictures = [
        output["data"]["image/png"] for output in outputs if "image/png" in output.get("data", {})
    ]
    return (
        base64.b64decode(pictures[0])
        if pictures
        else sys.exit('no cell has tags=["picture"] and draws one')
    )


def problems(folder: Path) -> list[str]:
    """What is wrong with the committed lesson, its asserts aside."""
    source, made = (
        jupytext.read(folder / "lesson.py"),
        nbformat.read(folder / "lesson.ipynb", as_version=4),
    )
    size = (folder / "lesson.ipynb").stat().st_size
    cells, written = (
        [(cell.cell_type, cell.source.strip()) for cell in each.cells] for each in (source, made)
    )
    wrong = {
        "lesson.ipynb has other cells than lesson.py": cells != written,
        "lesson.ipynb was not executed": any(
            c.cell_type == "code" and not c.execution_count for c in made.cells
        ),
        "lesson.png is not the notebook's picture": (folder / "lesson.png").read_bytes()
        != picture(made),
        f"lesson.ipynb has {size} bytes; at most {LARGEST}": size > LARGEST,
    }
    return [
        f"{words}: nox -s lesson -- {folder.name} --write"
        for words, is_wrong in wrong.items()
        if is_wrong
    ]


def bare(side: ast.expr) -> str:
    """One side of a comparison without the number that is added to it."""
    is_sum = isinstance(side, ast.BinOp) and isinstance(side.op, ast.Add | ast.Sub)
    return (
        f"({ast.unparse(side.left if is_sum and isinstance(side.right, ast.Constant) else side)})"
    )


def differences(test: ast.expr) -> list[str]:
    """How much larger the larger side is, as Python, in each comparison with < or > that a test
    consists of.
    """
    found = []
    for part in test.values if isinstance(test, ast.BoolOp) else [test]:
        if isinstance(part, ast.Compare) and all(
            isinstance(sign, ast.Lt | ast.Gt) for sign in part.ops
        ):
            sides = [bare(side) for side in (part.left, *part.comparators)]
            for sign, left, right in zip(part.ops, sides, sides[1:], strict=False):
                found.append(
                    f"{left} - {right}" if isinstance(sign, ast.Gt) else f"{right} - {left}"
                )
    return found


class Noted(ast.NodeTransformer):
    """Each assert becomes a call with its test, its words, its message and its differences."""

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        words, numbers = ast.unparse(node.test), ", ".join(differences(node.test))
        message = ast.unparse(node.msg) if node.msg else repr(words)
        return ast.parse(f"_noted({words}, {words!r}, {message}, [{numbers}])").body[0]


def play(folder: Path, seed: int, is_told: bool) -> dict:
    """Run lesson.py as a reader of a copy does: renamed, without the rest, from another working
    directory.

    Returns what its asserts find, which of them fail, and the least difference of each that
    compares.
    """
    found = {"findings": [], "failed": [], "margins": {}}

    def noted(holds, words: str, message: str, numbers: list) -> None:
        found["findings" if holds and numbers else "failed"] += (
            [message] if numbers or not holds else []
        )
        found["margins"] |= {words: min(map(float, numbers))} if numbers else {}

    with tempfile.TemporaryDirectory() as place:
        path = Path(place, "vendor", f"{folder.name}_copied", "lesson.py")
        shutil.copytree(
            folder,
            path.parent,
            ignore=shutil.ignore_patterns("__pycache__", "tests", "experiments"),
        )
        os.chdir(place)
        text, names = (
            path.read_text(encoding="utf-8"),
            {"__file__": str(path), "__name__": "__main__", "_noted": noted},
        )
        if text.count("\nseed = 0\n") != 1:
            sys.exit("lesson.py must have one line `seed = 0`")
        for cell in jupytext.reads(
            text.replace("\nseed = 0\n", f"\nseed = {seed}\n"), "py:percent"
        ).cells:
            is_hidden = not is_told or has_tag(cell, "learn")
            with (
                contextlib.redirect_stdout(io.StringIO()) if is_hidden else contextlib.nullcontext()
            ):
                if cell.cell_type == "markdown":
                    print(
                        "\n"
                        + re.sub(r"\s*<details>.*?</details>", "", cell.source, flags=re.S)
                        + "\n",
                        flush=True,
                    )
                else:
                    tree = ast.fix_missing_locations(Noted().visit(ast.parse(cell.source)))
                    exec(compile(tree, str(path), "exec"), names)
    return found


def run(folder: Path, seed: int = 0, is_told: bool = True) -> dict:
    """The same in a process of its own."""
    with ProcessPoolExecutor(1) as pool:
        return pool.submit(play, folder, seed, is_told).result()


def seeds(folder: Path, count: int) -> int:
    """Print for each comparison the least and the mean difference of its sides; 1 if one is below
    half of its mean.
    """
    each = []
    for seed in range(count):
        each.append(run(folder, seed, is_told=False))
        print(
            f"seed {seed}:", *each[-1]["failed"] or ["all asserts hold"], sep="\n    ", flush=True
        )
    is_bad = any(found["failed"] for found in each)
    print(f"{'':75}{'least':>9}{'mean':>9}  half of it")
    for words in each[0]["margins"]:
        margins = [found["margins"][words] for found in each]
        least, mean = min(margins), sum(margins) / count
        is_bad |= least < mean / 2
        print(
            f"{words[:75]:75}{least:9.2f}{mean:9.2f}  "
            f"{'NOT REACHED' if least < mean / 2 else 'reached'}"
        )
    return int(is_bad)


def check(folder: Path) -> list[str]:
    """Tell the lesson and what it found; return what does not hold."""
    found = run(folder)
    print(
        "\nWhat was found\n==============",
        *(f"- {finding}" for finding in found["findings"]),
        sep="\n",
    )
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
