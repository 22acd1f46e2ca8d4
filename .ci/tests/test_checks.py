"""The checks can fail: imports.py, lesson.py, mutants.py and trace.py on small packages made here."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parents[1]


def load(name: str):
    spec = importlib.util.spec_from_file_location(f"ci_{name}", HERE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


NAMES = ("browser", "imports", "lesson", "mutants", "pages", "paper", "trace")
browser, imports, lesson, mutants, pages, paper, trace = map(load, NAMES)


def package(root: Path, name: str = "paper", **files: str) -> Path:
    """Write a package; in a file's name `__` stands for a slash, and `_py`, `_md`, `_txt` for its ending."""
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


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"model_py": "import shared.data\n"}, "only loading, predict, train and experiments/"),
        ({"config_py": "from shared import run\n"}, "only loading"),
        ({"search_py": "from shared import data\n"}, "only loading"),
        ({"lesson_py": "from shared import data\n"}, "only loading"),
        ({"tests__test_a_py": "from shared import rouge\n"}, "importorskip"),
        ({"config_py": "from . import loading\n"}, "must not import loading.py, which wants shared"),
        ({"gates_py": "from . import config\n"}, "must not import config.py: the idea"),
        ({"loading_py": "from .train import train\n"}, "must not import train.py"),
        ({"__init___py": "from . import model, train\n"}, "must not import train.py"),
        ({"train_py": "from .experiments import figures\n"}, "only experiments/ may import experiments/"),
        ({"tests__test_a_py": "from ..experiments import figures\n"}, "only experiments/ may import experiments/"),
        ({"model_py": "from paper import gates\n"}, "relatively"),
        ({"train_py": "from other.model import x\n"}, "must not import other"),
        ({"gates_py": "import pandas\n"}, "gates.py imports pandas"),
        ({"model_py": "import tokenizers\n"}, "model.py imports tokenizers"),
        ({"requirements_txt": "# torch\ntorchvision\n"}, "paper/model.py:1: torch is not in requirements.txt"),
        ({"experiments__a_py": "import entmax\n"}, "a.py:1: entmax is not in requirements.txt"),
        ({"train_py": "import pandas\n", "experiments__requirements_txt": "pandas\n"}, "pandas is not in"),
        *[({"train_py": f"import {name}\n"}, f"import {name} inside the function") for name in sorted(imports.HEAVY)],
        ({"text_py": "AutoModel.from_pretrained(x, True)\n"}, "AutoModel.from_pretrained must say trust_remote_code"),
        ({"train_py": "AutoModel.from_config(x, trust_remote_code=True)\n"}, "must say trust_remote_code=False"),
    ],
)
def test_imports_finds_each_broken_rule(tmp_path, capsys, files, message):
    package(tmp_path, "other")
    assert imports.main(["paper"], package(tmp_path, **{"requirements_txt": "torch\n"} | files)) == 1
    assert message in capsys.readouterr().out


def test_imports_passes_what_is_allowed(tmp_path):
    package(tmp_path, "other")
    files = {
        "requirements_txt": "torch>=2\nnumpy\nTyro\ntqdm # bars\nmatplotlib\n",
        "experiments__requirements_txt": "entmax\n",
        "experiments__a_py": "import entmax\nfrom shared import score\nfrom ..train import train\nfrom . import b\n",
        "config_py": "from typing import Annotated\nfrom .model import f\n",
        "loading_py": "from shared.run import load_weights\nfrom .config import TrainConfig\n",
        "train_py": "import tyro\nfrom . import loading\nfrom shared import run\ndef f():\n    import accelerate\n",
        "predict_py": "from . import loading\n"
        "x = [AutoModel.from_pretrained(1, trust_remote_code=False), Tokenizer.from_pretrained(1)]\n",
        "model_py": "import math\nimport numpy\n\ndef g():\n    import entmax\n",
        "lesson_py": "import matplotlib\nfrom paper import model\n",
        "tests__test_a_py": 'import pytest\npytest.importorskip("shared")\nfrom shared import rouge\n',
    }
    assert imports.main(["paper"], package(tmp_path, **files)) == 0


MODEL = "def half(x):\n    return x / 2\n\ndef unused(x):\n    return x * 1\n\ndef z(x):\n    y = 1\n    y = 1\n"
TESTS = "from ..model import half\n\ndef test_half():\n    assert half(4) == 2\n"


@pytest.mark.parametrize(
    ("old", "new", "code", "verdict"),
    [
        ("return x / 2", "return x * 2", 0, "killed"),
        ("return x * 1", "return x + 0", 1, "SURVIVED"),
        ("return x / 2", "return x /", 1, "ERROR"),
        ("return y", "return x", 1, "found 0 times"),
    ],
)
def test_mutants_tell_killed_survived_and_broken(tmp_path, capsys, old, new, code, verdict):
    listing = f"# a mistake\nmodel.py\n- {old}\n+ {new}\n"
    package(tmp_path, model_py=MODEL, tests__test_half_py=TESTS, tests__mutants_txt=listing)
    assert mutants.main(["paper"], tmp_path) == code
    assert verdict in capsys.readouterr().out


@pytest.mark.parametrize("listing", sorted(HERE.parent.glob("*/tests/mutants.txt")), ids=lambda path: path.parts[-3])
def test_mutants_of_the_packages_stand_in_their_files(listing):
    for mutant in mutants.read_mutants(listing):
        text = (listing.parents[1] / mutant.file).read_text(encoding="utf-8")
        assert mutants.apply(mutant, text) != text


def test_mutants_need_a_suite_that_passes_and_a_list_that_parses(tmp_path, capsys):
    listing = "# a mistake\nmodel.py\n- return x / 2\n"
    package(tmp_path, model_py=MODEL, tests__test_half_py=TESTS.replace("== 2", "== 3"), tests__mutants_txt=listing)
    with pytest.raises(ValueError, match="mutants.txt:4: a block is"):
        mutants.main(["paper"], tmp_path)
    (tmp_path / "paper/tests/mutants.txt").write_text(listing + "+ return x\n")
    assert mutants.main(["paper"], tmp_path) == 2
    assert "does not pass without mutants" in capsys.readouterr().out
    assert mutants.main([], tmp_path) == 2


LESSON = r"""# %% [markdown]
# # How many?
# Take $x$ [here](https://a.b), the $\alpha$-th part: $\frac{1}{2}$.
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
    for cell in notebook.cells[1:]:
        cell.execution_count, cell.outputs = 1, [lesson.nbformat.from_dict(image)]
    lesson.nbformat.write(notebook, folder / "lesson.ipynb")
    (folder / "lesson.png").write_bytes(b"PNG")
    return folder


def test_lesson_is_told_in_a_renamed_copy_with_its_findings(tmp_path, capfd):
    folder = written(tmp_path)
    noted = lesson.run(folder)
    said = capfd.readouterr().out
    assert said.index("How many?\n=========") < said.index("the α-th part: 1/2") < said.index("2.0 True False")
    assert "hidden" not in said and "Answer" not in said and "pi" not in said
    assert noted["findings"] == ["half is less: 2 against 4"] and noted["failed"] == []
    text = (folder / "lesson.py").read_text()
    (folder / "lesson.py").write_text(text.replace("n < 4 + 1", "n > 3 + 1"))
    with pytest.raises(SystemExit):
        lesson.run(folder)
    assert capfd.readouterr().err == "lesson.py: does not hold: half is less: 2 against 4\n"
    (folder / "lesson.py").write_text("assert True\n")
    with pytest.raises(SystemExit):
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
def test_seeds_give_the_least_difference_of_each_comparison(tmp_path, capfd, comparison, least, code, verdict):
    folder = written(tmp_path)
    text = LESSON.replace("n < 4 + 1", comparison).replace("seed = 0\n", "seed = 0\nm = 7 + seed\n")
    (folder / "lesson.py").write_text(text)
    found = [lesson.run(folder, seed, is_told=False)["margins"].values() for seed in (0, 1)]
    assert [value for values in found for value in values] == least
    capfd.readouterr()
    assert lesson.seeds(folder, 2) == code
    assert verdict in capfd.readouterr().out


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("lesson.py", "# # How many?", "# # How few?", "lesson.ipynb has other cells than lesson.py"),
        ("lesson.py", "seed = 0", "seed = 0  #", "lesson.ipynb has other cells than lesson.py"),
        ("lesson.ipynb", '"execution_count": 1', '"execution_count": null', "lesson.ipynb was not executed"),
        ("lesson.png", "PNG", "GIF", "lesson.png is not the notebook's picture"),
        ("lesson.py", "seed = 0", "seed = 0" + "\n" * 180, "lines; at most 180"),
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


README = """# Paper

## Equations

<!-- trace: Eq. 1-3, Algorithm 1 -->
| Eq. | in words | code | test |
|---|---|---|---|
| Eq. 1 | twice p(x | y) | `model.py:Layer.twice` | `test_eq1_twice` |
| Eq. 2-3 | the sum | `model.py:add` | `test_eq2_sum`, `test_sum_of_three` |
| Algorithm 1 | start | `model.py:START` | `test_algorithm1_start` |

## Deviations

| | paper | here | why |
|---|---|---|---|
| D1 | two | three | released |
| D2 | words | words (no code) | - |
"""
CODE = '''"""A paper. The gate is equation 7 of another paper."""

START = 0  # Algorithm 1


class Layer:
    def twice(self, x):
        """Eq. (1)."""
        return x + x  # D1: not three


# Eq. (2)-(3): the sum.
def add(x, y):
    return x + y
'''
SUITE = '''import pytest


def test_eq1_twice():
    with pytest.raises(TypeError):
        twice()


def test_eq2_sum():
    assert add(1, 1) == 2


def test_sum_of_three():
    """Eq. (3)."""
    check.assert_close(add(1, 2), 3)


def test_algorithm1_start():
    assert START == 0


def test_d1_is_three():
    assert START < 3
'''


def traced(root: Path, capsys, readme: str = README, code: str = CODE, suite: str = SUITE) -> tuple[int, str]:
    package(root, PAPER_md=readme, model_py=code, tests__test_all_py=suite)
    status = trace.main(["paper", "--root", str(root)])
    return status, capsys.readouterr().out


def test_trace_passes_a_package_in_order(tmp_path, capsys):
    status, output = traced(tmp_path / "tests", capsys)  # a parent of that name is not the package's tests
    assert (status, output) == (0, "trace: paper: 3 equations, 1 algorithms, 2 deviations, all have code and tests\n")
    (tmp_path / "empty").mkdir()
    assert trace.main(["--root", str(tmp_path / "empty")]) == 0


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("readme", "Eq. 1-3,", "Eq. 1-4,", "PAPER.md:5: Eq. 4 is declared but has no row"),
        ("readme", "model.py:add", "model.py:sum", "PAPER.md:9: there is no model.py:sum"),
        ("readme", "`test_eq1_twice`", "`test_eq1_thrice`", "PAPER.md:8: there is no test_eq1_thrice"),
        ("readme", ", `test_sum_of_three`", "", "PAPER.md:9: Eq. 3: no asserting test"),
        ("readme", "| Eq. 1 |", "| Eq. 4 |", "model.py:8: Eq. 1 has no row"),
        ("readme", "| D1 |", "| D3 |", 'PAPER.md:16: D3: no mark "# D3: ..." in the code'),
        ("code", "Eq. (1).", "Twice.", 'PAPER.md:8: Eq. 1: no mark "# Eq. (1)" in model.py:Layer.twice'),
        ("code", "Eq. (2)-(3)", "Eq. (2)", "Eq. 3: no mark"),
        ("code", "# D1: not three", "", "PAPER.md:16: D1: no mark"),
        ("code", "# D1", "# D4", "model.py:9: D4 is not in PAPER.md"),
        ("suite", "assert add(1, 1) == 2", "add(1, 1)", "test_eq2_sum asserts nothing"),
        ("suite", "def test_eq2_sum", "@pytest.mark.skip\ndef test_eq2_sum", "asserts nothing or is skipped"),
        ("suite", "def test_eq2_sum", "@pytest.mark.xfail\ndef test_eq2_sum", "asserts nothing or is skipped"),
        ("suite", "assert START < 3", "START < 3", "PAPER.md:16: D1: no asserting test names it"),
        ("suite", "def test_d1_is_three", "def test_is_three", "PAPER.md:16: D1: no asserting test names it"),
        ("suite", "def test_d1_is_three", "def test_eq5_d1", "test_eq5_d1: Eq. 5 has no row"),
    ],
)
def test_trace_finds_each_gap(tmp_path, capsys, file, old, new, message):
    texts = {"readme": README, "code": CODE, "suite": SUITE}
    assert texts[file].count(old) == 1
    status, output = traced(tmp_path, capsys, **{file: texts[file].replace(old, new)})
    assert status == 1 and message in output


SECTIONS = {
    "readme": "## Equations\n<!-- trace: Section 4.2 -->\n| | | | |\n|-|-|-|-|\n"
    "| Section 4.2 | half | `model.py:half` | `test_section_4_2_half` |\n\n## Deviations\n\nnone\n",
    "code": "def half(x):\n    # Section 4.2: x / 2; as in Section 6.\n    return x / 2\n",
    "suite": "def test_section_4_2_half():\n    assert half(4) == 2\n",
}


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("code", "as in Section 6", "as in Section 7", ""),  # a section without a row is no gap
        ("code", "# Section 4.2", "# Section 4.3", 'Section 4.2: no mark "# Section 4.2" in model.py:half'),
        ("suite", "_section_4_2_", "_section_4_3_", "there is no test_section_4_2_half"),
        ("readme", "trace: Section 4.2", "trace: Section 4.2, Section 5", "Section 5 is declared but has no row"),
    ],
)
def test_trace_follows_sections_where_a_paper_numbers_no_equations(tmp_path, capsys, file, old, new, message):
    assert SECTIONS[file].count(old) == 1
    status, output = traced(tmp_path, capsys, **SECTIONS | {file: SECTIONS[file].replace(old, new)})
    assert status == bool(message) and message in output


def test_trace_reads_every_way_to_write_numbers():
    assert paper.labels("Eq. (4)-(6)") == paper.labels("Eq. 4-6") == paper.labels("Eqs. (4), (5) and (6)")
    assert paper.labels("Eq. (4-6)") == {"Eq. 4", "Eq. 5", "Eq. 6"}
    assert paper.labels("Eq. (7), 3 samples; Algorithm 2, line 5") == {"Eq. 7", "Algorithm 2"}
    assert paper.labels("Eq. (9), (B, 2)") == {"Eq. 9"} and paper.labels("Eq. (6, 7)") == {"Eq. 6", "Eq. 7"}
    assert paper.labels_of_name("test_freq3_eq11_d2") == {"Eq. 11", "D2"}


PAGE = {
    "README_md": """# Paper

**Claim:** half.

![A half](lesson.png)

## Read in this order

1. `model.py`

## What was reproduced

| claim | ours |
|---|---|
| half | 0.5 |

[All](RESULTS.md).
""",
    "PAPER_md": r"""## Glossary

| code | paper |
|---|---|
| `half_of` | $h$ |

## Equations

| Eq. | formula | what the paper says there | code | test |
|---|---|---|---|---|
| Eq. 1-2 | $h = |x| / 2$; $\alpha = 0.25 h_i$ | Halves it (Section 3). | `model.py:half` | `test_eq1_eq2_half` |

## Deviations

| | paper | here | why |
|---|---|---|---|
| D1 | all | half | less |
| D2 | a | b (no code) | c |

## Limits

- Halves alone.
""",
    "model_py": '''"""Halves."""


def half(x):
    """Half, Eq. (1).

    Args:
        x: all, of shape Eq. (1), (B, 2).
    """
    # Eq. (1)
    half_of = x / 2
    # Eq. (2): of that, too.
    return half_of / 2  # D1: not all
''',
    "one_py": '"""Halves, alone."""\n\n\ndef half(x):\n    # Eq. (1): why\n    return x / 2\n',
    "tests__test_half_py": "def test_eq1_eq2_half():\n    assert half(4) == 1  # D1\n",
}


def paged(root: Path, capsys, **changed: tuple[str, str]) -> tuple[int, str]:
    """Make the page of a package with one change in one of its files."""
    files = dict(PAGE)
    for file, (old, new) in changed.items():
        assert files[file].count(old) == 1
        files[file] = files[file].replace(old, new)
    folder = package(root, **files) / "paper"
    written(root)
    for name, text in files.items():
        stem, ending = re.sub("^(tests)__", r"\1/", name).rsplit("_", 1)
        (folder / f"{stem}.{ending}").write_text(text)
    status = pages.main(["paper", "--root", str(root), "--out", str(root / "pages")])
    return status, capsys.readouterr().out


def test_pages_set_a_formula_beside_its_line_with_links_both_ways(tmp_path, capsys):
    status, output = paged(tmp_path, capsys)
    assert (status, output.count("\n")) == (0, 2) and "index.html" in output, output
    page = (tmp_path / "pages/paper.html").read_text()
    whole, package_code = page.split("The package, file by file</h2>")
    row = next(row for row in whole.split('<div class="row">') if 'id="eq-1"' in row)
    assert "Halves it" in row and "why" in row and 'id="one.py-6"' in row and 'href="#test_eq1_eq2_half"' in row
    row = next(row for row in package_code.split('<div class="row">') if 'id="model.py-11"' in row)
    assert 'class="hue0">h</mi>' in row and '<span class="name hue0">half_of</span>' in row  # one colour
    # beside the line of code, not of the docstring that names it first; both formulas beside the one function
    assert '<a href="#eq-1">11</a>' in row and '<a href="#eq-2">13</a>' in row and 'id="eq-2"' in row
    assert "<b>Here:</b> half" in row and "<b>Why:</b> less" in row
    assert "def</span> " in page.split('id="test_eq1_eq2_half"')[1][:400]
    assert 'class="hue1"' not in page and "<mn>0.25</mn>" in page and "(B, 2)" in page
    assert page.count('id="d1"') == page.count('id="d2"') == 1 and "RESULTS.md" not in page
    assert 'href="paper.html"' in (tmp_path / "pages/index.html").read_text()
    assert (tmp_path / "pages/paper-lesson.html").exists() and 'href="paper-lesson.html"' in page


def test_pages_show_what_is_learned_without_a_script_and_by_a_slider(tmp_path, capsys):
    table = {"title": "Gates", "rows": ["a<b", "c"], "columns": ["0", "60"], "values": [[0, 1], [0.5, 0.25]],
             "beside": {"right, %": [50, 98]}, "caption": "They close."}  # fmt: skip
    paged(tmp_path, capsys)
    folder = tmp_path / "paper"
    made = lesson.nbformat.read(folder / "lesson.ipynb", as_version=4)
    output = lesson.nbformat.from_dict({"output_type": "stream", "name": "stdout", "text": json.dumps(table)})
    next(cell for cell in made.cells if "learn" in cell.metadata.get("tags", [])).outputs = [output]
    lesson.nbformat.write(made, folder / "lesson.ipynb")
    assert pages.main(["paper", "--root", str(tmp_path), "--out", str(tmp_path / "pages")]) == 0
    page, index = ((tmp_path / f"pages/{name}.html").read_text() for name in ("paper", "index"))
    figure = page.split('<div class="learn">')[1].split("</figure>")[0]
    assert page.index('<div class="learn">') < page.index("<h2>The whole paper")
    assert "a&lt;b" in figure and "--v:0.25" in figure and "<td>98</td>" in figure and "They close." in figure
    assert 'type: "range"' in page and '<div class="learn">' in index and "--v:0.25" in index


def test_pages_keep_the_order_of_reading_and_of_numbers(tmp_path):
    package(tmp_path, a_py="x = 1\n", b_py="y = 2\n")
    assert list(paper.Package(tmp_path / "paper").files(["b.py", "a.py"]))[:2] == ["b.py", "a.py"]
    assert paper.in_order({"Eq. 10", "Eq. 9", "Eq. 2"}) == ["Eq. 2", "Eq. 9", "Eq. 10"]
    markup = load("markup").Markup([["`h`", "$h$"], ["`h_i`", "$h_i$"]], set())
    assert "hue1" in markup.math("h_i") and "hue0" not in markup.math("h_i")
    assert "Eq. (9)</a>, (B, 2)" in load("markup").Markup([], {"Eq. 9", "Eq. 2"}).linked("Eq. (9), (B, 2)")


def test_a_cell_of_a_lesson_shows_all_that_it_printed():
    outputs = [{"text": ["one"]}, {"text": ["two"]}]
    made = load("notebook").code_cell({"source": "x", "outputs": outputs}, "", load("markup").Markup([], set()), None)
    assert "onetwo" in made


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("PAPER_md", "`model.py:half`", "`model.py:h`", "PAPER.md:11: Eq. 1 stands beside no line"),
        ("model_py", "# D1: not all", "", "D1 stands beside no line"),
        ("PAPER_md", r"$\alpha = ", r"$\alhpa = ", "does not convert"),
        ("PAPER_md", "Halves it (", "Halves it $ (", "a $ without its second one"),
        ("README_md", "1. `model.py`", "1. `modal.py`", "README.md: there is no modal.py to read"),
        ("README_md", "0.5", "[0.5](#half)", "paper.html: the link #half leads nowhere"),
        ("README_md", "0.5", '<p id="eq-1">', "the id eq-1 stands twice"),
        ("README_md", "![A half]", "![]", "a picture without words"),
        ("README_md", "**Claim:**", '<script src="https://a.b/c.js"></script>', "no part of a static page"),
    ],
)
def test_pages_find_each_gap(tmp_path, capsys, file, old, new, message):
    status, output = paged(tmp_path, capsys, **{file: (old, new)})
    assert status == 1 and message in output


def test_browser_passes_where_there_is_none(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(browser.shutil, "which", lambda name: None)
    assert browser.main([tmp_path / "a.html"]) == 0
    assert "not looked at" in capsys.readouterr().out


def test_a_segment_begins_at_a_definition_and_at_a_comment_with_a_mark(tmp_path):
    above = "import a\n\n\n# Eq. (1): above\n@a\ndef f():\n    '''Doc.'''\n    # why\n    x = 1\n"
    code = f"{above}    # Eq. (2)\n    # goes on\n    y = 2\n\n\nz = 3\n"
    (tmp_path / "a.py").write_text(code)
    found = paper.segments(paper.Source(tmp_path / "a.py"), {"Eq. 1", "Eq. 2"})
    assert [(part.name, part.docstring, part.comment, [line for line, _ in part.code]) for part in found] == [
        ("", "", "", [1]),
        ("f", "Doc.", "Eq. (1): above", [5, 6, 8, 9]),
        ("", "", "Eq. (2) goes on", [12]),
        ("", "", "", [15]),
    ]
    assert paper.cells(r"| `a|b` | $|x|$ | c \| d |") == ["`a|b`", "$|x|$", "c | d"]
