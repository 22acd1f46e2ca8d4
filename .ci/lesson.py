"""Lessons: PACKAGE/lesson.py (jupytext, percent format) is the source; lesson.ipynb and lesson.png are made from it.

    python .ci/lesson.py write PACKAGE      execute the cells, write PACKAGE/lesson.ipynb and PACKAGE/lesson.png
    python .ci/lesson.py check PACKAGE      run lesson.py in a copy of the folder; lesson.ipynb has the same cells, run
    python .ci/lesson.py seeds PACKAGE      run lesson.py with the seeds 1 and 2 in place of its `seed = 0`

The picture is the output of the cell tagged so: `# %% tags=["picture"]`. `check` ends with the finding in words: what
README.md says below the picture.
"""

import base64
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

ROOT = Path(__file__).resolve().parents[1]
LONGEST, LARGEST = 180, 300_000  # lines of lesson.py, bytes of lesson.ipynb


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
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    (folder / "lesson.png").write_bytes(picture(notebook))
    nbformat.write(notebook, folder / "lesson.ipynb")


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


def run(folder: Path, seed: int = 0) -> None:
    """Run lesson.py as a reader of a copy does: renamed, without the rest, from another working directory."""
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place, "vendor", f"{folder.name}_copied")
        skip = shutil.ignore_patterns("__pycache__", "tests", "experiments")
        shutil.copytree(folder, copy, ignore=skip)
        source = (copy / "lesson.py").read_text(encoding="utf-8")
        if source.count("\nseed = 0\n") != 1:
            sys.exit(f"{folder.name}/lesson.py must have one line `seed = 0`")
        (copy / "lesson.py").write_text(source.replace("\nseed = 0\n", f"\nseed = {seed}\n"), encoding="utf-8")
        environment = os.environ | {"MPLBACKEND": "Agg"}
        subprocess.run([sys.executable, str(copy / "lesson.py")], cwd=place, check=True, env=environment)


def finding(folder: Path) -> str:
    """What README.md says below the picture, in lines of 100 characters."""
    text = (folder / "README.md").read_text(encoding="utf-8") if (folder / "README.md").exists() else ""
    caption = re.search(r"\]\(lesson\.png\)\s+\*(.+?)\*\s*(?:\n\n|\Z)", text, re.S)
    words = re.sub(r"[*_`$\\]", "", " ".join(caption[1].split())) if caption else ""
    where = f"The same with its picture: {folder.name}/lesson.ipynb and {folder.name}/lesson.png"
    return "\n".join(["", *textwrap.wrap(words, 100), where])


def main(mode: str, package: str) -> None:
    folder = ROOT / package
    if mode == "write":
        write(folder)
    for seed in {"check": (0,), "seeds": (1, 2)}.get(mode, ()):
        run(folder, seed)
    if mode != "seeds" and (found := problems(folder)):
        sys.exit("\n".join(found))
    if mode == "check":
        print(finding(folder))


if __name__ == "__main__":
    main(*sys.argv[1:])
