"""The rules of noxfile.py that need no environment: where torch comes from, who gets a session, the
demo.
"""

import importlib.util
import sys
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


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["nox", "-s", "lesson", "--", "l0drop"], ["l0drop"]),
        (
            ["nox", "-s", "lesson", "--", "head_masking", "--seeds", "l0drop"],
            ["l0drop", "head_masking"],
        ),
        (["nox", "-s", "l0drop"], noxfile.PAPERS),
        (["nox", "--", "-x"], noxfile.PAPERS),
    ],
)
def test_only_the_packages_asked_for_get_a_lesson(monkeypatch, arguments, expected):
    monkeypatch.setattr(sys, "argv", arguments)
    assert noxfile.asked_for() == expected


@pytest.mark.parametrize("name", noxfile.PAPERS)
def test_a_readmes_demo_is_a_list_of_commands(name):
    commands = noxfile.demo_commands(name)
    assert commands and all(command.startswith("python -m ") for command in commands)
