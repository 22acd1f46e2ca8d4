"""The pages can fail: each fault planted in a small package is found."""

import json
import re
import runpy
import shutil
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(HERE / "pages"), str(HERE / "tests")]

import nbformat  # noqa: E402
from test_checks import package, written  # noqa: E402

import heat  # noqa: E402
import markup  # noqa: E402
import paper  # noqa: E402
import proof  # noqa: E402

main = runpy.run_path(str(HERE / "pages/__main__.py"))["main"]


README = """# Paper

## Equations

<!-- trace: Eq. 1-3, Algorithm 1 -->
| Eq. | formula | what it is for, in our words | code | test |
|---|---|---|---|---|
| Eq. 1 | $p(x | y)$ | twice | `model.py:Layer.twice` | `test_eq1_twice` |
| Eq. 2-3 | $+$ | the sum | `model.py:add` | `test_eq2_sum`, `test_sum_of_three` |
| Algorithm 1 | start | at 0 | `model.py:START` | `test_algorithm1_start` |

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


def traced(root: Path, readme: str = README, code: str = CODE, suite: str = SUITE) -> str:
    package(root, PAPER_md=readme, model_py=code, tests__test_all_py=suite)
    return "\n".join(proof.problems(paper.Package(root / "paper")))


def test_trace_passes_a_package_in_order(tmp_path):
    assert traced(tmp_path / "tests") == ""  # a parent of that name is not the package's tests


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("readme", "Eq. 1-3,", "Eq. 1-4,", "PAPER.md:5: Eq. 4 is declared but has no row"),
        ("readme", "model.py:add", "model.py:sum", "PAPER.md:9: there is no model.py:sum"),
        (
            "readme",
            "`test_eq1_twice`",
            "`test_eq1_thrice`",
            "PAPER.md:8: there is no test_eq1_thrice",
        ),
        ("readme", ", `test_sum_of_three`", "", "PAPER.md:9: Eq. 3: no asserting test"),
        ("readme", "| Eq. 1 |", "| Eq. 4 |", "model.py:8: Eq. 1 has no row"),
        (
            "readme",
            "| twice |",
            "| |",
            'PAPER.md:8: the cell "what it is for, in our words" is empty',
        ),
        ("readme", "| D1 |", "| D3 |", 'PAPER.md:16: D3: no mark "# D3: ..." in the code'),
        (
            "code",
            "Eq. (1).",
            "Twice.",
            'PAPER.md:8: Eq. 1: no mark "# Eq. (1)" in model.py:Layer.twice',
        ),
        ("code", "Eq. (2)-(3)", "Eq. (2)", "Eq. 3: no mark"),
        ("code", "# D1: not three", "", "PAPER.md:16: D1: no mark"),
        ("code", "# D1", "# D4", "model.py:9: D4 has no row in PAPER.md"),
        ("suite", "assert add(1, 1) == 2", "add(1, 1)", "test_eq2_sum asserts nothing"),
        ("suite", "assert add(1, 1) == 2", "assert True", "test_eq2_sum asserts nothing"),
        (
            "suite",
            "def test_eq2_sum",
            "@pytest.mark.skip\ndef test_eq2_sum",
            "asserts nothing or is skipped",
        ),
        (
            "suite",
            "def test_eq2_sum",
            "@pytest.mark.xfail\ndef test_eq2_sum",
            "asserts nothing or is skipped",
        ),
        ("suite", "assert START < 3", "START < 3", "PAPER.md:16: D1: no asserting test names it"),
        (
            "suite",
            "def test_d1_is_three",
            "def test_is_three",
            "PAPER.md:16: D1: no asserting test names it",
        ),
        ("suite", "def test_d1_is_three", "def test_eq5_d1", "test_eq5_d1: Eq. 5 has no row"),
        (
            "suite",
            "def test_d1_is_three",
            "def test_algorithm9_d1",
            "test_algorithm9_d1: Algorithm 9 has no row",
        ),
    ],
)
def test_trace_finds_each_gap(tmp_path, file, old, new, message):
    texts = {"readme": README, "code": CODE, "suite": SUITE}
    assert texts[file].count(old) == 1
    assert message in traced(tmp_path, **{file: texts[file].replace(old, new)})


SECTIONS = {
    "readme": "## Equations\n<!-- trace: Section 4.2 -->\n| | | | | |\n|-|-|-|-|-|\n"
    "| Section 4.2 | x / 2 | half | `model.py:half` | `test_section_4_2_half` |\n\n## "
    "Deviations\n\nnone\n",
    "code": "def half(x):\n    # Section 4.2: x / 2; as in Section 6.\n    return x / 2\n",
    "suite": "def test_section_4_2_half():\n    assert half(4) == 2\n",
}


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("code", "as in Section 6", "as in Section 7", ""),  # a section without a row is no gap
        (
            "code",
            "# Section 4.2",
            "# Section 4.3",
            'Section 4.2: no mark "# Section 4.2" in model.py:half',
        ),
        ("suite", "_section_4_2_", "_section_4_3_", "there is no test_section_4_2_half"),
        (
            "readme",
            "trace: Section 4.2",
            "trace: Section 4.2, Section 5",
            "Section 5 is declared but has no row",
        ),
    ],
)
def test_trace_follows_sections_where_a_paper_numbers_no_equations(
    tmp_path, file, old, new, message
):
    assert SECTIONS[file].count(old) == 1
    output = traced(tmp_path, **SECTIONS | {file: SECTIONS[file].replace(old, new)})
    assert bool(output) == bool(message) and message in output


def test_trace_reads_every_way_to_write_numbers():
    for text in ("Eq. (4)-(6)", "Eq. 4-6", "Eqs. (4), (5) and (6)", "Eq. (4-6)"):
        assert paper.marks(text) == {"Eq. 4", "Eq. 5", "Eq. 6"}
    assert paper.marks("Eq. (7), 3 samples; Algorithm 2, line 5") == {"Eq. 7", "Algorithm 2"}
    assert paper.marks("Eq. (9), (B, 2)") == {"Eq. 9"}
    assert paper.marks("Eq. (6, 7)") == {"Eq. 6", "Eq. 7"}
    assert paper.marks_of_name("test_freq3_eq11_d2") == {"Eq. 11", "D2"}


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

| Eq. | formula | what it is for, in our words | code | test |
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
    "one_py": '"""Halves, without Eq. (2)."""\n\n\ndef half(x):\n    # Eq. (1): why\n    return x '
    "/ 2\n",
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
    status = main(["paper", "--root", str(root), "--out", str(root / "pages")])
    return status, capsys.readouterr().out


def test_pages_set_a_formula_beside_its_line_with_links_both_ways(tmp_path, capsys):
    status, output = paged(tmp_path, capsys)
    assert (status, output) == (0, f"open {tmp_path / 'pages/index.html'}\n")
    page = (tmp_path / "pages/paper.html").read_text()
    whole, package_code = page.split("The package, file by file</h2>")
    row = next(row for row in whole.split('<div class="row">') if 'id="eq-1"' in row)
    assert "This was the whole method" in whole.split("What was reproduced</h2>")[0]
    assert 'id="eq-2"' not in whole  # the docstring of the file only names it
    for part in ("Halves it", "why", 'id="one.py-6"', 'href="#test_eq1_eq2_half"'):
        assert part in row
    row = next(row for row in package_code.split('<div class="row">') if 'id="model.py-11"' in row)
    assert 'class="hue0"><mi>h</mi>' in row and 'n-Hue0">half_of</span>' in row  # one colour
    assert row.count("Halves it") == 1  # of the row's two formulas the first one has the words
    assert re.search(r"<b>Eq. 1</b> <math[^>]*>(<[^>]*>)*h<", row) and "<b>Eq. 2</b> <math" in row
    # beside the line of code, not of the docstring that names it first; both formulas beside the
    # one function
    for part in ('<a href="#eq-1">10</a>', '<a href="#eq-2">12</a>', 'id="eq-2"'):
        assert part in row
    for part in ("D1.</b> Paper: all. <b>Here:</b> half<", "<b>Why:</b> less<"):
        assert page.count(part) == 2
    assert "def</span> " in page.split('id="test_eq1_eq2_half"')[1][:400]
    assert 'class="hue1"' not in page and "<mn>0.25</mn>" in page and "(B, 2)" in page
    assert page.count('id="d1"') == page.count('id="d2"') == 1 and "RESULTS.md" not in page
    assert 'href="paper.html"' in (tmp_path / "pages/index.html").read_text()
    lesson = (tmp_path / "pages/paper-lesson.html").read_text()
    assert "onetwo" in lesson and 'href="paper.html#eq-1"' in lesson
    assert 'href="paper-lesson.html"' in page


def test_one_formula_of_two_equations_has_both_numbers(tmp_path, capsys):
    paged(tmp_path, capsys, PAPER_md=("$h = |x| / 2$; ", "$h = |x| / 2$, "))
    assert "<b>Eq. 1-2</b> <math" in (tmp_path / "pages/paper.html").read_text()


ROWS = r"""## Equations

| Eq. | formula | what it is for, in our words | code | test |
|---|---|---|---|---|
| Section 3 | $a$ | first | `model.py:Net.twice` | `test_section_3` |
| Section 3 | $b$ | second | `model.py:Net.forward` | `test_section_3` |
| Section 3 | $c$ | third | `model.py:third`, `one.py:main` | `test_section_3` |
| Section 3 | $d$ | fourth | `model.py:fourth` | `test_section_3` |
| Eq. 1 | $e$ | only one | `model.py:fifth` | `test_eq1` |

## Deviations

## Limits

"""
ONE = """def twice(x):
    # Section 3
    return x + x


class Net:
    def forward(self, x):
        return x  # Section 3


class Other:
    def forward(self, x):
        return x  # Eq. (1)


def main():
    # Section 3
    print()
"""


def test_of_rows_with_one_label_each_stands_beside_the_function_that_it_names(tmp_path):
    package(tmp_path, PAPER_md=ROWS, one_py=ONE)
    rows = paper.Package(tmp_path / "paper").equations
    homes = [paper.Package(tmp_path / "paper").home_in_one(row, row.labels[0]) for row in rows]
    # The fourth is called as nothing there, and other rows have its label; the fifth is alone.
    assert homes == [("one.py", 2), ("one.py", 8), ("one.py", 17), ("", 0), ("one.py", 13)]


def test_a_place_in_one_py_is_none_of_the_package(tmp_path):
    package(tmp_path, PAPER_md=ROWS, one_py=ONE)
    found = "\n".join(proof.problems(paper.Package(tmp_path / "paper")))
    assert 'Section 3: no mark "# Section 3" in model.py:third;' in found
    (tmp_path / "paper/one.py").write_text(ONE.replace("main", "run"))
    assert "there is no one.py:main" in "\n".join(proof.problems(paper.Package(tmp_path / "paper")))


def test_the_front_page_keeps_the_order_of_the_readme(tmp_path, capsys):
    paged(tmp_path, capsys)
    shutil.copytree(tmp_path / "paper", tmp_path / "another")
    (tmp_path / "README.md").write_text("# Two\n\n[1](paper/README.md), [2](another/README.md)\n")
    assert main(["--root", str(tmp_path), "--out", str(tmp_path / "pages")]) == 0
    cards = (tmp_path / "pages/index.html").read_text().split('class="cards">')[1]
    assert re.findall('href="(.*?)"', cards) == ["paper.html", "another.html"]


def test_pages_show_what_is_learned_without_a_script_and_by_a_slider(tmp_path, capsys):
    table = {
        "title": "Gates",
        "rows": ["a<b", "c"],
        "columns": ["0", "60"],
        "caption": "They close.",
    }
    table |= {"values": [[0, 1], [0.5, 0.25]], "beside": {"right, %": [50, 98]}}
    paged(tmp_path, capsys)
    folder = tmp_path / "paper"
    made = nbformat.read(folder / "lesson.ipynb", as_version=4)
    output = {"output_type": "stream", "name": "stdout", "text": json.dumps(table)}
    cell = next(cell for cell in made.cells if "learn" in cell.metadata.get("tags", []))
    cell.outputs = [nbformat.from_dict(output)]
    nbformat.write(made, folder / "lesson.ipynb")
    assert main(["paper", "--root", str(tmp_path), "--out", str(tmp_path / "pages")]) == 0
    page, index = ((tmp_path / f"pages/{name}.html").read_text() for name in ("paper", "index"))
    figure = page.split('<div class="learn">')[1].split("</figure>")[0]
    assert page.index('<div class="learn">') < page.index("<h2>The paper's method in one file")
    assert re.findall(r"--v:([\d.]+)", figure) == ["0.00", "1.00", "0.50", "0.25"]
    assert "a&lt;b" in figure and ">98</td>" in figure and "They close." in figure
    assert 'type: "range"' in page and '<div class="learn">' in index and "--v:0.25" in index


def test_pages_keep_the_order_of_reading_and_of_numbers(tmp_path):
    package(tmp_path, a_py="x = 1\n", b_py="y = 2\n")
    assert list(paper.Package(tmp_path / "paper").files(["b.py", "a.py"]))[:2] == ["b.py", "a.py"]
    assert paper.in_order({"Eq. 10", "Eq. 9", "Eq. 2"}) == ["Eq. 2", "Eq. 9", "Eq. 10"]
    colours = markup.Markup([["`h`", "$h$"], ["`h_i`", "$h_i$"]], set())
    assert re.findall(r"hue\d", colours.math("h_i") + colours.math("h")) == ["hue1", "hue0"]
    parts = markup.Markup([["`h`", "$h$"], ["`h_g`", "$h g$"]], set())
    assert parts.math("h g").count("hue") == 1  # one whole, not its part h
    links = markup.Markup([], {"Eq. 9", "Eq. 2"})
    assert links.linked("Eq. (2)-(9)") == '<a href="#eq-2">Eq. (2)-(9)</a>'
    assert "Eq. (9)</a>, (B, 2)" in links.linked("Eq. (9), (B, 2)")


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("PAPER_md", "`model.py:half`", "`model.py:h`", "PAPER.md:11: there is no model.py:h"),
        ("model_py", "# D1: not all", "", "D1: no mark"),
        ("PAPER_md", r"$\alpha = ", r"$\alhpa = ", "does not convert"),
        ("PAPER_md", "Halves it (", "Halves it $ (", "a $ without its second one"),
        ("README_md", "1. `model.py`", "1. `modal.py`", "README.md: there is no modal.py to read"),
        (
            "README_md",
            "Read in this order",
            "Files",
            'README.md: no `file.py` after "Read in this order"',
        ),
        ("README_md", "0.5", "[0.5](#half)", "paper.html: the link #half leads nowhere"),
        ("README_md", "0.5", '<p id="eq-1">', "the id eq-1 stands twice"),
        ("README_md", "![A half]", "![]", "a picture without words"),
        ("README_md", "](lesson.png)", "](half.png)", "there is no half.png to show"),
        (
            "README_md",
            "**Claim:**",
            '<script src="https://a.b/c.js"></script>',
            "no part of a static page",
        ),
    ],
)
def test_pages_find_each_gap(tmp_path, capsys, file, old, new, message):
    status, output = paged(tmp_path, capsys, **{file: (old, new)})
    assert status == 1 and message in output


BLOCKS = """import a


# Eq. (1): above
@a
def f():
    '''Doc.'''
    x = 1


# Section 3: b

class A:
    '''B.'''
    y = 2

    def g():
        def h():
            pass


z = 3
"""


def test_a_block_is_a_function_with_what_stands_above_it_a_class_without_its_methods_or_a_heading(
    tmp_path,
):
    (tmp_path / "a.py").write_text(BLOCKS)
    found = paper.blocks(paper.Source(tmp_path / "a.py"))
    assert [(part.name, part.docstring, [line for line, _ in part.code]) for part in found] == [
        ("", "", [1]),
        ("f", "Doc.", [4, 5, 6, 8]),
        ("", "Section 3: b", []),
        ("A", "B.", [13, 15]),
        ("A.g", "", [17, 18, 19]),
        ("", "", [22]),
    ]
    assert paper.cells(r"| `a|b` | $|x|$ | c \| d |") == ["`a|b`", "$|x|$", "c | d"]


def test_a_wide_table_lies_on_its_side_and_shades_grow_with_the_numbers():
    columns, beside = ["a long word", "another"], {"written": [0.5, 1]}
    made = heat.heat(["x"], columns, [[0.1, 0.2]], "T", beside=beside)
    assert re.sub("<[^>]*>", " ", made).split() == "T x written a long word .5 another 1".split()
    assert re.findall(r"--v:([\d.]+)", made) == ["0.50", "1.00"]
    assert "--v:0.20" in heat.heat(["x"], columns, [[0.1, 0.2]], "T", most=1)


def test_an_example_in_a_docstring_stays_whole():
    made = markup.Markup([], set()).docstring(
        "Text.\n\n    a = 1\n    f(a)    # why\n\nName     what"
    )
    assert "a = 1\nf(a)    # why" in made and made.count("<pre") == 2


def test_the_marks_of_the_one_file_have_rows(tmp_path, capsys):
    for old, new, words in (
        ("Eq. (1)", "Eq. (11)", "one.py:5: Eq. 11 has no row"),
        ("why", "D4", "one.py:5: D4 has no row"),
    ):
        status, output = paged(tmp_path / new, capsys, one_py=(old, new))
        assert status == 1 and words in output
