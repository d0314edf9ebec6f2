# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a module finds in a fork of the hosts' preloaded Python is what it finds in a Python of its own."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from testbed import settings
from tests.system.support import Result, run

_HOSTS = ("dgx-h200", "dual-a100")
_FLAG = "/run/testbed-preloaded-python"
_SOCKETS = "/run/testbed-python-fork*"
_STATE = """
import json, locale, os, resource, sys
print(json.dumps({
    "directory": os.getcwd(),
    "environment": sorted(item for item in os.environ.items() if not item[0].startswith("SSH_")),
    "arguments": [sys.argv, sys.executable, sys.path, repr(sys.flags)],
    "umask": os.umask(0o22),
    "limits": [resource.getrlimit(number) for number in range(16)],
    "files": sorted(os.listdir("/proc/self/fd")),
    "locale": locale.setlocale(locale.LC_ALL),
    "streams": [(one.encoding, one.errors, one.isatty()) for one in (sys.stdin, sys.stdout, sys.stderr)],
    "names": [name for name in sorted(globals()) if name.startswith("__")],
    "cgroups": open("/proc/self/cgroup").read(),
    "loaded": [name for name in sys.modules if name.startswith(("ansible", "gpu_fleet"))],
    "rest": sys.stdin.read(),
}))
"""
_PROGRAMS = {
    "state": _STATE,
    "status": "import sys; print('wrong', file=sys.stderr); sys.exit(7)",
    "exception": "raise ValueError('wrong')",
    "signal": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "children": "import subprocess; print(subprocess.run(['sh', '-c', 'exit 3']).returncode)",
    "exit": "import atexit; atexit.register(print, 'ended'); print('ends')",
}


def _on(host: str, command: str) -> Result:
    return run(["ssh", "-F", str(settings.SSH_CONFIG), host, command])


@pytest.fixture(scope="module")
def found(demo: Result) -> dict[str, dict[str, list[tuple[int, str]]]]:
    """What each program does by a Python of its own, and by a fork, on each host."""
    assert demo.status == 0
    results: dict[str, dict[str, list[tuple[int, str]]]] = {}
    for host in _HOSTS:
        was = _on(host, f"test -e {_FLAG}").status == 0
        for way in ("own", "fork"):
            # The first one leaves the process behind.
            begin = f"touch {_FLAG}; echo pass | python3; until ls {_SOCKETS}; do sleep 0.1; done"
            assert _on(host, begin if way == "fork" else f"rm -f {_FLAG}").status == 0
            for name, program in _PROGRAMS.items():
                asked = (
                    f"cd /usr; umask 027; ulimit -n 777; printf %s {shlex.quote(program)} | LANG=C A=1 python3; exit $?"
                )
                done = _on(host, asked)
                results.setdefault(name, {}).setdefault(way, []).append((done.status, done.output))
        _on(host, f"touch {_FLAG}" if was else f"rm -f {_FLAG}")
    return results


@pytest.mark.parametrize("name", _PROGRAMS)
def test_a_fork_does_what_a_python_of_its_own_does(name: str, found: dict[str, dict[str, Any]]) -> None:
    assert found[name]["fork"] == found[name]["own"]


def test_the_programs_find_what_they_are_to_find(found: dict[str, dict[str, Any]]) -> None:
    for _status, output in found["state"]["fork"]:
        state = json.loads(output)
        assert (state["directory"], state["umask"], state["limits"][7]) == ("/usr", 0o27, [777, 777])
        assert ["A", "1"] in state["environment"] and state["loaded"] == []
    assert {status for status, _output in found["status"]["fork"]} == {7}
    assert {status for status, _output in found["signal"]["fork"]} == {143}
    assert {output for _status, output in found["exit"]["fork"]} == {"ends\nended\n"}


def test_a_fork_has_run_them(demo: Result) -> None:
    assert demo.status == 0
    parent = "import os; print(open(f'/proc/{os.getppid()}/comm').read().strip())"
    ask = f"touch {_FLAG}; echo {shlex.quote(parent)} | python3"
    assert [_on(host, ask).output.strip() for host in _HOSTS] == ["python3"] * len(_HOSTS)
