"""Checks (*: plain `nox` runs them) and jobs (-); each makes the environment that it needs.

Start with `nox -s lesson -- l0drop` and `nox -s l0drop`. What follows -- on a session's command
line goes to its tool; where a paper can be named there, all five are taken if none is.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
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
    "shared": "data, ROUGE, timing, and the plumbing of the five commands",
}
PAPERS = [name for name in PACKAGES if name != "shared"]
# What the pages are made with.
PAGES = ["pygments", "markdown-it-py", "latex2mathml"]
# What the tests of `shared` try if it is there, beyond its requirements.
OPTIONAL = ["datasets"]
# In a copy without `shared` each module that must not want it is imported; the commands say so.
IMPORT_ALONE = """
import importlib, pathlib, subprocess, sys
folder = sys.argv[1]
for path in sorted(pathlib.Path(folder).rglob("*.py")):
    name = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
    if path.name in ("train.py", "predict.py"):
        command = [sys.executable, "-m", name, "--help"]
        ended = subprocess.run(command, capture_output=True, text=True)
        assert ended.returncode and "shared" in ended.stderr.splitlines()[-1], ended.stderr
    elif path.name not in ("loading.py", "lesson.py") and "tests" not in path.parts:
        importlib.import_module(name)
"""

# Tests never reach the network, open no window, and use one thread: two are slower when busy.
TEST_ENV = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "MPLBACKEND": "Agg",
    "OMP_NUM_THREADS": "1",
    # Where it is set, each process would compile torch anew: 13 CPU seconds.
    "PYTHONDONTWRITEBYTECODE": "",
}

# The instructions of other CPUs: most laptops' (no AVX-512), and still older ones' in oneDNN.
PORTABLE = {
    "avx2": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "DNNL_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    },
    "sse41": {
        "ATEN_CPU_CAPABILITY": "default",
        "DNNL_MAX_CPU_ISA": "SSE41",
        "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
    },
}

nox.needs_version = ">=2024.10.9"
nox.options.default_venv_backend = "uv|virtualenv"


def pip_settings() -> dict[str, list[str]]:
    """What pip is told by its files and variables; empty where there is no pip."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    settings = {}
    # The later ones win: a command's own over those of all commands, the environment's over both.
    for origin in ("global", "install", ":env:"):
        for name, value in re.findall(rf"^{origin}\.([\w-]+)='(.*)'$", listed, re.M):
            settings[name] = value.split()
    return settings


def uv_settings() -> dict[str, str]:
    """Variables of uv: pip's sources of packages or, without any, PyTorch's build for this machine.

    uv reads none of pip's settings; a user's own UV_... win. Plain indexes have one build of torch
    for all, with CUDA.
    """
    pip = pip_settings()
    uv = {
        "UV_FIND_LINKS": ",".join(pip.get("find-links", [])),
        "UV_DEFAULT_INDEX": "".join(pip.get("index-url", [])),
        "UV_INDEX": " ".join(pip.get("extra-index-url", [])),
        "SSL_CERT_FILE": "".join(pip.get("cert", [])),
        # The best version of all indexes, as pip takes it.
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }
    uv = {name: value for name, value in uv.items() if value and name not in os.environ}
    source = re.compile("UV_(.*INDEX(_URL)?$|FIND_LINKS|TORCH_BACKEND)")
    if not any(map(source.match, [*uv, *os.environ])):
        uv["UV_TORCH_BACKEND"] = "auto"
    return uv


def install(session: nox.Session, *what: str) -> None:
    """Install the tested versions with uv or pip, whichever made the session's environment."""
    env = uv_settings() if session.venv_backend == "uv" else {}
    session.install("-c", ".ci/constraints.txt", *what, env=env)


def requirements(package: str, *more: str) -> list[str]:
    """Arguments of `install` for a package, its experiments included, and more of its files."""
    names = ["requirements.txt", "experiments/requirements.txt", *more]
    files = [f"{package}/{name}" for name in names]
    return [argument for file in files if (ROOT / file).exists() for argument in ("-r", file)]


def package_python(session: nox.Session, package: str) -> str:
    """Make or update .nox/PACKAGE, the environment of the package's tests; return its Python."""
    nox_again = [sys.executable, "-m", "nox", "-r", "--install-only", "-s", package]
    session.run_install(*nox_again, external=True)
    scripts = ROOT / ".nox" / package / ("Scripts" if os.name == "nt" else "bin")
    return str(scripts / "python")


def chosen(session: nox.Session) -> tuple[list[str], list[str]]:
    """The papers that are named after --, or all five; and what else stands there."""
    papers = [argument for argument in session.posargs if argument in PAPERS]
    rest = [argument for argument in session.posargs if argument not in PAPERS]
    if rest and not papers and not rest[0].startswith("-"):
        session.error(f"{rest[0]} is none of: {', '.join(PAPERS)}")
    return papers or PAPERS, rest


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and who imports whom; test the checks themselves."""
    tools = ["ruff", "import-linter", "pytest", "jupytext", "nbformat", "nox", "numpy"]
    install(session, *tools, "mini-racer", *PAGES)
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("lint-imports")
    session.run("python", "-m", "pytest", ".ci/tests", *session.posargs)


@nox.session
def pages(session: nox.Session) -> None:
    """Make pages/, formula beside code; each equation and deviation has its line and its test.

    --browser opens them in Chromium, Debian's package, and leaves screenshots.
    """
    install(session, *PAGES)
    papers, rest = chosen(session)
    session.run("python", ".ci/pages", *papers)
    if "--browser" in rest:
        install(session, "playwright")
        session.run("python", ".ci/browser.py", "pages")


def register_tests(package: str) -> None:
    """Register the session that tests one package."""

    def tests(session: nox.Session) -> None:
        optional = OPTIONAL if package == "shared" else []
        install(session, *requirements(package), "pytest", *optional)
        session.run("python", "-m", "pytest", f"{package}/tests", *session.posargs, env=TEST_ENV)

    tests.__doc__ = f"Test {package}: {PACKAGES[package]}. Environment: .nox/{package}"
    nox.session(tests, name=package)


for package_name in PACKAGES:
    register_tests(package_name)


@nox.session(venv_backend="none")
def standalone(session: nox.Session) -> None:
    """Copy, rename and nest a package's folder: its tests pass there, its commands run there."""
    papers, rest = chosen(session)
    for package in papers:
        python = package_python(session, package)
        for has_shared in (False, True):
            # Outside the repository neither `shared` nor pyproject.toml is found by accident.
            with tempfile.TemporaryDirectory() as folder, session.chdir(folder):
                test_copy(session, python, package, has_shared, rest)


def test_copy(
    session: nox.Session, python: str, package: str, has_shared: bool, rest: list[str]
) -> None:
    """Test a copy of a package in the working directory, which is empty."""
    copied = f"vendor/inner/{package}_copied"
    # Where there is no `shared`, experiments/ are left behind, too.
    left_behind = ["__pycache__"] if has_shared else ["__pycache__", "experiments"]
    shutil.copytree(ROOT / package, copied, ignore=shutil.ignore_patterns(*left_behind))
    Path("vendor/__init__.py").touch()
    Path("vendor/inner/__init__.py").touch()
    Path("pytest.ini").write_text("[pytest]\n")
    # The path is for the commands that a test starts as processes of their own.
    options = {"env": {**TEST_ENV, "PYTHONPATH": os.getcwd()}, "external": True}
    pytest = [python, "-m", "pytest", *rest]
    if not has_shared:
        session.run(python, "-c", IMPORT_ALONE, copied, silent=True, **options)
        ignored = f"--ignore={copied}/tests/test_readme.py"
        session.run(*pytest, copied, ignored, "-k", "not runs_alone and not shows", **options)
        return
    # The slowest tests do not depend on the place: the package's own session has them.
    ignored = shutil.ignore_patterns("__pycache__", "tests")
    shutil.copytree(ROOT / "shared", "shared", ignore=ignored)
    session.run(*pytest, "--collect-only", "-qq", copied, silent=True, **options)
    commands = [f"{copied}/tests/test_{name}.py" for name in ("commands", "predict")]
    first = next(path for path in commands if Path(path).exists())
    session.run(*pytest, first, "-k", "not resumes", **options)


@nox.session
def lesson(session: nox.Session) -> None:
    """Show a paper's effect: a network learns it before your eyes. nox -s lesson -- l0drop

    --write makes the notebook and the picture; --seeds [COUNT] says how safely each assert holds.
    """
    papers, rest = chosen(session)
    if not re.fullmatch(r"(--write|--seeds( \d+)?)?", " ".join(rest)):
        session.error(f"{' '.join(rest)} is none of: --write, --seeds, --seeds COUNT")
    mode, *count = [argument.lstrip("-") for argument in rest] or ["check"]
    for package in papers:
        needed = ["-r", f"{package}/requirements.txt", "matplotlib"]
        install(session, *needed, "jupytext", "nbclient", "ipykernel")
        session.run("python", ".ci/lesson.py", mode, package, *count, env=TEST_ENV)


@nox.session(default=False)
def together(session: nox.Session) -> None:
    """Run the tests of all packages in one process, in both orders: none disturbs the next."""
    needed = [argument for package in PACKAGES for argument in requirements(package)]
    install(session, *needed, "pytest", *OPTIONAL)
    folders = [f"{package}/tests" for package in PACKAGES]
    for order in (folders, folders[::-1]):
        session.run("python", "-m", "pytest", *order, *session.posargs, env=TEST_ENV)


@nox.session(venv_backend="none", default=False)
def mutants(session: nox.Session) -> None:
    """Plant each mistake of tests/mutants.txt: a test must notice. nox -s mutants -- l0drop"""
    papers, rest = chosen(session)
    for package in papers:
        python = package_python(session, package)
        session.run(python, ".ci/mutants.py", package, *rest, env=TEST_ENV, external=True)


@nox.session(venv_backend="none", default=False)
def demo(session: nox.Session) -> None:
    """Train and score on toy data, by the commands of the README. nox -s demo -- l0drop"""
    papers, rest = chosen(session)
    for package in papers:
        python = package_python(session, package)
        commands = demo_commands(package)
        for number, command in enumerate(commands, 1):
            session.log(f"{package}: command {number} of {len(commands)}")
            arguments = shlex.split(command, comments=True)[1:]
            # A second demo goes on where the first one ended.
            if re.search(r"\.(train|summarizer) ", command):
                arguments += ["--resume", *rest]
            session.run(python, *arguments, env=TEST_ENV, external=True)


def demo_commands(package: str) -> list[str]:
    """The lines below <!-- demo --> in a package's README: each is a `python -m ...`."""
    text = (ROOT / package / "README.md").read_text(encoding="utf-8")
    block = re.search(r"<!-- demo -->\s*```\w*\n(.*?)```", text, re.DOTALL)
    if not block:
        raise ValueError(f"{package}/README.md has no block below <!-- demo -->")
    return re.sub(r"\\\n\s*", "", block[1]).strip().splitlines()


@nox.session(venv_backend="none", default=False)
def portable(session: nox.Session) -> None:
    """Run a package's tests with the instructions of older CPUs. nox -s portable -- l0drop"""
    papers, rest = chosen(session)
    for package in papers:
        command = [package_python(session, package), "-m", "pytest", f"{package}/tests", *rest]
        for instructions in PORTABLE.values():
            session.run(*command, env=TEST_ENV | instructions, external=True)


@nox.session(default=False)
def bench(session: nox.Session) -> None:
    """Time what an idea costs and saves, beside what else one would use. nox -s bench -- l0drop

    What follows goes to the benchmark: --quick, --device cuda, --csv FILE.
    """
    papers, rest = chosen(session)
    for package in papers:
        # What only another side of the comparison needs, is in no other environment.
        install(session, *requirements(package, "experiments/benchmark.txt"))
        session.run("python", "-m", f"{package}.experiments.benchmark", *rest)
