"""The checks and the on-request jobs of this repository; `nox -l` lists them.

Every package has a session of its own, in an environment that holds nothing but the package's `requirements.txt` and
pytest. The other sessions that need a package's environment use the same one: `package_python` brings it up to date.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import nox

ROOT = Path(__file__).resolve().parent

# The packages, in the order of their sessions. One that is not built yet has no session.
PACKAGES = {
    "l0drop": "L0 gates that prune source encodings",
    "encdec_sentence_sparse": "encoder-decoder attention over a few selected sentences",
    "head_masking": "content selection by masking attention heads",
    "diminishing_attention": "attention scores that diminish with repetition",
    "discourse_tree_attention": "attention heads fixed by a discourse tree",
    "shared": "data, toy corpus, ROUGE and timing",
}
# What a package's tests try if it is there, beyond its requirements.
OPTIONAL = {
    "shared": ["datasets", "aclsum; python_version >= '3.11'"],
    "diminishing_attention": ["bert-score", "POT", "aclsum; python_version >= '3.11'"],  # Table 2, data
    "discourse_tree_attention": ["rst2dep", "depedit"],  # another conversion of trees, to compare with
}
# What `demo` runs: a package's modules with their arguments. --resume, so that a second demo does not train again.
DEMOS = {
    "l0drop": (
        "train --out runs/l0drop-base --l0drop none --resume",
        "train --out runs/l0drop --init runs/l0drop-base --l0-weight 0.5 --steps 400 --resume",
        "evaluate runs/l0drop-base runs/l0drop --json runs/l0drop/metrics.json",
        "figures runs/l0drop --baseline runs/l0drop-base --metrics runs/l0drop/metrics.json --out figures/l0drop",
    ),
    "head_masking": (
        "train --task summarizer --out runs/head-masking --resume",
        "train --task tagger --out runs/head-masking-tagger --encoder runs/head-masking/model --resume",
        "evaluate runs/head-masking --tagger runs/head-masking-tagger --select --group 1 --oracle --sweep --focus "
        "--analysis 300 --json runs/head-masking/metrics.json",
        "figures runs/head-masking --out figures/head_masking",
    ),
    "encdec_sentence_sparse": (
        "train --task base --out runs/sparse-base --resume",
        "train --task sparse --out runs/sparse-gamma-0.1 --init runs/sparse-base --gamma 0.1 --resume",
        "train --task kl --out runs/sparse-kl --init runs/sparse-base --resume",
        "train --task integrated --out runs/sparse-int-approx --init runs/sparse-kl --select approx --r 4 --resume",
        "evaluate runs/sparse-base runs/sparse-gamma-0.1 runs/sparse-kl runs/sparse-int-approx --r 4 1 2 8 --limit 100 "
        "--map 0 --json runs/sparse-base/metrics.json",
        "figures runs/sparse-base --out figures/encdec_sentence_sparse",
    ),
    "diminishing_attention": (
        "train --preset repetition --out runs/pg --resume",
        "train --preset repetition --out runs/pg-more --init runs/pg --steps 150 --resume",
        "train --preset repetition --out runs/pg-cov --init runs/pg --coverage true --steps 150 --resume",
        "train --preset repetition --out runs/pg-dim --init runs/pg --diminishing dim --steps 150 --resume",
        "train --preset repetition --out runs/pg-dydim --init runs/pg --diminishing dydim --steps 150 --resume",
        "evaluate runs/pg-more runs/pg runs/pg-cov runs/pg-dim runs/pg-dydim --json runs/pg/metrics.json",
        "figures runs/pg/metrics.json --run runs/pg-dim --out figures/diminishing_attention",
    ),
    "discourse_tree_attention": (
        "train --out runs/discourse-dot --attention dot --resume",
        "train --out runs/discourse-tree --attention d_tree --resume",
        "train --out runs/discourse-shuffled --attention d_tree --shuffle-trees true --resume",
        "evaluate runs/discourse-dot runs/discourse-tree runs/discourse-shuffled",
        "figures runs/discourse-tree runs/discourse-dot --out figures/discourse_tree_attention",
    ),
}
BUILT = [name for name in PACKAGES if any((ROOT / name).glob("*.py"))]
PAPERS = [name for name in BUILT if name != "shared"]

# Tests never reach the network, open no window, and use one thread: on a busy machine two are slower.
TEST_ENV = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "MPLBACKEND": "Agg",
    "OMP_NUM_THREADS": "1",
}

nox.needs_version = ">=2024.10.9"
nox.options.default_venv_backend = "virtualenv"
# The tested versions, unless the user sets another file, or none (`PIP_CONSTRAINT= nox`). A URL, because pip would
# split a path at its spaces.
os.environ.setdefault("PIP_CONSTRAINT", (ROOT / ".ci" / "constraints.txt").as_uri())


def register_tests(name: str) -> None:
    """Register the session that tests one package."""

    def tests(session: nox.Session) -> None:
        session.install("-r", f"{name}/requirements.txt", "pytest", *OPTIONAL.get(name, []))
        session.run("python", "-m", "pytest", f"{name}/tests", *session.posargs, env=TEST_ENV)

    tests.__doc__ = f"Test {name} ({PACKAGES[name]}) in an environment of its own; arguments after -- go to pytest."
    nox.session(tests, name=name)


for package_name in BUILT:
    register_tests(package_name)


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
    """Check style (ruff), the import rules and the twins of all code, and test the checkers in .ci/ themselves."""
    session.install("ruff", "pytest")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("python", ".ci/imports.py", *PAPERS)
    session.run("python", "-m", "pytest", ".ci/tests", *session.posargs)


@nox.session(venv_backend="none")
@nox.parametrize("package", PAPERS, ids=PAPERS)
def standalone(session: nox.Session, package: str) -> None:
    """Test a copied, renamed and nested folder of the package, first alone, then with `shared` beside it."""
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
        run_tests = [python, "-m", "pytest", f"vendor/inner/{package}_copied/tests", *session.posargs]
        with session.chdir(top):
            session.run(*run_tests, env={**TEST_ENV, "PYTHONPATH": folder}, external=True)
            shutil.copytree(ROOT / "shared", top / "shared", ignore=skip_caches)
            session.run(*run_tests, env={**TEST_ENV, "PYTHONPATH": folder}, external=True)


@nox.session(venv_backend="none")
def trace(session: nox.Session) -> None:
    """Check that each equation, algorithm and deviation in a README has its code and a test, and the other way."""
    session.run(sys.executable, ".ci/trace.py", *PAPERS, external=True)


@nox.session(venv_backend="none", default=False)
def mutants(session: nox.Session) -> None:
    """Check that a package's tests notice every mistake listed in its tests/mutants.txt: nox -s mutants -- l0drop."""
    name, rest = chosen_package(session)
    session.run(package_python(session, name), ".ci/mutants.py", name, *rest, env=TEST_ENV, external=True)


@nox.session(venv_backend="none", default=False)
def demo(session: nox.Session) -> None:
    """Train a package's tiny preset, print its table and draw its figures: nox -s demo -- l0drop [train flags]."""
    name, rest = chosen_package(session)
    if name not in DEMOS:
        session.error(f"{name} has no line in DEMOS of the noxfile; write it")
    python = package_python(session, name)
    for command in DEMOS[name]:
        module, *arguments = command.split() + (rest if command.startswith("train") else [])
        session.run(python, "-m", f"{name}.{module}", *arguments, env={"MPLBACKEND": "Agg"}, external=True)


@nox.session(venv_backend="none", default=False)
def bench(session: nox.Session) -> None:
    """Measure the costs that a package's paper claims, all sides in one run: nox -s bench -- l0drop."""
    name, rest = chosen_package(session)
    session.run(package_python(session, name), "-m", f"{name}.benchmark", *rest, external=True)
