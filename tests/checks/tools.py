# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run tools as users do: as commands, in the right directory, with every cache inside the checkout."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache"
COLLECTIONS = CACHE / "collections"
# The environment that pytest runs in also has ansible-core and the linters.
VENV = Path(sys.prefix)
# ansible-test, pip and ansible-lint write to the home directory: give them one inside the checkout.
HOME = CACHE / "home"

_OUTPUT_LINES = 60


class ToolError(Exception):
    """A command failed; the message has the command, its directory, exit status and the end of its `output`."""

    def __init__(self, message: str, output: str = "") -> None:
        super().__init__(message)
        self.output = output


def environment(venv: Path = VENV) -> dict[str, str]:
    """Environment variables for a tool of `venv`: no personal Ansible settings, no writes outside of the checkout."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "MOLECULE_", "PYTHON"))
    }
    HOME.mkdir(parents=True, exist_ok=True)
    return kept | {
        "PATH": f"{venv / 'bin'}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "HOME": str(HOME),
        "XDG_CACHE_HOME": str(CACHE / "xdg"),
        "PIP_CACHE_DIR": str(CACHE / "pip"),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PYTHONPYCACHEPREFIX": str(CACHE / "pycache"),
        "ANSIBLE_HOME": str(HOME / ".ansible"),
        "ANSIBLE_COLLECTIONS_PATH": str(COLLECTIONS),
        "ANSIBLE_INJECT_FACT_VARS": "false",
        "ANSIBLE_NOCOLOR": "1",
        "NO_COLOR": "1",
        "LC_ALL": "C.UTF-8",
    }


def run(argv: Sequence[str | Path], *, cwd: Path = ROOT, env: Mapping[str, str] | None = None) -> str:
    """Run a command and return stdout and stderr merged; raise ToolError if its exit status is not 0."""
    command = [str(word) for word in argv]
    done = subprocess.run(
        command,
        cwd=cwd,
        env=dict(env or environment()),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    if done.returncode:
        lines = done.stdout.rstrip().splitlines()
        left_out = len(lines) - _OUTPUT_LINES
        shown = [f"[{left_out} lines left out]", *lines[left_out:]] if left_out > 0 else lines
        raise ToolError(
            "\n".join([f"(cd {cwd} && {shlex.join(command)}) ended with {done.returncode}:", *shown]), done.stdout
        )
    return done.stdout


def check(argv: Sequence[str | Path], *, cwd: Path = ROOT, env: Mapping[str, str] | None = None) -> str:
    """As `run`, for tests: a failure shows the tool's own output without a Python traceback."""
    try:
        return run(argv, cwd=cwd, env=env)
    except ToolError as error:
        failure = str(error)
    pytest.fail(failure, pytrace=False)


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold a lock of this checkout: the workers of a pytest run share .cache."""
    path = CACHE / "locks" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def make_venv(path: Path, python: Path, requirements: Sequence[str]) -> Path:
    """Create a virtual environment with these packages at `path` unless it exists with exactly these; return `path`."""
    digest = hashlib.sha256("\n".join([str(python.resolve()), *requirements]).encode()).hexdigest()
    marker = path / ".inputs"
    with locked(path.name):
        if not (marker.exists() and marker.read_text(encoding="utf-8") == digest):
            shutil.rmtree(path, ignore_errors=True)
            run([python, "-m", "venv", path])
            run([path / "bin" / "pip", "install", "-q", *requirements], env=environment(path))
            marker.write_text(digest, encoding="utf-8")
    return path


def project_files(*suffixes: str) -> list[Path]:
    """Files of the project relative to ROOT, tracked or new but not ignored; optionally only those with a suffix."""
    listed = run(
        ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    )
    names = sorted({Path(name) for name in listed.split("\0") if name})
    return [name for name in names if (not suffixes or name.name.endswith(suffixes)) and (ROOT / name).is_file()]
