# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The restart of Docker, and what that stops. Private to this collection. Pure: no Ansible."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..._planning.contract import Ask, Plan, Reading, command, is_true, unread
from .host import DAEMON_FILE, DROP_IN

_TIMED_OUT = 124
"""Exit status of timeout."""
_NONE_FOUND = 1
"""Exit status of pgrep."""
_REASONS = (
    re.compile("failed to start daemon|unable to configure|level=fatal", re.IGNORECASE),
    re.compile("error|invalid", re.IGNORECASE),
)


def _listed(*options: str) -> Reading:
    # With a limit: a daemon that hangs lets its clients wait.
    return command("timeout", "60", "docker", *options)


# Each running container has one, also while the daemon hangs, or is stopped with live-restore.
_SHIMS = command("pgrep", "--full", "^([^ ]*/)?containerd-shim[^ ]* .*-namespace moby ")


def running(found: Mapping[str, Any]) -> Ask | None:
    """The question for what a restart stops: running containers, and whether they outlive the daemon."""
    asked = unread(found, {"listing": _listed("ps", "--format", "{{.Names}}")})
    if asked:
        return asked
    if found["listing"].get("rc"):
        return unread(found, {"shims": _SHIMS})
    return unread(found, {"live_restore": _listed("info", "--format", "{{.LiveRestoreEnabled}}")})


def existing(found: Mapping[str, Any]) -> Ask | None:
    """The question for all containers."""
    asked = unread(found, {"listing": _listed("ps", "--all", "--quiet")})
    return asked or unread(found, {"shims": _SHIMS} if found["listing"].get("rc") else {})


def previews(options: Mapping[str, Any], reads_proxy: bool) -> dict[str, Reading]:
    """The readings that decide whether Docker has to be restarted; daemon_json gets the `options`."""
    files = {"name": "docker.service", "started_after": [DAEMON_FILE, DROP_IN]}
    found: dict[str, Reading] = {
        "preview": ("gpu.fleet.daemon_json", {"path": DAEMON_FILE, **options}),
        "state": ("gpu.fleet.unit_restart", files),
    }
    drop_in: Reading = ("stat", {"path": DROP_IN, "checksum_algorithm": "sha256"})
    return {**found, **({"drop_in": drop_in} if reads_proxy else {})}


def restart_reasons(drop_in: str, found: Mapping[str, Any]) -> tuple[list[str], bool]:
    """Why Docker has to be restarted, and whether systemd is reloaded before, by the results of `previews`.

    `drop_in` is what that is to be; packages may be about to change as well.
    """
    expected = hashlib.sha256(drop_in.encode()).hexdigest() if drop_in else ""
    proxy = "drop_in" in found and str(found["drop_in"]["stat"].get("checksum") or "") != expected
    reasons = {
        "daemon.json changes": found["preview"]["differs"],
        "its proxy changes": proxy or is_true(found["removes_proxy"]),
        str(found["state"]["reason"]): found["state"]["reason"],
        "its packages change": found["changes_packages"],
    }
    return [reason for reason, counts in reasons.items() if counts], proxy or bool(found["changes_packages"])


def plan_restart(
    policy: str, reasons: Sequence[str], containers: Sequence[str], live_restore: bool, unread: str = ""
) -> Plan:
    """Plan the restart that these reasons ask for, while these containers run; `now` is whether it is in this run.

    With live-restore containers outlive the daemon, so that a restart stops none. `unread` is why it is not known which
    containers run. Warnings and refusals name the containers that it would stop.
    """
    tasks = {"now": False, "is_due": policy == "never" and bool(reasons)}
    if not reasons:
        return Plan(tasks=tasks)
    why = "; ".join(reasons)
    stopped = () if live_restore else tuple(containers)
    running = ", ".join(stopped)
    if policy == "never":
        note = f"Docker has to be restarted ({why}), and docker_restart is never: restart it yourself"
        return Plan(warnings=(note,), tasks=tasks)
    if unread and policy == "when_idle":
        refusal = (
            f"Docker has to be restarted ({why}), and the running containers that this would stop are not known: "
            f"{unread}; nothing was changed; see journalctl -u docker, or set docker_restart to always, which stops "
            "them, or to never, which leaves the restart to you"
        )
        return Plan((refusal,), tasks=tasks)
    if stopped and policy == "when_idle":
        refusal = (
            f"Docker has to be restarted ({why}), which would stop the running containers {running}; nothing was "
            "changed; run again when they have ended, or set docker_restart to always, which stops them, or to never, "
            "which leaves the restart to you; containers outlive restarts where the daemon runs with live-restore"
        )
        return Plan((refusal,), tasks=tasks)
    if unread:
        stopped, running = ("unknown",), f"that there are: {unread}"
    warnings = (f"the restart of Docker ({why}) stops the running containers {running}",) if stopped else ()
    return Plan(warnings=warnings, tasks={**tasks, "now": True})


def why_unread(listing: Mapping[str, Any], shims: Mapping[str, Any]) -> str:
    """Why it is not known which containers run, empty where it is: from the results of `docker ps` and `pgrep`.

    Each running container has a process of containerd, a shim, also while the daemon hangs, or is stopped with
    live-restore. Where there is none, no container runs.
    """
    if not listing.get("rc") or shims.get("rc") == _NONE_FOUND:
        return ""
    error = str(listing.get("stderr") or listing.get("msg") or "no reason given").strip()
    why = "no response in time" if listing["rc"] == _TIMED_OUT else error.splitlines()[-1][:200]
    number = len(shims.get("stdout_lines") or ())
    return f"docker ps does not list them ({why}){f', and {number} run' if number else ''}"


def containers_to_remove(listing: Mapping[str, Any], shims: Mapping[str, Any]) -> Plan:
    """All containers, by the results of `docker ps` and `pgrep`; refused where the engine has some and lists none."""
    if not listing["rc"] or shims.get("rc") == _NONE_FOUND:
        return Plan(tasks={"containers": listing.get("stdout_lines") or []})
    error = "no response within 60 s" if listing["rc"] == _TIMED_OUT else str(listing.get("stderr") or "").strip()
    refusal = (
        "Docker does not list its containers, and docker_purge would remove the files of running ones: "
        f"{error or 'no reason given'}; see journalctl -u docker, start it, then run again"
    )
    return Plan((refusal,))


def start_error(journal: Sequence[str], restored: Mapping[str, Any] | None) -> str:
    """Why Docker does not start; `restored` is the result of its start with the previous daemon.json, None without one.

    The last line of the journal with a reason counts: preferably the one that the daemon exited with, not earlier
    errors or later ones about containers that it left.
    """
    lines = [line for pattern in _REASONS for line in [line for line in journal if pattern.search(line)][-1:]]
    message = lines[0] if lines else "no reason given"
    if restored is None:
        return f"Docker does not start: {message}; see `journalctl -u docker` on the host"
    runs = "runs with it" if "status" in restored else "does not start with that one either"
    return (
        f"Docker does not start with the new {DAEMON_FILE}: {message}; the previous file was restored, and Docker "
        f"{runs}; correct docker_daemon_options"
    )
