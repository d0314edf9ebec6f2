# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is known of a host and its Docker. Private to this collection. Pure: no Ansible."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..._planning.platforms import platform_of

DOCKER = "docker"
DAEMON_FILE = "/etc/docker/daemon.json"
DROP_IN = "/etc/systemd/system/docker.service.d/gpu-fleet-proxy.conf"


@dataclass(frozen=True)
class Host:
    """What is known about the host. `packages` are as in ansible_facts, None where they cannot be read.

    `record` is the last run's. `offered` has the versions of optional packages in the package lists, None before
    they are read. `accounts` has whether a requested user exists, for those that were looked up. `brought` are packages
    that this run has installed; with `is_new` the engine is among them.
    """

    platform: Mapping[str, Any]
    architecture: str = ""
    packages: Mapping[str, Any] | None = None
    record: Mapping[str, Any] = field(default_factory=dict)
    offered: Mapping[str, str] | None = None
    snap: bool = False
    has_drop_in: bool = False
    accounts: Mapping[str, bool] = field(default_factory=dict)
    members: tuple[str, ...] = ()
    brought: tuple[str, ...] = ()
    is_new: bool = False

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Host:
        """The host before its users and package lists are read."""
        record = facts["gpu_fleet_managed"].get(DOCKER) or {}
        return cls(platform_of(facts), str(facts.get("architecture") or ""), facts.get("packages"), record)

    def observed(self, found: Mapping[str, Any]) -> Host:
        """The host with what `observation` has, and with the packages that this run has `brought`."""
        known = found["observed"]
        return replace(
            self,
            offered=known["offered"],
            snap=known["snap"],
            has_drop_in=known["has_drop_in"],
            accounts=known["accounts"],
            members=tuple(known["members"]),
            brought=tuple(map(str, found.get("brought", ()))),
            is_new=bool(found.get("is_new")),
        )

    @property
    def manager(self) -> str:
        """The package manager."""
        return str(self.platform["manager"])

    @property
    def installed(self) -> Mapping[str, Any]:
        """The installed packages, none where they cannot be read."""
        return self.packages or {}

    @property
    def recorded(self) -> Mapping[str, Any] | None:
        """The data of the last record, None without one."""
        data: Mapping[str, Any] | None = self.record.get("data")
        return data

    @property
    def drift(self) -> tuple[str, ...]:
        """What has changed since the last run."""
        return tuple(str(found["message"]) for found in self.record.get("drift") or ())

    def version(self, name: str) -> str:
        """The installed version of a package, empty where it is not installed."""
        return str(self.installed[name][0]["version"]) if name in self.installed else ""

    def was(self, name: str) -> tuple[Any, ...]:
        """A list of the last record, empty where it has none."""
        return tuple((self.recorded or {}).get(name) or ())


def observation(found: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept of readings: `files` of Docker, the `accounts` of users, the `group`, and `offers` of packages."""
    offered = str(found.get("offers", {}).get("stdout") or "")
    if found.get("observed"):
        # Read again, after the package lists.
        return {**found["observed"], "offered": parse_offered(offered) if offered else None}
    there = {str(one["path"]) for one in found["files"].get("files") or ()}
    read = [one.get("ansible_facts", {}) for one in found.get("accounts", {}).get("results", ())]
    entries = [one.get("getent_passwd", {}) for one in read]
    group = found.get("group", {}).get("ansible_facts", {}).get("getent_group", {}).get(DOCKER)
    return {
        # Without package lists nothing is known of what they have.
        "offered": parse_offered(offered) if offered else None,
        "snap": bool(there - {DROP_IN}),
        "has_drop_in": DROP_IN in there,
        "accounts": {str(name): bool(entry) for one in entries for name, entry in one.items()},
        # getent has of a group its password, its number, and its members.
        "members": list(filter(None, str(group[-1]).split(","))) if group else [],
    }


def parse_offered(text: str) -> dict[str, str]:
    """The newest versions by name in the output of `apt-cache madison`, which has the newest of a package first."""
    rows = ([cell.strip() for cell in line.split("|")] for line in text.splitlines())
    return {row[0]: row[1] for row in reversed(list(rows)) if len(row) == 3}
