# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Change the packages of a host in one apt transaction. Private to this collection."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from typing import Mapping, Sequence

from .._common.file_systems import MIB, read_file_systems
from .._common.host_files import HostFiles
from .plan import (
    PackageError,
    PackagePlan,
    PackageRequest,
    RefusedError,
    Run,
    error_message,
    first_line,
    matches_deb,
    output_of,
    refuse_unrelated_removals,
    unmet,
    unreachable,
    with_scripts,
)

QUERY = ("dpkg-query", "--show", "--showformat", "${db:Status-Abbrev}\t${Package}\t${Version}\t${Architecture}\n")
# apt never changes packages on hold, not even ours: holds are ignored here, and unmanaged ones refused in the plan.
_APT = (
    *("apt-get", "--quiet", "--yes", "--no-install-recommends", "--allow-downgrades", "--allow-change-held-packages"),
    *("-o", "APT::Ignore-Hold=true"),
    # Mirrors and content delivery networks fail for seconds; with a pause between the attempts, as dnf does by default.
    *("-o", "Acquire::Retries=5"),
)
_DEPENDENCIES = ("apt-cache", "depends", "--recurse", "--important")
_VERSIONS = ("apt-cache", "madison")
_DPKG = ("-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold")
_REPACK = "dpkg-repack"
# Fast, since the drivers' packages have a gigabyte, and the files are for one rollback.
_FAST = ("--deb-option=-Zgzip", "--deb-option=-z1")
_UNAVAILABLE = re.compile(r"^Reinstallation of (\S+) is not possible", re.MULTILINE)
_INSTALL = re.compile(r"^Inst (\S+)(?: \[[^\]]*\])? \((\S+)", re.MULTILINE)
_REMOVE = re.compile(r"^(?:Remv|Purg) (\S+)(?: \[([^\]]*)\])?", re.MULTILINE)
_INSTALLED_SIZE = re.compile(r"^After this operation, ([0-9.]+) ([kMGT]?)B of additional disk space", re.MULTILINE)
_SI = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_REASONS = (
    r"^E: (?:Version|Unable to locate|Package)",
    r"Depends:|Conflicts:|PreDepends:|Breaks:",
    r"^dpkg: error processing|^dpkg: error",
    r"^E: (?!Sub-process|Unable to correct|Error,|Unable to fetch some)",
    r"^E: ",
)


def parse_status(text: str) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """Versions of the installed packages, dpkg's states of half-installed ones, and the names of those on hold.

    A state has three letters, such as `iF`: the desired one, the present one, and R where it has to be installed again.
    """
    installed: dict[str, str] = {}
    broken: dict[str, str] = {}
    held = []
    rows = [(*line.split("\t"), "", "", "")[:4] for line in text.splitlines()]
    # The architecture of the host is the one of its dpkg.
    own = [architecture for _status, name, _version, architecture in rows if name == "dpkg"]
    for status, package, version, architecture in rows:
        name = f"{package}:{architecture}" if own and architecture not in ("", "all", *own) else package
        state = status[1:2]
        if state == "i":
            installed[name] = version
        if state in ("U", "F", "H", "W") or status[2:3] == "R":
            broken[name] = status.strip()
        if status[:1] == "h":
            held.append(name)
    return installed, broken, held


def repair_advice(broken: Mapping[str, str]) -> str:
    """What to do about half-installed packages, by dpkg's states: each command does nothing for the other ones.

    The first one may fail for a package that depends on one that the next installs.
    """
    removed = [name for name, state in broken.items() if state[0] in "rp"]
    # Its files are not all there, so that there is nothing to configure.
    unpacked = [name for name, state in broken.items() if name not in removed and (state[1] == "H" or state[-1] == "R")]
    steps = [
        "dpkg --configure -a",
        *([f"apt-get --fix-broken --reinstall install {' '.join(unpacked)}"] if unpacked else []),
    ]
    steps += [f"dpkg --remove --force-remove-reinstreq {' '.join(removed)}"] if removed else []
    lost = (
        f"; where no repository has it any more, `dpkg --remove --force-remove-reinstreq {' '.join(unpacked)}`"
        if unpacked
        else ""
    )
    states = ", ".join(dict.fromkeys(broken.values()))
    return (
        f"{', '.join(broken)} is only half installed ({states} in `dpkg -l`); run `{'; '.join(steps)}` on the host, "
        f"and read its error message{lost}, then run again; where another apt or another run is at work, wait until it "
        "has ended"
    )


def parse_simulation(text: str) -> tuple[dict[str, str], dict[str, str]]:
    """What `apt-get --simulate` would install and remove: versions by name.

    A name has the architecture where it is not the host's.
    """
    install = dict(_INSTALL.findall(text))
    remove = dict(_REMOVE.findall(text))
    return install, {name: version for name, version in remove.items() if name not in install}


def parse_dependencies(text: str) -> dict[str, list[set[str]]]:
    """Dependencies by package, from `apt-cache depends`: one set of alternatives for each dependency."""
    needs: dict[str, list[set[str]]] = {}
    groups: list[set[str]] = []
    goes_on = False
    for line in text.splitlines():
        name = line.split()[-1].strip("<>").replace(":any", "")
        if not line.startswith(" "):
            groups = needs.setdefault(name, [])
            goes_on = False
        elif line.startswith("    ") or goes_on:
            # A package that provides the one above, or the next alternative.
            groups[-1].add(name)
        else:
            groups.append({name})
        if line.startswith((" |", "  ")) and not line.startswith("    "):
            goes_on = line.startswith(" |")
    return needs


def plan(request: PackageRequest, run: Run) -> PackagePlan:
    """Plan the change; raises PackageError when it is impossible."""
    installed, broken, held = parse_status(output_of(run(QUERY), _explain))
    if broken and not request.repair:
        raise RefusedError(repair_advice(broken))
    install, remove = parse_simulation(output_of(run(_command(request, simulate=True)), _explain))
    # Half installed ones have no version here, and need what they depend on as well.
    roots = {name: installed.get(name, "") for name in request.desired if name in installed or name in broken}
    roots.update(install)
    candidates = [name for name in request.remove if name in {*installed, *broken} - {*install, *request.desired}]
    kept = _needed(roots, candidates, {*installed, *install}, _sources(request), run) if candidates else set()
    gone = [name for name in candidates if name not in kept]
    along = _along(request, {name: installed[name] for name in kept - {*install} if name in installed}, run)
    if gone or along:
        install, remove = parse_simulation(output_of(run(_command(request, along, gone, simulate=True)), _explain))
    found = PackagePlan(install=install, remove=remove, before=installed, along=along)
    _refuse_holds({*held} & {*install, *remove} - {*request.release_holds})
    refuse_unrelated_removals(found, request.remove)
    if request.rollback == "ignore" or not found.previous:
        return found
    found = replace(found, unavailable=_unavailable(found, run))
    if request.rollback == "required" and found.unavailable and not _can_repack(found, run):
        why = f"is in no repository any more, and {_REPACK}, which could save it, is not available"
        raise _no_rollback(found.unavailable, why)
    return found


def save(request: PackageRequest, found: PackagePlan, run: Run) -> PackagePlan:
    """Save the packages that change and cannot be downloaded any more; gives the plan with their files.

    Raises PackageError where that is impossible and required. Installs nothing but `dpkg-repack`.
    """
    if request.rollback == "ignore" or not found.unavailable:
        return found
    output_of(run([*_command(request, found.along, list(found.remove)), "--download-only"]), _explain)
    try:
        if _REPACK not in found.before:
            output_of(run([*_APT, *_lock(request), "install", _REPACK]), _explain)
        return replace(found, saved=_repack(found.unavailable, request.save_directory, run))
    except (PackageError, OSError) as error:
        if request.rollback == "required":
            raise _no_rollback(
                found.unavailable, f"is in no repository any more, and cannot be saved: {error}"
            ) from error
    return found


def is_helper(argv: Sequence[str]) -> bool:
    """Whether a command installs `dpkg-repack`, which is there before the change begins."""
    return list(argv[-2:]) == ["install", _REPACK]


def apply(request: PackageRequest, found: PackagePlan, run: Run) -> dict[str, str]:
    """Download, change and verify; gives the installed versions. PackageError has whether it had begun."""
    gone = list(found.remove)
    command = _command(request, found.along, gone)
    _refuse_lack_of_room(output_of(run([*command, "--download-only"]), _explain))
    # Download the packages for a rollback while their repository is still configured; it may have dropped them.
    back = [f"{name}={version}" for name, version in found.previous.items() if name not in found.unavailable]
    if back:
        downloaded = run([*_APT, "--download-only", "--reinstall", "install", *back])
        if request.rollback == "required" and downloaded.rc != 0:
            raise _no_rollback(back, f"cannot be downloaded: {error_message(downloaded, _explain)}")
    changed = run([*command, *_DPKG])
    installed, broken, _held = parse_status(output_of(run(QUERY), _explain, begun=True))
    problems = [f"{name} is only half installed" for name in broken if name in found.install]
    problems += unmet(replace(request, install=(*request.install, *found.along)), installed, matches_deb)
    problems += [f"{name} is still installed" for name in gone if name in {*installed, *broken}]
    if changed.rc != 0 or problems:
        reason = error_message(changed, _explain) if changed.rc != 0 else "apt-get reported no error"
        raise PackageError("; ".join([reason, *problems]), begun=bool(broken) or installed != found.before)
    return installed


def _refuse_lack_of_room(downloaded: str) -> None:
    """Raise RefusedError where the packages do not fit; apt-get only compares what it downloads with the room left."""
    size = _INSTALLED_SIZE.search(downloaded)
    room = read_file_systems(["/usr"], HostFiles())
    if not size or not room:
        return
    needed, (system,) = -(-float(size[1]) * _SI[size[2]] // MIB), room.values()
    if system["available_mib"] is not None and system["available_mib"] < needed:
        raise RefusedError(
            f"{system['mount']} has {system['available_mib']} MiB free, and {needed:.0f} MiB are needed for the "
            f"packages, so nothing was installed; make room there (df -h {system['mount']}), then run again"
        )


def _unavailable(found: PackagePlan, run: Run) -> tuple[str, ...]:
    """The packages that change and whose installed version cannot be downloaded."""
    previous = [f"{name}={version}" for name, version in found.previous.items()]
    # Packages that cannot be downloaded are only reported; with what is left apt may fail, which does not matter here.
    simulated = run([*_APT, "--simulate", "--reinstall", "install", *previous])
    return tuple(sorted({*_UNAVAILABLE.findall(simulated.text)}))


def _can_repack(found: PackagePlan, run: Run) -> bool:
    return _REPACK in found.before or bool(output_of(run([*_VERSIONS, _REPACK]), _explain).strip())


def _repack(names: Sequence[str], directory: str, run: Run) -> tuple[str, ...]:
    """Make package files of installed packages, in place of those in `directory`; gives their paths."""
    os.makedirs(directory, 0o700, exist_ok=True)
    for file in os.listdir(directory):
        if file.endswith(".deb"):
            os.unlink(os.path.join(directory, file))
    output_of(run(["env", f"--chdir={directory}", _REPACK, *_FAST, *names]), _explain)
    files = sorted(file for file in os.listdir(directory) if file.endswith(".deb"))
    # Name, version and architecture.
    parts = [file[: -len(".deb")].split("_") for file in files]
    made = {f"{one[0]}:{one[-1]}" if f"{one[0]}:{one[-1]}" in names else one[0] for one in parts}
    missing = {*names} - made
    if missing:
        raise PackageError(f"{_REPACK} made no files of {', '.join(sorted(missing))}")
    return tuple(os.path.join(directory, file) for file in files)


def _no_rollback(packages: Sequence[str], why: str) -> RefusedError:
    return RefusedError(
        f"the installed version of {', '.join(packages)} {why}; a change that fails could not be rolled back, so "
        "nothing was changed",
        packages,
    )


def _needed(
    roots: Mapping[str, str], candidates: Sequence[str], there: set[str], sources: Sequence[str], run: Run
) -> set[str]:
    """The candidates for removal that the roots, versions by name, need. `there`: all that is or will be installed."""
    asked = [f"{name}={version}" if version else name for name, version in roots.items()]
    needs = parse_dependencies(output_of(run([*_DEPENDENCIES, *sources, *asked]), _explain)) if asked else {}
    reached: set[str] = set()
    ahead = set(roots)
    while ahead:
        reached |= ahead
        found: set[str] = set()
        for group in (group & there for name in ahead for group in needs.get(name, [])):
            # Among alternatives, prefer those that are not candidates for removal.
            found |= (group & (there - {*candidates} | reached)) or group
        ahead = found - reached
    return reached & {*candidates}


def _along(request: PackageRequest, needed: Mapping[str, str], run: Run) -> tuple[str, ...]:
    """Dependencies that have to change, too: packages need "this version or newer", so apt does not downgrade them.

    `needed` are installed versions by name. One without a requested version in any repository stays as it is.
    """
    versions = list(dict.fromkeys(version for version in request.desired.values() if version))
    behind = [name for name, is_at in needed.items() if not any(matches_deb(is_at, version) for version in versions)]
    if not behind or not versions:
        return ()
    listed = output_of(run([*_VERSIONS, *behind]), _explain)
    rows = [[cell.strip() for cell in line.split("|")] for line in listed.splitlines() if line.count("|") == 2]
    offered = {name: [row[1] for row in rows if row[0] == name] for name in behind}
    fitting = {
        name: [version for version in versions if any(matches_deb(offer, version) for offer in offers)]
        for name, offers in offered.items()
    }
    return tuple(f"{name}={found[0]}" for name, found in fitting.items() if found)


def _refuse_holds(unmanaged: set[str]) -> None:
    if unmanaged:
        names = sorted(unmanaged)
        raise RefusedError(
            f"{', '.join(names)} is on hold, and not by this role; run `apt-mark unhold {' '.join(names)}` on the host "
            "if it may change, then run again"
        )


def _command(
    request: PackageRequest, along: Sequence[str] = (), gone: Sequence[str] = (), simulate: bool = False
) -> list[str]:
    names = [*request.install, *along, *(f"{name}-" for name in gone)]
    # A pin left in /etc by nvidia-driver-pinning would stay in effect.
    options = [*(("--purge",) if request.purge else ()), *_sources(request)]
    return [*_APT, *options, *(("--simulate",) if simulate else _lock(request)), "install", *names]


def _sources(request: PackageRequest) -> list[str]:
    preferences = ("-o", f"Dir::Etc::PreferencesParts={request.preferences}") if request.preferences else ()
    return [*preferences, *(part for path in request.sources for part in ("--with-source", path))]


def _lock(request: PackageRequest) -> tuple[str, str]:
    return ("-o", f"DPkg::Lock::Timeout={request.lock_timeout}")


def _explain(message: str) -> str:
    """Why apt-get failed and what to do, in one line."""
    if "Could not get lock" in message:
        blocker = re.search(r"held by process (\d+) \(([^)]*)\)", message)
        who = f"process {blocker[1]} ({blocker[2]})" if blocker else "another process"
        return f"{who} holds apt's lock; wait until it has ended, or raise lock_timeout, then run again"
    if re.search(r"Failed to fetch|Unable to fetch|Could not (?:resolve|connect)", message):
        line = first_line(message, r"Failed to fetch", r"Could not (?:resolve|connect)")
        return unreachable(line)
    line = with_scripts(first_line(message, *_REASONS), message)
    if re.search(r"Unable to locate|has no installation candidate|Version '.*' for .* was not found", line):
        return f"{line.replace('E: ', '')}; see `apt-cache policy` for the versions in the repositories"
    return line.replace("E: ", "")
