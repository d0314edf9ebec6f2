# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Change the packages of a host in one dnf transaction. Private to this collection."""

from __future__ import annotations

import fnmatch
import re
import tempfile
import time
from dataclasses import replace
from typing import Mapping, Sequence

from .._common.runner import CommandResult
from .plan import (
    PackageError,
    PackagePlan,
    PackageRequest,
    RefusedError,
    Run,
    error_message,
    first_line,
    output_of,
    refuse_unrelated_removals,
    unmet,
    unreachable,
    with_scripts,
)

_QUERY = ("rpm", "--query", "--all", "--queryformat", "%{NAME}\\t%{EPOCHNUM}:%{VERSION}-%{RELEASE}\\t%{ARCH}\\n")
# dnf itself must not wait for its lock: _waited does, with a time limit.
# What nothing needs any more stays, as with apt: it may have come before the driver, or be used without a dependency.
_DNF = (
    *("dnf", "--setopt=exit_on_lock=True", "--setopt=install_weak_deps=False", "--allowerasing"),
    "--setopt=clean_requirements_on_remove=False",
)
# Our own version locks must not block the change: it names exact versions, which are locked again afterwards.
_UNLOCKED = ("--disableplugin=versionlock",)
# Without it dnf.conf decides whether `install` moves an installed package to the newest one that matches.
_NEWEST = "--best"
# Cached metadata of a repository may be two days old, and its packages may have changed.
_REFRESH = "--refresh"
_NEEDS = (
    *("dnf", "--quiet", "--disablerepo=*", "repoquery", "--installed", "--requires", "--resolve", "--recursive"),
    *("--queryformat", "%{name} %{arch}\\n"),
)
_RPM_LOCKED = re.compile(r"transaction lock on \S*\.rpm\.lock \(Resource temporarily unavailable\)")
# Of rpm with Berkeley DB (EL 8) and with SQLite (EL 9 and newer).
_DAMAGED = re.compile(
    r"DB_RUNRECOVERY|database disk image is malformed|file is not a database|rpmdb open failed|damaged header"
    r"|cannot open Packages|rpmdbNextIterator: skipping"
)
_LOCKED = re.compile(r"exit_on_lock|waiting for process|Failed to obtain the transaction lock", re.IGNORECASE)
_SECTION = re.compile(r"^(\S[^\n]*):\n((?:^ .*\n?)+)", re.MULTILINE)
_ROW = re.compile(r"^ (\S+)\s+(\S+)\s+(\S+)\s+(\S+)\s+[\d.,]+ \S+", re.MULTILINE)
_POLL_SECONDS = 2.0
# The architecture of packages for other programs than the host's own: libraries of 32 bits.
_OTHER = re.compile(r"i[3-6]86")


def parse_installed(text: str) -> dict[str, str]:
    """Versions, with their epoch, of the installed packages by name; the last of several, as for kernels."""
    rows = (line.split("\t") for line in text.splitlines())
    return {_named(row[0], *row[2:]): row[1] for row in rows if len(row) > 1}


def duplicates(text: str) -> dict[str, list[str]]:
    """Packages that are installed in several versions, as dnf leaves them that was killed between install and removal.

    Kernels, keys and what is for several architectures are meant to be there more than once.
    """
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        name, version, architecture = (*line.split("\t"), "", "")[:3]
        if version and not name.startswith(("kernel", "gpg-pubkey")):
            found.setdefault(f"{name}.{architecture}", []).append(version)
    return {name.rpartition(".")[0]: versions for name, versions in found.items() if len({*versions}) > 1}


def repair_advice(twice: Mapping[str, Sequence[str]]) -> str:
    """What to do about packages of an interrupted transaction; the newest may be incomplete."""
    names = ", ".join(f"{name} ({' and '.join(versions)})" for name, versions in twice.items())
    return (
        f"{names} is installed in several versions, as an interrupted dnf leaves it; run `dnf --assumeyes remove "
        "--duplicates` on the host, which keeps the newest and installs it again, and read its error message; `dnf "
        "check --duplicates` then prints nothing. Then run again; where another dnf or another run is at work, wait "
        "until it has ended"
    )


def _named(name: str, architecture: str = "") -> str:
    """The name of a package, with the architecture where it is not the host's."""
    return f"{name}.{architecture}" if _OTHER.fullmatch(architecture) else name


def _specification(name: str, version: str) -> str:
    """A package in a version as dnf takes it: the architecture comes last."""
    base, dot, architecture = name.rpartition(".")
    if not version:
        return name
    return f"{base}-{version}.{architecture}" if dot and _OTHER.fullmatch(architecture) else f"{name}-{version}"


def parse_transaction(text: str) -> tuple[dict[str, str], dict[str, str]]:
    """What the table of `dnf --assumeno` would install (upgrade, downgrade) and remove: versions by name."""
    install: dict[str, str] = {}
    remove: dict[str, str] = {}
    for title, rows in _SECTION.findall(text):
        if re.match(r"(Install|Upgrad|Downgrad|Reinstall)", title):
            install.update((_named(name, arch), version) for name, arch, version, _repository in _ROW.findall(rows))
        elif title.startswith("Remov"):
            remove.update((_named(name, arch), version) for name, arch, version, _repository in _ROW.findall(rows))
    return install, {name: version for name, version in remove.items() if name not in install}


def parse_unused(text: str) -> set[str]:
    """The packages that the table of `dnf --assumeno` removes only because nothing would need them any more."""
    unused = (rows for title, rows in _SECTION.findall(text) if title.startswith("Removing unused"))
    return {_named(name, arch) for rows in unused for name, arch, _version, _repository in _ROW.findall(rows)}


def parse_stream(text: str, module: str) -> str:
    """The enabled stream from `/etc/dnf/modules.d/<module>.module`, as `module:stream`; empty when none is."""
    enabled = re.search(r"(?m)^state\s*=\s*enabled\s*$", text)
    stream = re.search(r"(?m)^stream\s*=\s*(\S+)\s*$", text)
    return f"{module}:{stream[1]}" if enabled and stream else ""


def matches_rpm(installed: str, desired: str) -> bool:
    """Whether `epoch:version-release` matches a requested version, which may omit epoch and release."""
    without_epoch = installed.partition(":")[2]
    version = without_epoch.partition("-")[0]
    return any(fnmatch.fnmatchcase(form, desired) for form in (installed, without_epoch, version))


def plan(request: PackageRequest, run: Run, stream_before: str = "") -> PackagePlan:
    """Plan the change; raises PackageError when it is impossible."""
    listed = output_of(run(_QUERY), _explain)
    installed = parse_installed(listed)
    ours = {*request.desired, *request.remove}
    twice = {name: versions for name, versions in duplicates(listed).items() if name in ours}
    if twice and not request.repair:
        raise RefusedError(repair_advice(twice))
    stream = request.stream or ("" if request.module else stream_before)
    gone = _unneeded(request, installed, run)
    # An older version that matches `580.*` is not enough where the newest one is requested.
    satisfied = not request.upgrade and not unmet(request, installed, matches_rpm)
    if satisfied and not gone and stream == stream_before:
        return PackagePlan(before=installed, stream=stream, stream_before=stream_before)
    if stream != stream_before:
        # The content of another stream is visible only once it is enabled, so this plan has only requested packages;
        # apply() refuses unrelated removals.
        return PackagePlan(
            install=dict(request.desired),
            remove={name: installed[name] for name in gone},
            before=installed,
            stream=stream,
            stream_before=stream_before,
        )
    return _previewed(request, gone, PackagePlan({}, {}, installed, stream, stream_before), run)


def _previewed(request: PackageRequest, gone: Sequence[str], nothing: PackagePlan, run: Run) -> PackagePlan:
    """The plan with what dnf would do with the streams as they are; raises PackageError for unrelated removals."""
    previewed = _transaction(request, gone, (_REFRESH, "--assumeno"), run)
    if previewed.rc != 0 and "Operation aborted" not in previewed.error_text + previewed.text:
        raise PackageError(error_message(previewed, _explain))
    install, remove = parse_transaction(previewed.text)
    found = replace(nothing, install=install, remove=remove)
    refuse_unrelated_removals(found, (*request.remove, *parse_unused(previewed.text)))
    return found


def apply(request: PackageRequest, found: PackagePlan, run: Run) -> dict[str, str]:
    """Enable the stream, change and verify; gives the installed versions. PackageError has whether it had begun."""
    gone = [name for name in request.remove if name in found.remove]
    if found.stream != found.stream_before:
        _switch(request, found.stream_before, found.stream, run)
        try:
            if request.install or gone:
                _previewed(request, gone, found, run)
        except PackageError as error:
            _restore_stream(request, found, error, run)
            raise
    if request.install or gone:
        output_of(_transaction(request, gone, ("--assumeyes",), run), _explain, begun=True)
    installed = parse_installed(output_of(run(_QUERY), _explain, begun=True))
    problems = unmet(request, installed, matches_rpm)
    problems += [f"{name} is still installed" for name in gone if name in installed]
    if request.upgrade and found.stream == found.stream_before:
        problems += unmet(_exactly(found.install), installed, matches_rpm)
    if problems:
        raise PackageError("; ".join(problems), begun=True)
    return installed


def _switch(request: PackageRequest, before: str, stream: str, run: Run) -> None:
    """Enable `stream`, or none where it is empty, instead of `before`."""
    module = (stream or before).partition(":")[0]
    switches: list[tuple[str, ...]] = [(_REFRESH, "--assumeyes", "module", "reset", module)]
    if stream:
        switches.append(("--assumeyes", "module", "enable", stream))
    for switch in switches:
        output_of(_waited([*_DNF, *switch], run, request.lock_timeout), _explain, begun=True)


def _restore_stream(request: PackageRequest, found: PackagePlan, reason: PackageError, run: Run) -> None:
    """Enable the stream from before the change again, which `reason` has stopped before any package was changed."""
    try:
        _switch(request, found.stream, found.stream_before, run)
    except PackageError as error:
        raise PackageError(f"{reason}; and its stream cannot be restored: {error}", begun=True) from error


def _exactly(versions: Mapping[str, str]) -> PackageRequest:
    return PackageRequest(install=tuple(f"{name}={version}" for name, version in versions.items()))


def _unneeded(request: PackageRequest, installed: Mapping[str, str], run: Run) -> list[str]:
    """The installed packages to remove that no package to keep needs."""
    gone = [name for name in request.remove if name in installed and name not in request.desired]
    roots = [name for name in request.desired if name in installed]
    if not gone or not roots:
        return gone
    # A kernel module of the other kind counts as needed; dnf replaces it, since it conflicts with the new one.
    listed = output_of(run([*_NEEDS, *roots]), _explain)
    needed = {_named(*line.split()[:2]) for line in listed.splitlines() if line.strip()}
    return [name for name in gone if name not in needed]


def _transaction(request: PackageRequest, gone: Sequence[str], options: Sequence[str], run: Run) -> CommandResult:
    """Install and remove in one transaction, for which dnf has no single command: a script for `dnf shell`."""
    names = [_specification(name, version) for name, version in request.desired.items()]
    lines = [" ".join(("install", *names))] if names else []
    lines += [" ".join(("remove", *gone))] if gone else []
    if request.upgrade:
        options = (_NEWEST, *options)
    if len(lines) == 1:
        return _waited([*_DNF, *_UNLOCKED, *options, *lines[0].split()], run, request.lock_timeout)
    with tempfile.NamedTemporaryFile("w", suffix=".dnf", encoding="ascii") as script:
        script.write("\n".join([*lines, "run", "exit", ""]))
        script.flush()
        return _waited([*_DNF, *_UNLOCKED, *options, "shell", script.name], run, request.lock_timeout)


def _waited(argv: Sequence[str], run: Run, timeout: int) -> CommandResult:
    """Run dnf, with retries for up to `timeout` seconds while another process holds its lock."""
    deadline = time.monotonic() + timeout
    result = run(argv)
    while result.rc != 0 and _is_locked(result.error_text + result.text) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
        result = run(argv)
    return result


def _is_locked(message: str) -> bool:
    return bool(_LOCKED.search(message) or _RPM_LOCKED.search(message))


def _explain(message: str) -> str:
    """Why dnf failed and what to do, in one line."""
    if _RPM_LOCKED.search(message):
        return (
            "another rpm is running (`fuser -v /var/lib/rpm/.rpm.lock` names it); wait until it has ended, or raise "
            "lock_timeout, then run again. The lock ends with its process: leave the file"
        )
    if _DAMAGED.search(message):
        return (
            f"rpm's database is damaged: {first_line(message, _DAMAGED.pattern)}; copy /var/lib/rpm, run `rpm "
            "--rebuilddb` on the host, see that `rpm --query --all` has no error, then run again"
        )
    if _LOCKED.search(message):
        return "another dnf is running; wait until it has ended, or raise lock_timeout, then run again"
    if re.search(r"Failed to download metadata|Cannot download repomd|Curl error|All mirrors were", message):
        line = first_line(message, r"Curl error", r"Failed to download metadata", r"All mirrors were")
        return unreachable(line)
    if re.search(r"GPG check FAILED|Public key for|bad signature|repomd.xml GPG signature", message):
        line = first_line(message, r"GPG signature verification", r"Public key for", r"GPG check FAILED")
        return f"a signature was not made with the repository's key: {line}; see the role gpu.fleet.nvidia_repository"
    line = first_line(
        message, r"No match for argument", r"nothing provides|conflicts with|filtered out by", r"^Error: \S", r"Problem"
    )
    return with_scripts(line, message).replace("Error: ", "", 1)
