"""The rules of noxfile.py that need no environment.

Where torch comes from, which papers a session takes, what a demo and a benchmark run.
"""

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import pytest

spec = importlib.util.spec_from_file_location(
    "noxfile", Path(__file__).resolve().parents[2] / "noxfile.py"
)
noxfile = importlib.util.module_from_spec(spec)
spec.loader.exec_module(noxfile)


def settings(monkeypatch, pip: str = "", **environment: str) -> dict[str, str]:
    """What uv is given where pip's settings and the environment are these."""
    for name in list(noxfile.os.environ):
        if name.startswith(("UV_", "SSL_")):
            monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(noxfile.subprocess, "run", lambda *_, **__: SimpleNamespace(stdout=pip))
    return noxfile.uv_settings()


@pytest.mark.parametrize(
    ("pip", "environment", "expected"),
    [
        ("", {}, "auto"),
        ("global.cert='/a.pem'\nglobal.timeout='9'\n", {"UV_LINK_MODE": "copy"}, "auto"),
        ("global.index-url='https://a.b/simple'\n", {}, None),
        ("global.extra-index-url='https://a.b/simple'\n", {}, None),
        ("install.find-links='/wheels'\n", {}, None),
        (":env:.extra-index-url='https://a.b/cpu'\n", {}, None),
        ("", {"UV_INDEX": "https://a.b/cpu"}, None),
        ("", {"UV_DEFAULT_INDEX": "https://a.b/cpu"}, None),
        ("", {"UV_FIND_LINKS": "/wheels"}, None),
        ("", {"UV_TORCH_BACKEND": "cu128"}, None),
    ],
)
def test_torch_is_this_machines_unless_a_source_is_named(monkeypatch, pip, environment, expected):
    assert settings(monkeypatch, pip, **environment).get("UV_TORCH_BACKEND") == expected


def test_pips_settings_become_uvs_and_the_users_win(monkeypatch):
    pip = ":env:.cert='/mine'\nglobal.cert='/pem'\nglobal.find-links='/a /b'\nglobal.index-url='https://a.b'\n"
    uv = settings(monkeypatch, pip, UV_DEFAULT_INDEX="https://mine")
    assert uv == {
        "UV_FIND_LINKS": "/a,/b",
        "SSL_CERT_FILE": "/mine",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }


def session(*arguments: str) -> SimpleNamespace:
    """What `nox -s ... -- ARGUMENTS` gives to a session, which notes what it installs and runs."""

    def refuse(message: str) -> None:
        raise ValueError(message)

    done = []
    return SimpleNamespace(
        posargs=list(arguments),
        error=refuse,
        venv_backend="virtualenv",
        done=done,
        install=lambda *what, **_: done.append(("install", *what)),
        run=lambda *command, **_: done.append(command),
    )


@pytest.mark.parametrize(
    ("arguments", "papers", "rest"),
    [
        (["l0drop"], ["l0drop"], []),
        (["head_masking", "--seeds", "3"], ["head_masking"], ["--seeds", "3"]),
        (["--csv", "a.csv", "l0drop"], ["l0drop"], ["--csv", "a.csv"]),
        ([], noxfile.PAPERS, []),
        (["-x"], noxfile.PAPERS, ["-x"]),
    ],
)
def test_a_session_takes_the_papers_that_are_named_or_all(arguments, papers, rest):
    assert noxfile.chosen(session(*arguments)) == (papers, rest)


def test_a_misspelt_paper_is_refused_before_anything_is_installed():
    asked = session("l0dorp")
    with pytest.raises(ValueError, match="l0dorp is none of: l0drop, encdec"):
        noxfile.bench.func(asked)
    assert asked.done == []


def test_a_benchmark_has_what_its_other_sides_need(tmp_path, monkeypatch):
    asked = session("l0drop", "--quick")
    (tmp_path / "l0drop/experiments").mkdir(parents=True)
    (tmp_path / "l0drop/experiments/benchmark.txt").touch()
    monkeypatch.setattr(noxfile, "ROOT", tmp_path)
    noxfile.bench.func(asked)
    assert asked.done == [
        ("install", "-c", ".ci/constraints.txt", "-r", "l0drop/experiments/benchmark.txt"),
        ("python", "-m", "l0drop.experiments.benchmark", "--quick"),
    ]


@pytest.mark.parametrize("package", noxfile.PAPERS)
def test_a_readmes_demo_is_a_list_of_commands(package):
    commands = noxfile.demo_commands(package)
    assert commands and all(command.startswith("python -m ") for command in commands)
