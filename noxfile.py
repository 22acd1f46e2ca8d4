"""Checks (*: `nox` runs all of them) and jobs (-: run when named). One of them: `nox -s NAME`, e.g. `nox -s l0drop`."""

import ast
import importlib.util
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
from pathlib import Path

import nox

ROOT = Path(__file__).resolve().parent

# The packages, in the order of their sessions.
PACKAGES = {
    "l0drop": "L0 gates that prune source encodings",
    "encdec_sentence_sparse": "encoder-decoder attention over a few selected sentences",
    "head_masking": "content selection by masking attention heads",
    "diminishing_attention": "attention scores that diminish with repetition",
    "discourse_tree_attention": "attention heads fixed by a discourse tree",
    "shared": "data, toy corpus, ROUGE and timing",
}
PAPERS = [name for name in PACKAGES if name != "shared"]
# What a package's tests try if it is there, beyond its requirements.
OPTIONAL = {
    "shared": ["datasets", "aclsum; python_version >= '3.11'"],
    "diminishing_attention": ["bert-score", "POT", "aclsum; python_version >= '3.11'"],  # Table 2, data
    "discourse_tree_attention": ["rst2dep", "depedit"],  # another conversion of trees, to compare with
}
# A toy corpus in which a summariser trained without its signal copies well and does not know what matters.
HARD_TOY = "toy:names=10,min_sentences=8,max_sentences=8,min_facts=2,max_facts=2,other_facts=2,repetition=0"
# What `demo` runs: a package's modules with their arguments. `train --resume` does not train a finished run again.
# `predict` reads runs/story.txt (one toy story, on one line) or runs/story.jsonl (the same with its tree).
DEMOS = {
    "l0drop": (
        "train --out runs/l0drop-base --l0drop none --resume",
        "train --out runs/l0drop --init runs/l0drop-base --l0drop output --l0-weight 0.5 --steps 400 --resume",
        "evaluate runs/l0drop-base runs/l0drop --json runs/l0drop/metrics.json",
        "figures runs/l0drop/metrics.json --run runs/l0drop --baseline runs/l0drop-base --out figures/l0drop",
        "predict runs/l0drop runs/story.txt --show-pruned",
    ),
    "head_masking": (
        f"train --out runs/head-masking --data {HARD_TOY},signal=0 --width 64 --feed-forward 256 --steps 800 --resume",
        f"train --preset tagger --out runs/head-masking-tagger --encoder runs/head-masking --data {HARD_TOY} "
        "--steps 300 --resume",
        f"evaluate runs/head-masking --tagger runs/head-masking-tagger --data {HARD_TOY} --heads top --oracle --sweep "
        "--focus --analysis 60 --limit 150 --json runs/head-masking.json",
        "figures runs/head-masking.json --out figures/head_masking",
        "predict runs/head-masking runs/story.txt --tagger runs/head-masking-tagger --both",
    ),
    "encdec_sentence_sparse": (
        "train --out runs/sparse-base --data toy:max_sentences=8,names=20 --batch-size 16 --steps 900 --save-every 300 "
        "--resume",
        "train --task kl --out runs/sparse-kl --init runs/sparse-base --steps 100 --warmup 20 --resume",
        "train --task integrated --out runs/sparse-apx --init runs/sparse-kl --r 4 --steps 100 --warmup 20 "
        "--learning-rate 3e-4 --resume",
        "evaluate runs/sparse-base runs/sparse-kl runs/sparse-apx --r 4 2 1 --limit 50 --map 0 --json runs/sparse.json",
        "figures runs/sparse.json --out figures/encdec_sentence_sparse",
        "predict runs/sparse-apx runs/story.txt",
    ),
    "diminishing_attention": (
        "train --preset repetition --out runs/pg --resume",
        "train --out runs/pg-more --init runs/pg --steps 100 --resume",
        "train --out runs/pg-cov --init runs/pg --coverage True --steps 100 --resume",
        "train --out runs/pg-dim --init runs/pg --diminishing dim --steps 100 --resume",
        "train --out runs/pg-dydim --init runs/pg --diminishing dydim --steps 100 --resume",
        "evaluate runs/pg-more runs/pg runs/pg-cov runs/pg-dim runs/pg-dydim --limit 200 --json runs/pg.json",
        "figures runs/pg.json --run runs/pg-dim --out figures/diminishing_attention",
        "predict runs/pg-dim runs/story.txt",
    ),
    "discourse_tree_attention": (
        "train --out runs/discourse-dot --attention dot --resume",
        "train --out runs/discourse-tree --attention d_tree --resume",
        "train --out runs/discourse-shuffled --attention d_tree --shuffle-trees True --resume",
        "evaluate runs/discourse-dot runs/discourse-tree runs/discourse-shuffled --json runs/discourse.json",
        "figures runs/discourse.json --out figures/discourse_tree_attention",
        "predict runs/discourse-tree discourse_tree_attention/tests/storm.txt "
        "--tree discourse_tree_attention/tests/storm.dis --units 1",
    ),
}
WRITE_STORY = """
import json, pathlib
from shared.toy import generate
story, folder = generate("test", 1)[0], pathlib.Path("runs")
folder.mkdir(exist_ok=True)
(folder / "story.txt").write_text(" ".join(story["document"]) + "\\n", encoding="utf-8")
(folder / "story.jsonl").write_text(json.dumps(story) + "\\n", encoding="utf-8")
"""
# Imports the modules of a copied package that must not want `shared`, which is not there, and its tests: those that do
# want it leave themselves out.
IMPORT_ALONE = """
import importlib, pathlib, sys, pytest
folder, *runners = sys.argv[1:]
for path in sorted(pathlib.Path(folder).glob("*.py")):
    if path.name not in runners:
        importlib.import_module(".".join(path.with_suffix("").parts).removesuffix(".__init__"))
sys.exit(pytest.main([folder, "--collect-only", "-qq"]))
"""
RUNNERS = ("train.py", "evaluate.py", "predict.py", "figures.py", "benchmark.py")  # may import shared
# Left to a package's own session, to keep `standalone` short; its test_predict.py trains, loads and predicts.
NOT_STANDALONE = ("train", "evaluate", "figures", "benchmark", "run")

# Tests never reach the network, open no window, and use one thread: on a busy machine two are slower.
TEST_ENV = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "MPLBACKEND": "Agg",
    "OMP_NUM_THREADS": "1",
}

HAS_UV = bool(shutil.which(os.environ.get("UV", "uv")) or importlib.util.find_spec("uv"))
nox.needs_version = ">=2024.10.9"
nox.options.default_venv_backend = "uv" if HAS_UV else "virtualenv"
logging.getLogger("nox").addFilter(lambda record: record.msg != "uv binary not found.")  # virtualenv does as well
# The tested versions, unless the user sets another file. A URL, because pip would split a path at its spaces.
os.environ.setdefault("PIP_CONSTRAINT", (ROOT / ".ci" / "constraints.txt").as_uri())


def pip_settings_for_uv() -> dict[str, str]:
    """The settings of pip that decide what is installed, as variables of uv, which reads none of pip's itself.

    A user's own UV_... variables win. pip takes the best version of all its indexes, so uv must, too.
    """
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout  # empty where there is no pip
    pip = {name: ast.literal_eval(value) for name, value in re.findall(r"^global\.([\w-]+)=(.+)$", listed, re.M)}
    for name in ("find-links", "index-url", "extra-index-url", "no-index", "cert", "constraint"):
        pip[name] = os.environ.get(f"PIP_{name.upper().replace('-', '_')}", pip.get(name, ""))
    constraint = urllib.parse.urlsplit(pip["constraint"])
    path = urllib.request.url2pathname(constraint.path) if constraint.scheme == "file" else pip["constraint"]
    uv = {
        # Relative, for uv splits it at blanks, too.
        "UV_CONSTRAINT": os.path.relpath(path, ROOT) if os.path.exists(path) else path,
        "UV_FIND_LINKS": ",".join(pip["find-links"].split()),
        "UV_DEFAULT_INDEX": pip["index-url"],
        "UV_INDEX": " ".join(pip["extra-index-url"].split()),
        "UV_NO_INDEX": pip["no-index"],
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "SSL_CERT_FILE": pip["cert"],
    }
    return {name: value for name, value in uv.items() if value and name not in os.environ}


def install(session: nox.Session, *what: str) -> None:
    """Install with uv or pip, whichever made the session's environment; both find the same versions."""
    if session.venv_backend == "uv":
        session.install(*what, env=pip_settings_for_uv())
    else:
        session.install(*what)


def package_python(session: nox.Session, name: str) -> str:
    """Create or update the environment of a package's own session and return the path of its Python."""
    session.run_install(sys.executable, "-m", "nox", "-r", "--install-only", "-s", name, external=True)
    scripts = ROOT / ".nox" / name / ("Scripts" if os.name == "nt" else "bin")
    return str(scripts / "python")


def chosen_package(session: nox.Session) -> tuple[str, list[str]]:
    """Split the arguments after -- into the package, which comes first, and the rest."""
    name, *rest = session.posargs or [""]
    if name not in PAPERS:
        session.error(f"say which package: nox -s {session.name} -- NAME, where NAME is one of: {', '.join(PAPERS)}")
    return name, rest


@nox.session
def lint(session: nox.Session) -> None:
    """Check style, the import rules, and that copies of one code are still alike; test the checks themselves."""
    install(session, "ruff", "pytest")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("python", ".ci/imports.py", *PAPERS)
    session.run("python", "-m", "pytest", ".ci/tests", *session.posargs)


@nox.session(venv_backend="none")
def trace(session: nox.Session) -> None:
    """Check that each equation and deviation in a README has its line of code and a test, and the other way."""
    session.run(sys.executable, ".ci/trace.py", *PAPERS, external=True)


def register_tests(name: str) -> None:
    """Register the session that tests one package."""

    def tests(session: nox.Session) -> None:
        install(session, "-r", f"{name}/requirements.txt", "pytest", *OPTIONAL.get(name, []))
        session.run("python", "-m", "pytest", f"{name}/tests", *session.posargs, env=TEST_ENV)

    tests.__doc__ = f"Test {name}: {PACKAGES[name]}. What follows -- goes to pytest."
    nox.session(tests, name=name)


for package_name in PACKAGES:
    register_tests(package_name)


@nox.session(venv_backend="none")
@nox.parametrize("package", PAPERS, ids=PAPERS)
def standalone(session: nox.Session, package: str) -> None:
    """Copy, rename and nest a package's folder: its idea files import alone, its tests (without the longest) pass."""
    python = package_python(session, package)
    # Outside the repository, where neither `shared` nor the settings of pyproject.toml can be found by accident.
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        nest = top / "vendor" / "inner"
        nest.mkdir(parents=True)
        (top / "pytest.ini").write_text("[pytest]\n")
        (nest / "__init__.py").touch()
        (nest.parent / "__init__.py").touch()
        skip_caches = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / package, nest / f"{package}_copied", ignore=skip_caches)
        # The path is for the commands that a test starts as processes of their own.
        options = {"env": {**TEST_ENV, "PYTHONPATH": folder}, "external": True}
        copied = f"vendor/inner/{package}_copied"
        with session.chdir(top):
            session.run(python, "-c", IMPORT_ALONE, copied, *RUNNERS, silent=True, **options)
            shutil.copytree(ROOT / "shared", top / "shared", ignore=skip_caches)
            skip = [f"--ignore={copied}/tests/test_{name}.py" for name in NOT_STANDALONE]
            session.run(python, "-m", "pytest", f"{copied}/tests", *skip, *session.posargs, **options)


@nox.session(venv_backend="none", default=False)
def mutants(session: nox.Session) -> None:
    """Check that a package's tests notice every mistake listed in its tests/mutants.txt: nox -s mutants -- l0drop."""
    name, rest = chosen_package(session)
    session.run(package_python(session, name), ".ci/mutants.py", name, *rest, env=TEST_ENV, external=True)


@nox.session(venv_backend="none", default=False)
def demo(session: nox.Session) -> None:
    """Train a tiny preset, print its table, draw its figures, predict a text: nox -s demo -- l0drop [train flags]."""
    name, rest = chosen_package(session)
    python = package_python(session, name)
    session.run(python, "-c", WRITE_STORY, external=True)
    for command in DEMOS[name]:
        module, *arguments = command.split() + (rest if command.startswith("train") else [])
        session.run(python, "-m", f"{name}.{module}", *arguments, env={"MPLBACKEND": "Agg"}, external=True)


@nox.session(venv_backend="none", default=False)
def bench(session: nox.Session) -> None:
    """Measure the costs that a package's paper claims, all sides in one run: nox -s bench -- l0drop."""
    name, rest = chosen_package(session)
    session.run(package_python(session, name), "-m", f"{name}.benchmark", *rest, external=True)
