"""Checks (*: `nox` runs all of them) and jobs (-: run when named). One of them: `nox -s NAME`, e.g.

`nox -s l0drop`.
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
    "shared": "data, pretrained models, run folders, scores",
}
PAPERS = [name for name in PACKAGES if name != "shared"]
# What the pages are made with.
PAGES = ["pygments", "markdown-it-py", "latex2mathml"]
# What the tests of `shared` try if it is there, beyond its requirements.
OPTIONAL = ["datasets"]
# Of a copied package without `shared`: the modules that must not want it are imported, the commands
# say what they want.
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

# Tests never reach the network, open no window, and use one thread: on a busy machine two are
# slower.
TEST_ENV = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "MPLBACKEND": "Agg",
    "OMP_NUM_THREADS": "1",
    # where it is set, each process would compile torch anew, 13 CPU seconds
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


def uv_settings() -> dict[str, str]:
    """Variables of uv: where packages come from, as pip has it set, or else PyTorch's build for
    this machine.

    uv reads none of pip's settings; a user's own UV_... win. Plain indexes have one build of torch
    for all, with CUDA.
    """
    command = [sys.executable, "-m", "pip", "config", "list"]
    # empty where there is no pip
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    # A command's own settings win over all commands', the environment's over both.
    pip = re.findall(r"^(:env:|install|global)\.([\w-]+)='(.*)'$", listed, re.M)
    pip = {
        name: value.split()
        for _, name, value in sorted(pip, key=lambda each: "gi:".index(each[0][0]))
    }
    uv = {
        "UV_FIND_LINKS": ",".join(pip.get("find-links", [])),
        "UV_DEFAULT_INDEX": "".join(pip.get("index-url", [])),
        "UV_INDEX": " ".join(pip.get("extra-index-url", [])),
        "SSL_CERT_FILE": "".join(pip.get("cert", [])),
        # the best version of all indexes, as pip takes it
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }
    uv = {name: value for name, value in uv.items() if value and name not in os.environ}
    if not any(
        re.match("UV_(.*INDEX(_URL)?$|FIND_LINKS|TORCH_BACKEND)", name)
        for name in {**uv, **os.environ}
    ):
        uv["UV_TORCH_BACKEND"] = "auto"
    return uv


def install(session: nox.Session, *what: str) -> None:
    """Install the tested versions with uv or pip, whichever made the session's environment."""
    env = uv_settings() if session.venv_backend == "uv" else {}
    session.install("-c", ".ci/constraints.txt", *what, env=env)


def asked_for() -> list[str]:
    """The packages named after -- on nox's command line, or all five: the others get no session and
    no environment.
    """
    given = sys.argv[sys.argv.index("--") + 1 :] if "--" in sys.argv else []
    return [name for name in PAPERS if name in given] or PAPERS


def requirements(name: str) -> list[str]:
    """Arguments of `install` for a package, its experiments included."""
    files = [f"{name}/requirements.txt", f"{name}/experiments/requirements.txt"]
    return [argument for file in files if (ROOT / file).exists() for argument in ("-r", file)]


def package_python(session: nox.Session, name: str) -> str:
    """Create or update the environment of a package's own session and return the path of its
    Python.
    """
    session.run_install(
        sys.executable, "-m", "nox", "-r", "--install-only", "-s", name, external=True
    )
    scripts = ROOT / ".nox" / name / ("Scripts" if os.name == "nt" else "bin")
    return str(scripts / "python")


def chosen_package(session: nox.Session) -> tuple[str, list[str]]:
    """Split the arguments after -- into the package, which comes first, and the rest."""
    name, *rest = session.posargs or [""]
    if name not in PAPERS:
        session.error(
            f"say which package: nox -s {session.name} -- NAME, where NAME is one of: "
            f"{', '.join(PAPERS)}"
        )
    return name, rest


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and the import rules; test the checks themselves."""
    install(
        session,
        "ruff",
        "import-linter",
        "pytest",
        "jupytext",
        "nbformat",
        "nox",
        "numpy",
        "mini-racer",
        *PAGES,
    )
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("lint-imports")
    session.run("python", "-m", "pytest", ".ci/tests", *session.posargs)


@nox.session
def pages(session: nox.Session) -> None:
    """Make pages/, formula beside code: each equation and deviation has line and test; --
    --browser: in Chromium.
    """
    install(session, *PAGES)
    names = [argument for argument in session.posargs if not argument.startswith("--")]
    session.run("python", ".ci/pages", *names)
    if "--browser" in session.posargs:
        install(session, "playwright")
        session.run("python", ".ci/browser.py", "pages")


def register_tests(name: str) -> None:
    """Register the session that tests one package."""

    def tests(session: nox.Session) -> None:
        install(session, *requirements(name), "pytest", *(OPTIONAL if name == "shared" else []))
        session.run("python", "-m", "pytest", f"{name}/tests", *session.posargs, env=TEST_ENV)

    tests.__doc__ = f"Test {name}: {PACKAGES[name]}. What follows -- goes to pytest."
    nox.session(tests, name=name)


for package_name in PACKAGES:
    register_tests(package_name)


@nox.session(venv_backend="none")
@nox.parametrize("package", PAPERS, ids=PAPERS)
def standalone(session: nox.Session, package: str) -> None:
    """Copy, rename and nest a package's folder: its tests pass without `shared`, its commands run
    beside it.
    """
    python = package_python(session, package)
    for with_shared in (False, True):
        # Outside the repository, where neither `shared` nor the settings of pyproject.toml can be
        # found by accident.
        with tempfile.TemporaryDirectory() as folder, session.chdir(folder):
            copied = f"vendor/inner/{package}_copied"
            # Where there is no `shared`, experiments/ are left behind, too.
            skip = shutil.ignore_patterns("__pycache__", *([] if with_shared else ["experiments"]))
            shutil.copytree(ROOT / package, copied, ignore=skip)
            for path in ("vendor/__init__.py", "vendor/inner/__init__.py", "pytest.ini"):
                Path(path).write_text("[pytest]\n" if path == "pytest.ini" else "")
            # The path is for the commands that a test starts as processes of their own.
            options = {"env": {**TEST_ENV, "PYTHONPATH": folder}, "external": True}
            # Without the slowest tests, which do not depend on the place: the package's own session
            # has them.
            pytest = [python, "-m", "pytest", *session.posargs]
            if with_shared:
                shutil.copytree(
                    ROOT / "shared", "shared", ignore=shutil.ignore_patterns("__pycache__", "tests")
                )
                session.run(*pytest, "--collect-only", "-qq", copied, silent=True, **options)
                commands = [
                    f"{copied}/tests/{name}.py" for name in ("test_commands", "test_predict")
                ]
                first = next(path for path in commands if Path(path).exists())
                session.run(*pytest, first, "-k", "not resumes", **options)
            else:
                session.run(python, "-c", IMPORT_ALONE, copied, silent=True, **options)
                session.run(
                    *pytest,
                    copied,
                    f"--ignore={copied}/tests/test_readme.py",
                    "-k",
                    "not runs_alone",
                    **options,
                )


@nox.session(default=False)
def together(session: nox.Session) -> None:
    """Run the tests of all packages in one process, in both orders: none leaves anything behind for
    the next.
    """
    install(
        session,
        *(argument for name in PACKAGES for argument in requirements(name)),
        "pytest",
        *OPTIONAL,
    )
    folders = [f"{name}/tests" for name in PACKAGES]
    for order in (folders, folders[::-1]):
        session.run("python", "-m", "pytest", *order, *session.posargs, env=TEST_ENV)


@nox.session
@nox.parametrize("package", asked_for(), ids=asked_for())
def lesson(session: nox.Session, package: str) -> None:
    """Tell a lesson, which shows a paper's effect in seconds: nox -s lesson -- l0drop [--write |
    --seeds [COUNT]].
    """
    rest = [argument for argument in session.posargs if argument not in PAPERS]
    if not re.fullmatch(r"(--write|--seeds( \d+)?)?", " ".join(rest)):
        session.error(
            f"{' '.join(rest)} is none of: {', '.join(PAPERS)}, --write, --seeds, --seeds COUNT"
        )
    install(
        session,
        "-r",
        f"{package}/requirements.txt",
        "matplotlib",
        "jupytext",
        "nbclient",
        "ipykernel",
    )
    mode, *count = [argument.lstrip("-") for argument in rest] or ["check"]
    session.run("python", ".ci/lesson.py", mode, package, *count, env=TEST_ENV)


@nox.session(venv_backend="none", default=False)
def mutants(session: nox.Session) -> None:
    """Check that a package's tests notice every mistake listed in its tests/mutants.txt: nox -s
    mutants -- l0drop.
    """
    name, rest = chosen_package(session)
    session.run(
        package_python(session, name), ".ci/mutants.py", name, *rest, env=TEST_ENV, external=True
    )


@nox.session(venv_backend="none", default=False)
def demo(session: nox.Session) -> None:
    """Run the commands of a README's demo, two to six CPU minutes: nox -s demo -- l0drop."""
    name, rest = chosen_package(session)
    python, commands = package_python(session, name), demo_commands(name)
    for number, command in enumerate(commands, 1):
        session.log(f"{name}: command {number} of {len(commands)}")
        # A second demo goes on where the first one ended.
        again = ["--resume", *rest] if re.search(r"\.(train|summarizer) ", command) else []
        arguments = [*shlex.split(command, comments=True)[1:], *again]
        session.run(python, *arguments, env=TEST_ENV, external=True)


def demo_commands(name: str) -> list[str]:
    """The lines of the block below <!-- demo --> in a package's README: each is a `python -m
    ...`.
    """
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
    session.run(
        package_python(session, name),
        "-m",
        "pytest",
        f"{name}/tests",
        *rest,
        env=env,
        external=True,
    )


@nox.session(venv_backend="none", default=False)
def bench(session: nox.Session) -> None:
    """Measure the costs that a package's paper claims, all sides in one run: nox -s bench --
    l0drop.
    """
    name, rest = chosen_package(session)
    if not (ROOT / name / "experiments" / "benchmark.py").exists():
        session.error(f"{name} has no benchmark: its paper reports no time")
    session.run(
        package_python(session, name), "-m", f"{name}.experiments.benchmark", *rest, external=True
    )
