# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runner with real processes."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import time
from pathlib import Path

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._common.errors import ChangeError
from ansible_collections.gpu.fleet.plugins.module_utils._common.runner import (
    CommandResult,
    decode,
    find_executable,
    run,
    run_all,
)
from ansible_collections.gpu.fleet.plugins.module_utils._common.systemd import Systemd
from ansible_collections.gpu.fleet.plugins.module_utils._nvidia_smi import failures


def python(code: str) -> tuple[str, ...]:
    """The argv of a program that runs `code`."""
    return (sys.executable, "-SEc", code)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except FileNotFoundError:
        return False


def test_streams_and_status_are_kept_apart() -> None:
    result = run(python("import sys; print('out'); print('err', file=sys.stderr); sys.exit(14)"), 20)
    assert (result.text, result.error_text, result.rc) == ("out\n", "err\n", 14)
    assert not result.timed_out


def test_the_locale_is_c_and_the_input_is_closed() -> None:
    result = run(python("import os, sys; print(os.environ['LC_ALL'], os.environ['LANGUAGE'], sys.stdin.read())"), 20)
    assert result.text == "C C \n"


def test_arguments_are_never_a_shell_line() -> None:
    nasty = "; echo $HOME `id` 'x' \"y\" *"
    result = run((*python("import sys; print(sys.argv[1])"), nasty), 20)
    assert result.text == nasty + "\n"


def test_programs_run_side_by_side_and_reply_in_order() -> None:
    started = time.monotonic()
    results = run_all([python(f"import time; time.sleep(1); print({number})") for number in range(4)], 30)
    assert [result.text for result in results] == ["0\n", "1\n", "2\n", "3\n"]
    assert time.monotonic() - started < 3


def test_much_output_on_both_streams_does_not_block() -> None:
    code = "import sys; [(sys.stdout.write('o' * 65536), sys.stderr.write('e' * 65536)) for _ in range(40)]"
    result = run(python(code), 30)
    assert (len(result.stdout), len(result.stderr), result.rc) == (40 * 65536, 40 * 65536, 0)


def test_a_timeout_ends_the_children_as_well(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    code = f"""
import os, subprocess, time
child = subprocess.Popen(["sleep", "60"])
open({str(pids)!r}, "w").write(f"{{os.getpid()}} {{child.pid}}")
print("so far", flush=True)
time.sleep(60)
"""
    started = time.monotonic()
    result = run(python(code), 2)
    assert result.timed_out
    assert result.rc is None
    assert result.text == "so far\n"
    assert time.monotonic() - started < 10
    time.sleep(0.1)
    assert [is_running(int(pid)) for pid in pids.read_text().split()] == [False, False]


def test_a_child_that_keeps_the_output_open_counts_as_hanging() -> None:
    started = time.monotonic()
    result = run(("/bin/sh", "-c", "sleep 60 & echo done"), 1)
    assert result.timed_out
    assert time.monotonic() - started < 10


def test_one_that_hangs_does_not_take_the_replies_of_others() -> None:
    slow, quick = run_all([python("import time; time.sleep(60)"), python("print('here')")], 2)
    assert (slow.timed_out, quick.timed_out, quick.text, quick.rc) == (True, False, "here\n", 0)


def test_endless_output_is_cut_and_the_program_ended() -> None:
    (result,) = run_all([python("while True: print('x' * 65536)")], 30, max_output_bytes=1 << 20)
    assert result.too_large
    assert result.stdout == b""
    assert result.seconds < 25


@pytest.mark.parametrize(("mode", "reason"), [(None, "no_driver"), (0o644, "permission_denied")])
def test_a_program_that_cannot_start(tmp_path: Path, mode: int | None, reason: str) -> None:
    program = tmp_path / "nvidia-smi"
    if mode is not None:
        program.write_text("#!/bin/sh\n")
        program.chmod(mode)
    result = run((str(program),), 5)
    assert result.rc is None
    assert result.start_error is not None
    assert failures.explain(result)[0] == reason


def test_a_signal_is_a_negative_status() -> None:
    assert run(python("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"), 20).rc == -11


def test_names_are_looked_up_beyond_a_short_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "some-smi"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", "/nonexistent")
    assert find_executable("some-smi", (str(tmp_path),)) == str(program)
    assert find_executable("other-smi", (str(tmp_path),)) == "other-smi"
    assert find_executable(str(program)) == str(program)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", ""),
        (b"plain", "plain"),
        ("\u20ac".encode(), "\u20ac"),
        (b"\xef\xbb\xbfmark", "mark"),
        ("wide".encode("utf-16"), "wide"),
        ("wide".encode("utf-16-le"), "wide"),
        ("wide".encode("utf-16-be"), "wide"),
        (b"a\xffb", "a\ufffdb"),
    ],
)
def test_decode(data: bytes, text: str) -> None:
    assert decode(data) == text


# Exit status, reason, and output of nvidia-smi on real hosts; that of a K20m: https://gist.github.com/echain/5582822.
MESSAGES = """
9 not_loaded NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest
18 version_mismatch Failed to initialize NVML: Driver/library version mismatch
255 version_mismatch Failed to initialize NVML: Driver/library version mismatch
6 no_gpu No devices were found
0 no_gpu No devices found.
15 gpu_lost Unable to determine the device handle for GPU1: GPU is lost. Reboot the system to recover this GPU
4 permission_denied Failed to initialize NVML: Insufficient Permissions
255 failed Failed to initialize NVML: Unknown Error
12 library_missing NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.
255 insufficient_power Unable to communicate with GPU because it is insufficiently powered. This may be because not all
8 insufficient_power
9 not_loaded
18 version_mismatch
1 failed
-11 failed
"""


@pytest.mark.parametrize("line", MESSAGES.strip().splitlines())
def test_reasons(line: str) -> None:
    status, reason, messages = [*line.split(" ", 2), ""][:3]
    result = CommandResult(("nvidia-smi",), int(status), f"{messages}\n\n".encode(), b"", 0.1)
    found, message = failures.explain(result)
    assert found == reason
    assert messages in message


def _children() -> set[int]:
    """Of this process, those that have ended and were not waited for among them."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            # A name may have parentheses.
            _state, parent, *_rest = path.read_text().rpartition(")")[2].split()
            if int(parent) == os.getpid():
                found.add(int(path.parent.name))
    return found


def test_no_process_is_left_behind() -> None:
    # The process that runs plays may be there.
    before, children = len(list(Path("/proc/self/fd").iterdir())), _children()
    for _round in range(5):
        run_all([python("pass"), ("/nonexistent",), python("import time; time.sleep(9)")], 0.3)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    assert _children() == children


ENDINGS = {
    "a limit": (CommandResult(("x",), None, b"", b"", 300.2, timed_out=True), "it did not end within 300 s"),
    "no program": (CommandResult(("x",), None, b"", b"", 0.0, start_error=errno.ENOENT), "No such file or directory"),
    "a signal": (CommandResult(("x",), -15, b"", b"", 0.1), "signal 15"),
    "a status": (CommandResult(("x",), 4, b"", b"", 0.1), "exit status 4"),
    "too much output": (CommandResult(("x",), None, b"", b"", 0.1, too_large=True), "it was killed"),
}


@pytest.mark.parametrize("case", ENDINGS)
def test_an_error_message_states_how_a_silent_program_ended(case: str) -> None:
    result, words = ENDINGS[case]
    assert result.ending == words


def test_a_unit_that_does_not_stop_is_an_error_in_words() -> None:
    stuck = CommandResult(("systemctl",), None, b"", b"", 400.0, timed_out=True)
    systemd = Systemd(run=lambda _commands, _timeout: [stuck])
    with pytest.raises(ChangeError, match=r"^systemctl stop x.service failed: it did not end within 400 s$"):
        systemd.act("stop", "x.service")
