# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is requested of the role docker, and what is wrong with it. Private to this collection. Pure: no Ansible."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ....module_utils._common.masking import masked
from ....module_utils._files.daemon_json import path_objection
from ..._planning.contract import RUN_ONLY, RequestError, is_true
from ..._planning.variable_forms import shown

AUTO, DISTRIBUTION, REPOSITORY = "auto", "distribution", "docker_repository"
# The client looks logins of Docker Hub up by this key, whatever name was given.
_HUB_KEY = "https://index.docker.io/v1/"
_HUB_NAMES = ("docker.io", "index.docker.io", "registry-1.docker.io", "hub.docker.com", "")
_VERSION = re.compile(r"([0-9]+([.][0-9]+){0,2})?")
_PROXY_VARIABLES = {"http": "HTTP_PROXY", "https": "HTTPS_PROXY", "no_proxy": "NO_PROXY"}
_URL = re.compile(r"(https?|file)://.+")
_FINGERPRINT = re.compile(r"[0-9A-F]{40}")


@dataclass(frozen=True)
class Registry:
    """A registry, and the key that the client looks its login up by."""

    name: str
    key: str
    username: str = ""
    has_password: bool = False
    has_authority: bool = False

    @property
    def certificate(self) -> str:
        """Where the engine looks for the registry's certificate authority."""
        return f"/etc/docker/certs.d/{self.name}/ca.crt"


@dataclass(frozen=True)
class Request:
    """What the variables of the role request.

    Only `url`, `key_url`, `secrets`, all that has a password as text, and `drop_in`, the text of a unit's drop-in, may
    have passwords.
    """

    state: str
    purge: bool = field(metadata=RUN_ONLY)
    source: str
    version: str
    url: str
    key_url: str
    fingerprint: str
    add_repository: bool
    channel: str
    replace: tuple[str, ...]
    users: tuple[str, ...]
    registries: tuple[Registry, ...]
    images: tuple[Mapping[str, Any], ...] = field(metadata=RUN_ONLY)
    exports: tuple[Mapping[str, Any], ...]
    daemon_options: Mapping[str, Any]
    proxy: Mapping[str, str]
    authorities: str = ""
    secrets: str = field(default="", metadata=RUN_ONLY)
    drop_in: str = field(default="", metadata=RUN_ONLY)

    @classmethod
    def read(cls, variables: Mapping[str, Any]) -> Request:
        """The request in the variables of the role; raises RequestError."""
        registries = tuple(map(read_registry, variables["docker_registries"]))
        options, proxy = variables["docker_daemon_options"], variables["docker_proxy"]
        wrong = sorted(set(proxy) - set(_PROXY_VARIABLES))
        if any("\n" in str(value) for value in proxy.values()):
            raise RequestError("docker_proxy has a value of several lines; each is one URL, or a list with commas")
        if wrong:
            raise RequestError(f"docker_proxy has {', '.join(wrong)}; it takes http, https and no_proxy")
        secret = {
            "passwords": {
                given["registry"]: given["password"] for given in variables["docker_registries"] if "password" in given
            },
            "daemon_options": options if masked(options) != options else {},
            "proxy": proxy if masked(proxy) != proxy else {},
        }
        return cls(
            state=str(variables["docker_state"]),
            purge=is_true(variables["docker_purge"]),
            source=str(variables["docker_source"]),
            version=str(variables["docker_version"]),
            url=str(variables["docker_repository_url"]).rstrip("/"),
            key_url=str(variables["docker_repository_key_url"]),
            fingerprint=re.sub(r"\s", "", str(variables["docker_repository_key_fingerprint"])).upper(),
            add_repository=is_true(variables["docker_add_repo"]),
            channel=str(variables["docker_channel"]),
            replace=tuple(map(str, variables["docker_replace"])),
            users=tuple(map(str, variables["docker_users"])),
            registries=registries,
            images=tuple(masked(variables["docker_images"])),
            exports=tuple(masked(variables["docker_image_exports"])),
            daemon_options=masked(options),
            proxy=masked(proxy),
            authorities=_digest([given.get("ca") for given in variables["docker_registries"]]),
            secrets=json.dumps(secret, sort_keys=True, default=str) if any(secret.values()) else "",
            drop_in=_drop_in(proxy),
        )


def read_registry(given: Mapping[str, Any]) -> Registry:
    name = str(given["registry"])
    # On nvcr.io every API key has the same user name.
    username = str(given.get("username") or ("$oauthtoken" if name == "nvcr.io" else ""))
    has_password, has_authority = bool(given.get("password")), bool(given.get("ca"))
    return Registry(name, _HUB_KEY if name in _HUB_NAMES else name, username, has_password, has_authority)


def _drop_in(proxy: Mapping[str, Any]) -> str:
    """The drop-in of Docker's unit with the proxy, empty without one. A unit file has % and backslashes doubled."""
    escaped = {name: re.sub(r'([\\"])', r"\\\1", str(value)).replace("%", "%%") for name, value in proxy.items()}
    lines = [f'Environment="{_PROXY_VARIABLES[name]}={value}"' for name, value in escaped.items() if value]
    return (
        "\n".join(["# Written by the role gpu.fleet.docker: docker_proxy.", "[Service]", *lines, ""]) if lines else ""
    )


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def against_values(request: Request) -> Iterator[str]:
    if not _VERSION.fullmatch(request.version):
        yield (
            f"docker_version is {request.version[:60]}; it has to be a version such as 28.5.1, a branch such as 28.5, "
            "or empty"
        )
    incomplete = [
        one.name
        for one in request.registries
        if not (one.has_password or one.has_authority) or (one.has_password and not one.username)
    ]
    if incomplete:
        yield (
            f"docker_registries has neither username and password nor ca for {', '.join(incomplete)[:100]}; on nvcr.io "
            "the password, the API key, is enough"
        )
    for name, url in (("docker_repository_url", request.url), ("docker_repository_key_url", request.key_url)):
        if url and not _URL.fullmatch(url):
            yield f"{name} is {shown(masked(url))}; it has to be a URL (https, http or file)"
    if request.fingerprint and not _FINGERPRINT.fullmatch(request.fingerprint):
        yield f"docker_repository_key_fingerprint is {shown(request.fingerprint)}; it has to be 40 hexadecimal digits"
    objection = path_objection(request.daemon_options)
    if objection:
        yield f"docker_daemon_options: {objection}"
