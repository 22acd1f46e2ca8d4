"""Lessons: PACKAGE/lesson.py (jupytext, percent format) is the source; lesson.ipynb and lesson.png are made from it.

    python .ci/lesson.py write PACKAGE          execute the cells, write PACKAGE/lesson.ipynb and PACKAGE/lesson.png
    python .ci/lesson.py check PACKAGE          tell the lesson in the terminal; lesson.ipynb has the same cells, run
    python .ci/lesson.py seeds PACKAGE [COUNT]  run it with ten seeds: by how much does each comparison hold?

The picture is the output of the cell tagged so: `# %% tags=["picture"]`. The cell tagged "learn" prints a line of JSON,
which the pages draw (pages/heat.py). A lesson runs in a copy of its folder, renamed, without the rest. The
finding with which it ends are the messages of its asserts.
"""

import ast
import base64
import contextlib
import io
import json
import operator
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import jupytext
import nbformat

sys.path.insert(0, str(Path(__file__).parent / "pages"))
from heat import heat  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
LONGEST, LARGEST = 182, 300_000  # lines of lesson.py, bytes of lesson.ipynb
OPERATORS = {"Lt": operator.lt, "LtE": operator.le, "Gt": operator.gt, "GtE": operator.ge}
GREEK = dict(alpha="α", beta="β", delta="δ", epsilon="ε", gamma="γ", lambda_="λ", pi="π", sigma="σ", theta="θ", sum="Σ")
SIGNS = GREEK | dict(
    cdot="·", times="×", le="≤", ge="≥", to="→", dots="...", quad="  ", qquad="   ", ln="ln ", log="log "
)
UNSEEN = r"\\(mathrm|mathbf|text|operatorname|textstyle|tfrac|frac|big|Big|left|right)(?![a-z])|\\[,;! ]|[{}]|\\(?=\W)"


def write(folder: Path) -> None:
    """Execute lesson.py cell by cell in the package's folder, where a reader opens it; raises what a cell raises."""
    from nbclient import NotebookClient

    os.environ["PYTHONWARNINGS"] = "ignore"  # of libraries about this machine
    os.environ.pop("MPLBACKEND", None)  # the notebook's own one keeps the pictures
    notebook = jupytext.read(folder / "lesson.py")
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"  # the same at every run
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": folder}}).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times
        if "learn" in cell.metadata.get("tags", []):
            draw(cell)
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    (folder / "lesson.png").write_bytes(picture(notebook))
    nbformat.write(notebook, folder / "lesson.ipynb")


def draw(cell) -> None:
    """Add the tables that a cell printed as JSON to its outputs, drawn."""
    tables = json.loads(cell.outputs[0]["text"])
    drawn = "".join(heat(**table) for table in (tables if isinstance(tables, list) else [tables]))
    cell.outputs[1:] = [nbformat.v4.new_output("display_data", {"text/html": drawn})]


def picture(notebook) -> bytes:
    """The PNG of the cell with the tag "picture"."""
    for cell in notebook.cells:
        if "picture" in cell.metadata.get("tags", []):
            for output in cell.outputs:
                if "image/png" in output.get("data", {}):
                    return base64.b64decode(output["data"]["image/png"])
    raise SystemExit('no cell has tags=["picture"] and draws one')


def problems(folder: Path) -> list[str]:
    """What is wrong with the committed lesson, its asserts aside."""
    source, found = (folder / "lesson.py").read_text(encoding="utf-8"), []
    made = nbformat.read(folder / "lesson.ipynb", as_version=4)
    cells = [(cell.cell_type, cell.source.strip()) for cell in jupytext.read(folder / "lesson.py").cells]
    if cells != [(cell.cell_type, cell.source.strip()) for cell in made.cells]:
        found.append("lesson.ipynb has other cells than lesson.py")
    code = [cell for cell in made.cells if cell.cell_type == "code"]
    if not all(cell.execution_count for cell in code) or not any(cell.outputs for cell in code):
        found.append("lesson.ipynb was not executed")
    if (folder / "lesson.png").read_bytes() != picture(made):
        found.append("lesson.png is not the notebook's picture")
    if len(source.splitlines()) > LONGEST:
        found.append(f"lesson.py has {len(source.splitlines())} lines; at most {LONGEST}")
    if (size := (folder / "lesson.ipynb").stat().st_size) > LARGEST:
        found.append(f"lesson.ipynb has {size} bytes; at most {LARGEST}")
    return [f"{line}: nox -s lesson -- {folder.name} --write" for line in found]


class Compared(ast.NodeTransformer):
    """Comparisons become calls that get both sides, a number that is added to one of them apart."""

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        sides = []
        for side in (node.left, *node.comparators):
            is_sum = isinstance(side, ast.BinOp) and isinstance(side.op, ast.Add | ast.Sub)
            if is_sum and isinstance(side.right, ast.Constant):
                sign = "-" if isinstance(side.op, ast.Sub) else ""
                sides.append(f"({ast.unparse(side.left)}, {sign}{side.right.value})")
            else:
                sides.append(f"({ast.unparse(side)}, 0)")
        names = [type(one).__name__ for one in node.ops]
        if not set(names) <= OPERATORS.keys():
            return node
        return ast.parse(f"_compared({ast.unparse(node)!r}, {names}, [{', '.join(sides)}])", mode="eval").body


class Lesson:
    """A run of lesson.py: what its asserts find and, by comparison, the least difference of the two sides."""

    def __init__(self, path: Path, seed: int, is_told: bool):
        self.path, self.is_told, self.findings, self.failed, self.margins = path, is_told, [], [], {}
        self.names = {"__file__": str(path), "__name__": "__main__", "_compared": self.compared}
        self.names["_asserted"], self.is_of_numbers = self.asserted, False
        text = path.read_text(encoding="utf-8")
        if text.count("\nseed = 0\n") != 1:
            sys.exit(f"{path.name} must have one line `seed = 0`")
        self.cells = jupytext.reads(text.replace("\nseed = 0\n", f"\nseed = {seed}\n"), "py:percent").cells

    def compared(self, words: str, names: list[str], sides: list[tuple]) -> bool:
        """What a comparison gives; of two numbers, the difference is noted."""
        holds = True
        for name, (left, more), (right, least) in zip(names, sides, sides[1:], strict=False):
            holds = holds and OPERATORS[name](left + more if more else left, right + least if least else right)
            with contextlib.suppress(TypeError, ValueError, RuntimeError):  # a tensor is no number
                difference = float(left) - float(right) if name[0] == "G" else float(right) - float(left)
                self.margins[words] = min(difference, self.margins.get(words, difference))
                self.is_of_numbers = True
        return holds

    def asserted(self, holds: bool, words: str, message: str) -> bool:
        """Note an assert that does not hold, or the message of one that compares numbers."""
        said, self.is_of_numbers = self.findings if holds and self.is_of_numbers else [], False
        (said if holds else self.failed).append(message or words)
        return True

    def run(self) -> None:
        """Run the cells in their order, each after its text."""
        for cell in self.cells:
            if cell.cell_type == "markdown":
                if self.is_told:
                    print(words_of(cell.source), flush=True)
                continue
            tree = ast.parse(cell.source)
            for node in [node for node in ast.walk(tree) if isinstance(node, ast.Assert)]:
                words, message = ast.unparse(node.test), ast.unparse(node.msg) if node.msg else "''"
                test = ast.unparse(Compared().visit(node.test))
                node.test = ast.parse(f"_asserted({test}, {words!r}, {message})", mode="eval").body
            is_hidden = not self.is_told or "learn" in cell.metadata.get("tags", [])
            with contextlib.redirect_stdout(io.StringIO()) if is_hidden else contextlib.nullcontext():
                exec(compile(ast.fix_missing_locations(tree), str(self.path), "exec"), self.names)
            if self.is_told and self.failed:
                sys.exit(f"{self.path.name}: does not hold: {'; '.join(self.failed)}")


def words_of(markdown: str) -> str:
    """Markdown as it reads in a terminal: wrapped, formulas in plain signs, folded answers left out."""
    text = re.sub(r"<details>.*?</details>|\n#+ Try\b.*", "", f"\n{markdown}", flags=re.S)
    text = re.sub(r"!?\[([^]]*)\]\([^)]*\)|\*\*|`|\*(?=\w[^*\n]*\*)|(?<=\w)\*(?!\w)", r"\1", text)

    def signs(match: re.Match) -> str:
        bare = re.sub(r"frac(?:\{([^{}]*)\}\{([^{}]*)\}|(\w)(\w))", r"frac \1\3/\2\4", match[1])
        named = re.sub(r"\\([A-Za-z]+)", lambda name: SIGNS.get(name[1], SIGNS.get(name[1] + "_", name[0])), bare)
        return " ".join(re.sub(r"\\", "", re.sub(UNSEEN, "", named)).split())

    text = re.sub(r"\$\$?(.+?)\$\$?", signs, text, flags=re.S)
    parts = []
    for part in re.split(r"\n(?=#|[-\d]\.? )|\n\s*\n", text):
        title = re.match(r"\s*#+ (.*)", part)
        rest = part[title.end() :] if title else part
        parts += [f"{title[1]}\n{'=' * len(title[1])}"] if title else []
        parts += [textwrap.fill(" ".join(rest.split()), 88)] if rest.strip() else []
    return "\n" + "\n\n".join(parts) + "\n"


def run(folder: Path, seed: int = 0, is_told: bool = True) -> dict:
    """Run lesson.py as a reader of a copy does: renamed, without the rest, from another working directory."""
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place, "vendor", f"{folder.name}_copied")
        shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("__pycache__", "tests", "experiments"))
        command = [sys.executable, __file__, "play", str(copy / "lesson.py"), str(seed), "told" if is_told else ""]
        ended = subprocess.run(command, cwd=place, env=os.environ | {"MPLBACKEND": "Agg"})
        if ended.returncode:
            sys.exit(ended.returncode)
        return json.loads((copy / "noted.json").read_text(encoding="utf-8"))


def play(path: Path, seed: int, is_told: bool) -> None:
    """What `run` starts in a process of its own."""
    lesson = Lesson(path, seed, is_told)
    lesson.run()
    noted = {"findings": lesson.findings, "failed": lesson.failed, "margins": lesson.margins}
    path.with_name("noted.json").write_text(json.dumps(noted), encoding="utf-8")


def seeds(folder: Path, count: int) -> int:
    """Print for each comparison the least and the mean difference of its sides; 1 if one is below half of its mean."""
    noted = []
    for seed in range(count):
        noted.append(run(folder, seed, is_told=False))
        print(f"seed {seed}:", *noted[-1]["failed"] or ["all asserts hold"], sep="\n    ", flush=True)
    is_bad = any(each["failed"] for each in noted)
    print(f"{'':75}{'least':>9}{'mean':>9}  half of it")
    for words in dict.fromkeys(words for each in noted for words in each["margins"]):
        found = [each["margins"][words] for each in noted if words in each["margins"]]
        least, mean = min(found), sum(found) / len(found)
        is_bad |= least < mean / 2
        print(f"{words[:75]:75}{least:9.2f}{mean:9.2f}  {'NOT REACHED' if least < mean / 2 else 'reached'}")
    return int(is_bad)


def main(mode: str, package: str, *rest: str) -> int:
    folder = ROOT / package
    if mode == "play":
        play(Path(package), int(rest[0]), bool(rest[1]))
    elif mode == "seeds":
        return seeds(folder, int(rest[0]) if rest else 10)
    elif mode == "write":
        write(folder)
    else:
        findings = run(folder)["findings"]
        print("\nWhat was found\n==============", *(f"- {finding}" for finding in findings), sep="\n")
        print(f"The same with its picture: {package}/lesson.ipynb and {package}/lesson.png")
    found = problems(folder) if mode in ("write", "check") else []
    print(*found, sep="\n", end="\n" if found else "")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
