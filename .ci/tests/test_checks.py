"""The checks can fail: browser.py, lesson.py and mutants.py on small packages made here.

And no package runs the code of a model.
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parents[1]


sys.path.insert(0, str(HERE))

import browser  # noqa: E402
import lesson  # noqa: E402
import mutants  # noqa: E402


def package(root: Path, name: str = "paper", **files: str) -> Path:
    """Write a package; of a file's name `__` is a slash, `_py`, `_md`, `_txt` the ending."""
    for path, text in {
        "__init___py": "",
        "PAPER_md": "",
        "model_py": "import torch\n",
        "tests____init___py": "",
        "experiments____init___py": "",
        **files,
    }.items():
        stem, ending = re.sub("^(tests|experiments)__", r"\1/", path).rsplit("_", 1)
        (root / name / stem).parent.mkdir(parents=True, exist_ok=True)
        (root / name / f"{stem}.{ending}").write_text(text)
    return root


MODEL = """def half(x):
    return x / 2

def unused(x):
    return x * 1
"""
TESTS = "from ..model import half\n\ndef test_half():\n    assert half(4) == 2\n"
MUTANTS = """# a heading

# first
model.py
- return x / 2
+ return x * 2

# second
model.py
- return x * 1
+ return x + 0

# third
model.py
- return x / 2
+ return x /

# fourth
model.py
- return y
+ return x
"""


def test_mutants_tell_killed_survived_and_broken(tmp_path, capsys):
    package(tmp_path, model_py=MODEL, tests__test_half_py=TESTS, tests__mutants_txt=MUTANTS)
    (tmp_path / "shared").mkdir()
    (tmp_path / "pyproject.toml").touch()
    assert mutants.main("paper", root=tmp_path) == 1
    said = capsys.readouterr().out
    verdicts = [line.split()[0] for line in said.splitlines()]
    assert verdicts == ["killed", "SURVIVED", "ERROR", "ERROR", "mutants:"]
    assert "[found 0 times" in said and "paper: 1 of 4 killed" in said
    assert mutants.main("paper", "first", root=tmp_path) == 0


@pytest.mark.parametrize(
    "listing", sorted(HERE.parent.glob("*/tests/mutants.txt")), ids=lambda path: path.parts[-3]
)
def test_mutants_of_the_packages_stand_in_their_files(listing):
    for _, file, old, new in mutants.read_mutants(listing):
        text = (listing.parents[1] / file).read_text(encoding="utf-8")
        assert mutants.apply(text, old, new) != text


def test_mutants_need_a_suite_that_passes_and_a_list_that_parses(tmp_path, capsys):
    wrong = TESTS.replace("== 2", "== 3")
    package(tmp_path, model_py=MODEL, tests__test_half_py=wrong, tests__mutants_txt=MUTANTS)
    (tmp_path / "shared").mkdir()
    (tmp_path / "pyproject.toml").touch()
    assert mutants.main("paper", root=tmp_path) == 2
    assert "does not pass without mutants" in capsys.readouterr().out
    (tmp_path / "paper/tests/mutants.txt").write_text(MUTANTS.replace("+ return x\n", ""))
    with pytest.raises(ValueError, match="a block is"):
        mutants.main("paper", root=tmp_path)


LESSON = r"""# %% [markdown]
# # How many?
# Take $x$ of Eq. (1) [here](https://a.b), the $\alpha$-th part: $\frac{1}{2}$.
# <details><summary>Answer</summary> pi </details>
# %%
import sys
from pathlib import Path

folder = Path(__file__).parent
sys.path.insert(0, str(folder.parent))
half = __import__(f"{folder.name}.model").model.half
seed = 0
print(n := half(4 + 2 * seed), Path.cwd().name == folder.parents[1].name, (folder / "tests").exists())
assert n < 4 + 1, f"half is less: {n:.0f} against 4"
# %% tags=["learn"]
print("hidden")
# %% tags=["picture"]
"""


def written(root: Path) -> Path:
    """A package with a lesson, and its notebook as if it had been executed."""
    folder = package(root, model_py=MODEL, lesson_py=LESSON) / "paper"
    notebook = lesson.jupytext.reads(LESSON, "py:percent")
    image = {"output_type": "display_data", "data": {"image/png": "UE5H"}, "metadata": {}}
    said = [{"output_type": "stream", "name": "stdout", "text": text} for text in ("one", "two")]
    for cell, outputs in zip(notebook.cells[1:], (said, [], [image]), strict=True):
        cell.execution_count, cell.outputs = 1, list(map(lesson.nbformat.from_dict, outputs))
    lesson.nbformat.write(notebook, folder / "lesson.ipynb")
    (folder / "lesson.png").write_bytes(b"PNG")
    return folder


def test_lesson_is_told_in_a_renamed_copy_with_its_findings(tmp_path, capfd, monkeypatch):
    folder = written(tmp_path)
    monkeypatch.setattr(lesson, "ROOT", tmp_path)
    assert lesson.main("check", "paper") == 0
    said = capfd.readouterr().out
    parts = "# How many", "2.0 True False", "- half is less: 2 against 4"
    places = [said.index(part) for part in parts]
    assert places == sorted(places)
    assert "hidden" not in said and "Answer" not in said
    text = (folder / "lesson.py").read_text()
    (folder / "lesson.py").write_text(text.replace("n < 4 + 1", "n > 3 + 1"))
    assert lesson.main("check", "paper") == 1
    assert "does not hold: half is less: 2 against 4\n" in capfd.readouterr().out
    (folder / "lesson.py").write_text("assert True\n")
    with pytest.raises(SystemExit, match="one line `seed = 0`"):
        lesson.run(folder)


@pytest.mark.parametrize(
    ("comparison", "least", "code", "verdict"),  # n is 2 + seed, m is 7 + seed
    [
        ("n < 9 + 0", [7, 6], 0, "reached"),
        ("n < m - 1", [5, 5], 0, "reached"),  # what is added is apart
        ("1 < n < m", [1, 2], 0, "reached"),  # the least of a chain
        ("n > 2 - 0.5", [0, 1], 1, "NOT REACHED"),
        ("n < 3", [1, 0], 1, "    half is less: 3 against 4"),
        ("n == 2 + seed", [], 0, "all asserts hold"),
    ],
)
def test_seeds_give_the_least_difference_of_each_comparison(
    tmp_path, capsys, monkeypatch, comparison, least, code, verdict
):
    monkeypatch.setattr(lesson, "run", lesson.play)  # in this process
    monkeypatch.chdir(tmp_path)
    folder = written(tmp_path)
    text = LESSON.replace("n < 4 + 1", comparison).replace("seed = 0\n", "seed = 0\nm = 7 + seed\n")
    text = text.replace('__import__(f"{folder.name}.model").model.half', "lambda x: x / 2")
    (folder / "lesson.py").write_text(text)
    found = [lesson.play(folder, seed, False)["margins"] for seed in (0, 1)]
    assert [value for margins in found for value in margins.values()] == least
    assert lesson.seeds(folder, 2) == code
    assert verdict in capsys.readouterr().out


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("lesson.py", "# # How many", "# # How few", "lesson.ipynb has other cells than lesson.py"),
        ("lesson.py", "seed = 0", "seed = 0  #", "lesson.ipynb has other cells than lesson.py"),
        ("lesson.ipynb", 'count": 1', 'count": null', "lesson.ipynb was not executed"),
        ("lesson.png", "PNG", "GIF", "lesson.png is not the notebook's picture"),
    ],
)
def test_lesson_and_its_notebook_must_agree(tmp_path, file, old, new, message):
    folder = written(tmp_path)
    assert lesson.problems(folder) == []
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new, 1))
    found = lesson.problems(folder)
    assert any(message in line and "nox -s lesson -- paper --write" in line for line in found)


def test_browser_passes_where_there_is_none(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(browser.shutil, "which", lambda name: None)
    assert browser.main(str(tmp_path)) == 0
    assert "not looked at" in capsys.readouterr().out


def loads_foreign_code(source: str) -> list[str]:
    """The calls of an Auto class of transformers that may run a model's own code."""
    nodes = ast.walk(ast.parse(source))
    calls = [ast.unparse(node) for node in nodes if isinstance(node, ast.Call)]
    form = re.compile(r"(\w+\.)*Auto\w+\.from_(pretrained|config)\((?!.*trust_remote_code=False)")
    return [call for call in calls if form.match(call)]


@pytest.mark.parametrize(
    ("source", "is_found"),
    [
        ("AutoModel.from_pretrained(x, True)", True),
        ("transformers.AutoModel.from_config(x, trust_remote_code=True)", True),
        ("AutoModel.from_config(x, trust_remote_code=False)", False),
        ("Tokenizer.from_pretrained(x)", False),
    ],
)
def test_a_call_that_may_run_a_models_own_code_is_found(source, is_found):
    assert bool(loads_foreign_code(source)) == is_found


def test_no_models_own_code_is_run():
    top = HERE.parent
    sources = [path for path in top.glob("[!.]*/**/*.py") if "tests" not in path.parts]
    assert {"one.py", "pretrained.py", "benchmark.py"} <= {path.name for path in sources}
    found = [
        f"{path.relative_to(top)}: {call} must say trust_remote_code=False"
        for path in sources
        for call in loads_foreign_code(path.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("what", "is_kept"),
    [("math, torch.nn", True), ("numpy", False), (".model", False), (".", False)],
)
def test_one_py_imports_torch_and_the_standard_library(tmp_path, what, is_kept):
    package(tmp_path, one_py=f"from {what} import x\n" if what[0] == "." else f"import {what}\n")
    parts = (HERE.parent / "pyproject.toml").read_text().split("[[tool.importlinter.contracts]]")
    contract = next(part for part in parts if "*.one" in part)
    head = '[tool.importlinter]\nroot_package = "paper"\ninclude_external_packages = true\n\n'
    (tmp_path / "pyproject.toml").write_text(f"{head}[[tool.importlinter.contracts]]{contract}")
    command = "import sys, importlinter.cli; sys.exit(importlinter.cli.lint_imports(no_cache=True))"
    ended = subprocess.run(
        [sys.executable, "-c", command], cwd=tmp_path, capture_output=True, text=True
    )
    assert ended.returncode == (not is_kept) and ("KEPT" if is_kept else "BROKEN") in ended.stdout
