"""Every command of the repository, started with wrong paths, ends in one line before any work."""

import ast
import io
import re
import runpy
import shlex
import sys
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OTHERS = ("one.py", "lesson.py", "__init__.py")  # without arguments


def commands():
    """Module and arguments of each file with a main, as its docstring shows them."""
    for path in sorted(ROOT.glob("[!.]*/**/*.py")):
        text = path.read_text(encoding="utf-8")
        parts = path.relative_to(ROOT).with_suffix("").parts
        if 'if __name__ == "__main__"' in text and path.name not in OTHERS and "tests" not in parts:
            docstring = ast.get_docstring(ast.parse(text))
            shown = re.search(rf"python -m \S+\.{parts[-1]}\b(.*)", docstring)
            module = ".".join(parts)
            yield pytest.param(module, shown[1] if shown else "FILE --out FILE", id=module)


def wrong(module, shown, file):
    """The arguments that a docstring shows, with wrong paths.

    Each that names data, a run or a file is a path below a file.
    """
    words = shlex.split(re.split(r"\s[<>|]|\s{3}|#", re.sub(r"[\[\]\\]", " ", shown))[0])
    for place, word in enumerate(words):
        if re.search(r"[/A-Z]|\.[a-z]|^toy", word) or "--out" in words[place - 1 : place]:
            words[place] = f"{file}/{word}"
    trains = "train" in (*words[:1], module.rpartition(".")[2]) and "--data" not in words
    return [*words, *(["--data", f"{file}/data"] if trains else [])]


@pytest.mark.parametrize(("module", "shown"), list(commands()))
def test_a_wrong_path_is_one_line(module, shown, tmp_path, monkeypatch, capsys):
    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [module, *wrong(module, shown, tmp_path / "file")])
    monkeypatch.setattr(sys, "stdin", io.StringIO("no JSON\n"))
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    with pytest.raises(SystemExit) as ended, warnings.catch_warnings(action="ignore"):
        try:
            runpy.run_module(module, run_name="__main__")
        except ModuleNotFoundError as absent:
            pytest.skip(f"{absent.name} is not installed")
    said = capsys.readouterr().err.splitlines()
    assert ended.value.code == 2 and [line[:6] for line in said] == ["error:"], (sys.argv, said)
