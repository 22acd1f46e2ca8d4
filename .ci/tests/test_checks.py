"""The checks can fail: imports.py, mutants.py and trace.py on small packages made here."""

import importlib.util
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parents[1]


def load(name: str):
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


imports, mutants = load("imports"), load("mutants")


def package(root: Path, name: str = "paper", **files: str) -> Path:
    (root / name / "tests").mkdir(parents=True)
    for path, text in {"__init__.py": "", "model.py": "import torch\n", "tests/__init__.py": ""}.items():
        (root / name / path).write_text(text)
    for path, text in files.items():
        (root / name / path.replace("__", "/").replace("_py", ".py").replace("_txt", ".txt")).write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"model_py": "import shared.data\n"}, "only benchmark.py"),
        ({"model_py": "from paper import gates\n"}, "relatively"),
        ({"train_py": "from other.model import x\n"}, "must not import other"),
        ({"gates_py": "import pandas\n"}, "gates.py imports pandas"),
        ({"tests__test_a_py": "from shared import rouge\n"}, "importorskip"),
        ({"model_py": "# Same as other/model.py:f\ndef f(x):\n    return x + 1\n"}, "no longer the same"),
        ({"model_py": "# Same as other/model.py:g\ndef g(x):\n    return x\n"}, "no such twin"),
    ],
)
def test_imports_finds_each_broken_rule(tmp_path, capsys, files, message):
    package(tmp_path, "other", model_py='def f(x):\n    """Doc."""\n    return x\n')
    assert imports.main(["paper"], package(tmp_path, **files)) == 1
    assert message in capsys.readouterr().out


def test_imports_passes_what_is_allowed(tmp_path):
    package(tmp_path, "other", model_py='def f(x):\n    """Doc."""\n    return x\n')
    files = {
        "model_py": "import math\nimport numpy\n\n# Same as other/model.py:f\ndef f(x):\n    return x\n",
        "gates_py": "def f():\n    import entmax\n",
        "train_py": "import tqdm\nfrom shared.data import load\n",
        "tests__test_a_py": 'import pytest\npytest.importorskip("shared")\nfrom shared import rouge\n',
    }
    assert imports.main(["paper"], package(tmp_path, **files)) == 0


MODEL = "def half(x):\n    return x / 2\n\ndef unused(x):\n    return x * 1\n"
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


def test_mutants_need_a_suite_that_passes_and_a_list_that_parses(tmp_path, capsys):
    listing = "# a mistake\nmodel.py\n- return x / 2\n"
    package(tmp_path, model_py=MODEL, tests__test_half_py=TESTS.replace("== 2", "== 3"), tests__mutants_txt=listing)
    with pytest.raises(ValueError, match="mutants.txt:4: a block is"):
        mutants.main(["paper"], tmp_path)
    (tmp_path / "paper/tests/mutants.txt").write_text(listing + "+ return x\n")
    assert mutants.main(["paper"], tmp_path) == 2
    assert "does not pass without mutants" in capsys.readouterr().out
    assert mutants.main([], tmp_path) == 2
