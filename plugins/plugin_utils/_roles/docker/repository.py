# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Docker's own repository. Private to this collection. Pure: no Ansible."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .host import Host
from .request import Request

# https://docs.docker.com/engine/install/debian/ and https://docs.docker.com/engine/install/rhel/
_FINGERPRINTS = {
    "apt": "9DC858229FC7DD38854AE2D88D81803C0EBFCD88",
    "dnf": "060A61C51B558A7F742B77AAC52FEB6B621E9F35",
}
# Files that may have entries for the same repository.
_ENTRY_FILES: dict[str, tuple[str, ...]] = {
    "apt": ("/etc/apt/sources.list", "/etc/apt/sources.list.d/*.list", "/etc/apt/sources.list.d/*.sources"),
    "dnf": ("/etc/yum.repos.d/*.repo",),
}
_SOURCE_FILES: dict[str, tuple[str, str]] = {
    "apt": ("/etc/apt/sources.list.d/docker.sources", "/etc/apt/keyrings/docker.asc"),
    "dnf": ("/etc/yum.repos.d/docker-ce.repo", "/etc/pki/rpm-gpg/RPM-GPG-KEY-docker-ce"),
}
"""The repository's entry and its key."""
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
# An expression for entries of Docker's own repository.
_VENDOR = r"download\.docker\.com/linux/"


def repository_files(host: Host) -> list[str]:
    return list(_SOURCE_FILES.get(host.manager, ()))


def repository_of(request: Request, host: Host) -> Mapping[str, Any]:
    """Docker's repository, in the form that signed_repository takes; its URLs may have a password."""
    uses_apt, directory = host.manager == "apt", host.platform["docker_repository"]
    # $releasever may be a minor release, or the release of a rebuild: Docker has major ones only.
    major = str(host.platform["name"]).rpartition(" ")[2]
    place = re.sub(r"^[^/]*@", "", request.url.partition("://")[2])
    entries = "|".join(dict.fromkeys((_VENDOR, f"{re.escape(place)}/")))
    source_file, key_file = _SOURCE_FILES[host.manager]
    return {
        "role": "docker",
        "name": "docker",
        "id": "docker-ce-stable" if request.channel == "stable" else f"docker-ce-{request.channel}",
        "title": f"Docker CE {request.channel.capitalize()}",
        "url": f"{request.url}/{directory}" + ("" if uses_apt else f"/{major}/$basearch/{request.channel}"),
        "suite": host.platform["docker_suite"],
        "component": request.channel,
        "architectures": _ARCHITECTURES.get(host.architecture, ""),
        "key_url": request.key_url or f"{request.url}/{directory}/gpg",
        "fingerprints": [request.fingerprint or _FINGERPRINTS.get(host.manager, "")],
        # Docker does not sign the metadata of its rpm repositories.
        "repo_gpgcheck": False,
        "source_file": source_file,
        "key_file": key_file,
        # Of whatever user: the expression is recorded.
        "old_line": rf"^[^#\n]*//([^/@\s]*@)?({entries})",
        "entry_files": list(_ENTRY_FILES.get(host.manager, ())),
        "attempts": 4,
        "url_option": "docker_repository_url",
        "key_url_option": "docker_repository_key_url",
        "fingerprints_option": "docker_repository_key_fingerprint",
    }
