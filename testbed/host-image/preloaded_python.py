# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs what root has Python read from a pipe, as Ansible does with modules, in a fork that has Python's library loaded.

Almost half of the processor time of a short module is the import of that library. A .pth file imports this at each
start of Python in the hosts of the tests. The first one leaves a process behind, which loads the library and waits at
this place of its start. Its forks go on from here, with the files, directory, environment, umask and limits of the
Python that asks for them, and that waits for their status.

Nothing of this collection is loaded, and of Ansible only bytecode. A module begins and ends as ever but for its parent
and its session, what a signal to the Python that waits does, and the order of sets, which comes from the process left
behind. It is in force where `make test` and `make test-ci` have made the hosts, see `init`: the demo, the benchmark and
the tests of each night do without.
"""

from __future__ import annotations

import marshal
import os
import sys

_IN_FORCE = "/run/testbed-preloaded-python"
# What Ansible's code for modules imports, and ours.
_LIBRARY = (
    *("argparse", "base64", "collections.abc", "copy", "ctypes", "dataclasses", "datetime", "decimal", "enum", "fcntl"),
    *("functools", "glob", "grp", "hashlib", "inspect", "json", "locale", "logging", "pathlib", "pkgutil", "platform"),
    *(
        "pwd",
        "random",
        "re",
        "resource",
        "runpy",
        "select",
        "selectors",
        "shlex",
        "shutil",
        "signal",
        "socket",
        "string",
    ),
    *(
        "struct",
        "subprocess",
        "syslog",
        "tempfile",
        "textwrap",
        "traceback",
        "typing",
        "uuid",
        "zipfile",
        "zip_bytecode",
    ),
)
_STREAMS = 3
_LIMITS = 16
_INT = 4
_MOST_WAITING = 256
_MOST_BYTES = 1 << 18


def _reads_a_module() -> bool:
    """Whether root has started this Python with nothing but a program in a pipe."""
    return (
        getattr(sys, "argv", None) == [""]
        and os.getuid() == os.geteuid() == 0
        and not sys.flags.isolated
        and not any(name.startswith("PYTHON") for name in os.environ)
        and os.path.exists(_IN_FORCE)
        and not os.isatty(0)
    )


def _address() -> str:
    """The socket for Pythons of one program, and of one encoding of the standard streams."""
    kind = (sys.executable, sys.implementation.cache_tag, sys.stdout.encoding, sys.stdout.errors)
    return f"/run/testbed-python-fork{'-'.join(map(str, kind)).replace('/', '-')}"


def _ask(address: str) -> None:
    """End with the status of a fork that reads the module; returns where there is no process to fork."""
    # Without the classes of the module socket, which take a tenth of what is saved.
    import _socket  # noqa: PLC0415
    import resource  # noqa: PLC0415

    asked = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    try:
        asked.connect(address)
    except FileNotFoundError:
        return
    except ConnectionRefusedError:
        os.unlink(address)
        return
    umask = os.umask(0o077)
    os.umask(umask)
    limits = [resource.getrlimit(number) for number in range(_LIMITS)]
    files = (*range(_STREAMS), os.open(".", os.O_RDONLY))
    numbers = b"".join(number.to_bytes(_INT, sys.byteorder) for number in files)
    asked.sendmsg(
        [marshal.dumps((dict(os.environ), umask, limits))], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, numbers)]
    )
    reply = asked.recv(_INT)
    status = int.from_bytes(reply, sys.byteorder) if reply else 1 << 8
    if os.WIFSIGNALED(status):
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.WEXITSTATUS(status))


def _path(file: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{file}")
    except FileNotFoundError:
        return ""


def _serve(address: str) -> None:
    """Load the library and fork for each Python that asks; returns in the forks alone, which read a module."""
    import gc  # noqa: PLC0415
    import importlib  # noqa: PLC0415
    import signal  # noqa: PLC0415
    import socket  # noqa: PLC0415

    os.setsid()
    os.chdir("/")
    os.umask(0o077)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(_STREAMS):
        os.dup2(nothing, stream)
    for file in map(int, os.listdir("/proc/self/fd")):
        # Python before 3.13 still reads the .pth file that has brought it here.
        if file >= _STREAMS and (path := _path(file)) and not path.endswith(".pth"):
            os.close(file)
    for name in _LIBRARY:
        importlib.import_module(name)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        listening.bind(address)
    except OSError:
        os._exit(0)  # another one was first
    listening.listen(_MOST_WAITING)
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        asking, _address = listening.accept()
        sys.modules["zip_bytecode"].load()
        if os.fork() == 0:
            break
        asking.close()
    listening.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    state, files, _flags, _sender = socket.recv_fds(asking, _MOST_BYTES, _STREAMS + 1)
    child = os.fork()
    if child:
        _child, status = os.waitpid(child, 0)
        asking.send(status.to_bytes(_INT, sys.byteorder))
        os._exit(0)
    asking.close()
    _continue(files, *marshal.loads(state))


def _continue(files: list[int], environment: dict[str, str], umask: int, limits: list[tuple[int, int]]) -> None:
    """Have this process be what the Python that asked is."""
    import locale  # noqa: PLC0415
    import resource  # noqa: PLC0415

    os.setsid()
    for number, file in enumerate(files[:_STREAMS]):
        os.dup2(file, number)
    os.fchdir(files[_STREAMS])
    for file in files:
        os.close(file)
    os.umask(umask)
    os.environ.clear()
    os.environ.update(environment)
    locale.setlocale(locale.LC_CTYPE, "")
    for number, limit in enumerate(limits):
        if resource.getrlimit(number) != limit:
            resource.setrlimit(number, limit)


if _reads_a_module():
    _ask(_address())
    if os.fork() == 0:
        _serve(_address())
