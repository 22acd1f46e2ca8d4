"""The laboratory's commands in README.md and the run.sh files have flags that exist; the pages keep their length."""

import re

import pytest

pytest.importorskip("shared")

from ...experiments import benchmark, demo, difference, figures, measures, precision, tables
from ..test_readme import FOLDER, commands

PROGRAMS = {module.__name__.rpartition(".")[2]: module for module in (
    benchmark, demo, difference, figures, measures, precision, tables)}  # fmt: skip


def test_commands_have_flags_that_exist(tmp_path):
    """Each is parsed by its program's Options."""
    tried = set()
    for program, flags in commands(tmp_path):
        if program in PROGRAMS:
            tried.add(program)
            module = PROGRAMS[program]
            assert module.read_flags(module.Options, flags)
    assert tried >= {"benchmark", "demo", "difference", "figures", "measures", "tables"}


def test_pages_are_short_and_what_they_link_to_is_there():
    for page, lines, width in (("README.md", 90, 110), ("experiments/RESULTS.md", 150, 150)):
        text = (FOLDER / page).read_text(encoding="utf-8")
        assert text.count("\n") <= lines and max(map(len, text.splitlines())) <= width
        for link in re.findall(r"\]\((?!http)([^)]+)\)", text):
            assert ((FOLDER / page).parent / link).exists(), link
