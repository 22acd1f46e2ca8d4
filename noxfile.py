"""Checks (*: `nox` runs all of them) and jobs (-: run when named). One of them: `nox -s NAME`, e.g. `nox -s l0drop`."""

import ast
import importlib.util
import logging
import os
import re
import shlex
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
    "shared": ["datasets", "aclsum"],
    "diminishing_attention": ["bert-score", "POT", "aclsum"],  # Table 2, data
    "discourse_tree_attention": ["rst2dep", "depedit"],  # another conversion of trees, to compare with
}
# Imports the modules of a copied package that must not want `shared`, which is not there, and its tests: those that do
# want it leave themselves out.
IMPORT_ALONE = """
import importlib, pathlib, sys, pytest
folder, *skip = sys.argv[1:]
for path in sorted(pathlib.Path(folder).rglob("*.py")):
    if path.name not in skip and not {"tests", "experiments"} & set(path.parts):
        importlib.import_module(".".join(path.with_suffix("").parts).removesuffix(".__init__"))
sys.exit(pytest.main([folder, "--collect-only", "-qq"]))
"""
NOT_ALONE = ("train.py", "evaluate.py", "predict.py", "lesson.py")  # want shared; or run for long
# Left to a package's own session, to keep `standalone` short; its test_predict.py trains, loads and predicts.
NOT_STANDALONE = ("train", "evaluate", "run", "lesson", "readme")

# Tests never reach the network, open no window, and use one thread: on a busy machine two are slower.
TEST_ENV = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "MPLBACKEND": "Agg",
    "OMP_NUM_THREADS": "1",
}

# The instructions of other CPUs: most laptops' (no AVX-512), and still older ones' in oneDNN.
PORTABLE = {
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "DNNL_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "sse41": {"DNNL_MAX_CPU_ISA": "SSE41"},
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
    """Check that each equation and deviation in a PAPER.md has its line of code and a test, and the other way."""
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
    """Copy, rename and nest a package's folder, whole and without experiments/: it imports alone, its tests pass."""
    python = package_python(session, package)
    for whole in (True, False):
        # Outside the repository, where neither `shared` nor the settings of pyproject.toml can be found by accident.
        with tempfile.TemporaryDirectory() as folder:
            top = Path(folder)
            nest = top / "vendor" / "inner"
            nest.mkdir(parents=True)
            (top / "pytest.ini").write_text("[pytest]\n")
            (nest / "__init__.py").touch()
            (nest.parent / "__init__.py").touch()
            skip = shutil.ignore_patterns("__pycache__", *([] if whole else ["experiments"]))
            shutil.copytree(ROOT / package, nest / f"{package}_copied", ignore=skip)
            # The path is for the commands that a test starts as processes of their own.
            options = {"env": {**TEST_ENV, "PYTHONPATH": folder}, "external": True}
            copied = f"vendor/inner/{package}_copied"
            with session.chdir(top):
                session.run(python, "-c", IMPORT_ALONE, copied, *NOT_ALONE, silent=True, **options)
                shutil.copytree(ROOT / "shared", top / "shared", ignore=skip)
                left = [f"--ignore={copied}/tests/test_{name}.py" for name in NOT_STANDALONE]
                left += [f"--ignore={copied}/tests/experiments"]
                if whole:  # the laboratory's tests run in the package's own session; here they are only collected
                    session.run(
                        python, "-m", "pytest", "--collect-only", "-qq", f"{copied}/tests", silent=True, **options
                    )
                session.run(python, "-m", "pytest", f"{copied}/tests", *left, *session.posargs, **options)


@nox.session
@nox.parametrize("package", PAPERS, ids=PAPERS)
def lesson(session: nox.Session, package: str) -> None:
    """Run a lesson, which shows a paper's effect in seconds: nox -s lesson -- l0drop; --write executes its notebook."""
    rest = [argument for argument in session.posargs if argument != "--write"]
    if rest and package not in rest:
        session.skip(f"asked for: {', '.join(rest)}")
    if not (ROOT / package / "lesson.py").exists():
        session.skip(f"{package} has no lesson yet")
    install(session, "-r", f"{package}/requirements.txt", "matplotlib", "jupytext", "nbclient", "ipykernel")
    mode = "write" if "--write" in session.posargs else "check"
    session.run("python", ".ci/lesson.py", mode, package, env=TEST_ENV)


@nox.session(venv_backend="none", default=False)
def mutants(session: nox.Session) -> None:
    """Check that a package's tests notice every mistake listed in its tests/mutants.txt: nox -s mutants -- l0drop."""
    name, rest = chosen_package(session)
    session.run(package_python(session, name), ".ci/mutants.py", name, *rest, env=TEST_ENV, external=True)


@nox.session(venv_backend="none", default=False)
def demo(session: nox.Session) -> None:
    """Run the commands of a README's demo, three CPU minutes: train, see the effect, predict: nox -s demo -- l0drop."""
    name, rest = chosen_package(session)
    python = package_python(session, name)
    for command in demo_commands(name):
        # A second demo goes on where the first one ended.
        again = ["--resume", *rest] if ".train " in command else []
        arguments = [*shlex.split(command, comments=True)[1:], *again]
        session.run(python, *arguments, env=TEST_ENV, external=True)


def demo_commands(name: str) -> list[str]:
    """The lines of the block below <!-- demo --> in a package's README: each is a `python -m ...`."""
    text = (ROOT / name / "README.md").read_text(encoding="utf-8")
    block = re.search(r"<!-- demo -->\s*```\w*\n(.*?)```", text, re.DOTALL)
    if not block:
        raise ValueError(f"{name}/README.md has no block below <!-- demo -->")
    return re.sub(r"\\\n\s*", "", block[1]).strip().splitlines()


@nox.session(venv_backend="none", default=False)
@nox.parametrize("cpu", list(PORTABLE), ids=list(PORTABLE))
def portable(session: nox.Session, cpu: str) -> None:
    """Run a package's tests with the instructions of another CPU: nox -s portable -- l0drop."""
    name, rest = chosen_package(session)
    env = TEST_ENV | PORTABLE[cpu]
    session.run(package_python(session, name), "-m", "pytest", f"{name}/tests", *rest, env=env, external=True)


@nox.session(venv_backend="none", default=False)
def bench(session: nox.Session) -> None:
    """Measure the costs that a package's paper claims, all sides in one run: nox -s bench -- l0drop."""
    name, rest = chosen_package(session)
    session.run(package_python(session, name), "-m", f"{name}.experiments.benchmark", *rest, external=True)
