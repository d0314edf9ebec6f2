# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Decide packages, repository, logins, removals and restarts of a host's Docker. Private to this collection.

Pure: the variables of the role docker and what is known about the host in, the plan out. Where a request cannot be met,
the plan's refusals are the reasons, in the words of the variables. Facts of packages, engines and repositories are from
the control files of docker-ce-packaging and containerd-packaging, and from the indexes of Debian and Ubuntu.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ...module_utils._common.masking import masked
from .._variable_forms import shown
from .contract import RUN_ONLY, Plan, RequestError, inputs_of, is_of, is_true

AUTO, DISTRIBUTION, REPOSITORY = "auto", "distribution", "docker_repository"

# The packages that docker_version applies to: the others of Docker's repository have versions of their own.
_REPOSITORY_ENGINE = ("docker-ce", "docker-ce-cli")
_REPOSITORY_PACKAGES = ("containerd.io", "docker-buildx-plugin", "docker-compose-plugin")
# The modules of community.docker need it on the host.
_HELPERS = ("python3-requests",)
# Installed along with an engine, which only recommends them: without the parser of apparmor no container starts on a
# kernel that has it enabled.
_RECOMMENDED: dict[str, tuple[str, ...]] = {"apt": ("apparmor", "ca-certificates")}
# Compose 2 and buildx of the distribution, the first that it has. docker-compose before 2 is another program.
_PLUGINS = (("docker-buildx",), ("docker-compose-v2", "docker-compose"))

# Packages that conflict with those of a source or are replaced by them, with all containers that run by them.
_OTHER_ENGINES = ("moby-engine", "moby-cli", "moby-containerd", "moby-runc", "docker-engine", "podman-docker")
_REPLACED_BY: dict[tuple[str, str], tuple[str, ...]] = {
    (DISTRIBUTION, "apt"): (
        *_OTHER_ENGINES,
        "docker-ce",
        "docker-ce-cli",
        "docker-ce-rootless-extras",
        "containerd.io",
    ),
    (REPOSITORY, "apt"): (*_OTHER_ENGINES, "docker.io", "docker-cli", "containerd", "runc"),
    (REPOSITORY, "dnf"): (*_OTHER_ENGINES, "docker", "docker-io", "docker-ee", "docker-ee-cli", "containerd", "runc"),
}
_KUBERNETES = ("kubelet", "kubeadm", "k3s", "rke2-server", "rke2-agent")
# What the role may have installed, except what other software may use; and what its earlier versions installed.
_EARLIER: tuple[str, ...] = (
    *("docker-ce", "docker-ce-cli", "docker-ce-rootless-extras", "docker-buildx-plugin", "docker-compose-plugin"),
    *("docker.io", "docker-cli"),
)
_REMOVABLE = (*_EARLIER, "docker-buildx", "docker-compose-v2", "docker-compose")
_ENGINES = ("docker-ce", "docker.io", *_OTHER_ENGINES[:1])

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
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
VENDOR_URL = r"//download\.docker\.com/linux/"
"""An expression for entries of Docker's own repository."""

# The client looks logins of Docker Hub up by this key, whatever name was given.
_HUB_KEY = "https://index.docker.io/v1/"
_HUB_NAMES = ("docker.io", "index.docker.io", "registry-1.docker.io", "hub.docker.com", "")
_VERSION = re.compile(r"([0-9]+([.][0-9]+){0,2})?")
_PROXY_VARIABLES = {"http": "HTTP_PROXY", "https": "HTTPS_PROXY", "no_proxy": "NO_PROXY"}
_DROP_IN = "/etc/systemd/system/docker.service.d/gpu-fleet-proxy.conf"
_RELEASE_DOTS = 2
_FORMAT_OF_1_0_0 = 2
_FIELDS_OF_1_0_0 = (
    "state",
    "purge",
    "source",
    "version",
    "url",
    "key_url",
    "fingerprint",
    "add_repository",
    "channel",
    "replace",
    "users",
    "registries",
    "images",
    "exports",
    "daemon_options",
    "proxy",
    "authorities",
    "secrets",
    "drop_in",
)
_URL = re.compile(r"(https?|file)://.+")
_FINGERPRINT = re.compile(r"[0-9A-F]{40}")
CONVERGE, IMAGES, REMOVE = "converge", "images", "remove"
"""Steps: install and configure; install images and compare passwords, of which only the host knows; remove."""


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
class DockerRequest:
    """What the variables of the role request.

    Only `secrets`, all that has a password as text, and `drop_in`, the text of a unit's drop-in, may have passwords.
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


@dataclass(frozen=True)
class DockerHost:
    """What is known about the host. `packages` are as in ansible_facts, None where they cannot be read.

    `recorded` is the data of the last record, None without one, `recorded_inputs` its inputs, `drift` its messages.
    `offered` has the versions of optional packages in the package lists, None before they are read. `accounts` has
    whether a requested user exists, for those that were looked up. `images` are names with tags.
    """

    platform: Mapping[str, Any]
    architecture: str = ""
    packages: Mapping[str, Any] | None = None
    recorded: Mapping[str, Any] | None = None
    recorded_inputs: str = ""
    drift: tuple[str, ...] = ()
    offered: Mapping[str, str] | None = None
    snap: bool = False
    accounts: Mapping[str, bool] = field(default_factory=dict)
    members: tuple[str, ...] = ()
    images: tuple[str, ...] = ()

    @property
    def manager(self) -> str:
        """The package manager."""
        return str(self.platform["manager"])

    @property
    def installed(self) -> Mapping[str, Any]:
        """The installed packages, none where they cannot be read."""
        return self.packages or {}

    def version(self, name: str) -> str:
        """The installed version of a package, empty where it is not installed."""
        return str(self.installed[name][0]["version"]) if name in self.installed else ""

    def was(self, name: str) -> tuple[Any, ...]:
        """A list of the last record, empty where it has none."""
        return tuple((self.recorded or {}).get(name) or ())


@dataclass(frozen=True)
class DockerPlan:
    """The plan. `install` are packages as package_transaction takes them, `replace` those to remove before it.

    `packages` are all that have to be installed, `engine` those that `docker_version` applies to. `removable` are the
    packages that an absent Docker takes with it, `kept` engines that stay because the role did not install them.
    """

    source: str = ""
    engine: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    other_versions: tuple[str, ...] = ()
    install: tuple[str, ...] = ()
    replace: tuple[str, ...] = ()
    installed: tuple[str, ...] = ()
    removable: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    directories: tuple[str, ...] = ()
    adds_repository: bool = False
    repository: Mapping[str, Any] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    rpm_keys: tuple[str, ...] = ()
    logins: tuple[Mapping[str, str], ...] = ()
    logouts: tuple[str, ...] = ()
    certificates: tuple[str, ...] = ()
    old_certificates: tuple[str, ...] = ()
    new_users: tuple[str, ...] = ()
    old_users: tuple[str, ...] = ()
    missing_images: tuple[Mapping[str, Any], ...] = ()
    daemon_options: Mapping[str, Any] = field(default_factory=dict)
    has_secrets: bool = False
    secrets: str = ""
    drop_in: str = ""
    inputs: str = ""
    is_converged: bool = False
    is_present: bool = False
    steps: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The dict that templates get."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}


# The variables


def read_request(variables: Mapping[str, Any]) -> DockerRequest:
    """The request in the variables of the role; raises RequestError."""
    registries = tuple(map(_read_registry, variables["docker_registries"]))
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
    return DockerRequest(
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


def _read_registry(given: Mapping[str, Any]) -> Registry:
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


# The plan


def plan_docker(request: DockerRequest, host: DockerHost) -> DockerPlan:
    """Plan Docker on this host."""
    source = _source(request, host)
    engine = _REPOSITORY_ENGINE if source == REPOSITORY else tuple(host.platform["docker_packages"])
    optional = _optional(source, host)
    others = _REPOSITORY_PACKAGES if source == REPOSITORY else optional
    packages = (*engine, *others, *_HELPERS)
    missing = tuple(name for name in packages if name not in host.installed)
    plan = DockerPlan(
        source=source,
        engine=engine,
        packages=packages,
        optional=optional,
        missing=missing,
        other_versions=tuple(_other_versions(request.version, engine, host)),
        adds_repository=source == REPOSITORY and request.add_repository,
        daemon_options=request.daemon_options,
        has_secrets=bool(request.secrets),
        secrets=request.secrets,
        drop_in=request.drop_in,
        inputs=inputs_of(request, platform=host.platform["name"], source=source),
        installed=tuple(dict.fromkeys((*_own(host), *(name for name in missing if host.packages is not None)))),
    )
    is_installed_now = any(name in (*engine, "containerd.io") for name in missing)
    along = _RECOMMENDED.get(host.manager, ()) if is_installed_now else ()
    install = tuple(_specifications(request.version, plan, host.manager))
    install += tuple(name for name in along if name not in host.installed)
    replaced = _REPLACED_BY.get((source, host.manager), ()) if is_installed_now else ()
    plan = replace(
        plan,
        install=install,
        replace=tuple(name for name in request.replace if install and name in host.installed),
        repository=_repository(request, host),
        logins=tuple({"registry": one.name, "key": one.key, "username": one.username} for one in _logins(request)),
        certificates=tuple(one.certificate for one in request.registries if one.has_authority),
        new_users=tuple(name for name in request.users if name not in host.members),
        missing_images=tuple(_missing_images(request, host)),
        directories=_directories(host),
    )
    plan = _with_work(request, host, _with_files(request, host, _with_removals(request, host, plan)))
    refusals = (
        *_against_values(request),
        *_against_platform(request, host),
        *_against_host(request, host, [*replaced]),
    )
    return replace(plan, refusals=refusals)


def _with_work(request: DockerRequest, host: DockerHost, plan: DockerPlan) -> DockerPlan:
    """The plan with what the role has to do, and why."""
    record = {"inputs": host.recorded_inputs}
    is_as_recorded = is_of(record, plan.inputs, _inputs_of_1_0_0(request, host, plan.source))
    is_converged = is_as_recorded and not (host.drift or plan.missing)
    is_present = host.recorded is not None or request.purge or bool(plan.removable or plan.kept)
    if request.state == "absent":
        steps = (REMOVE,) if is_present else ()
    else:
        # Whether images are there only the engine knows, and only the host whether a password is that of the last run.
        steps = (*(() if is_converged else (CONVERGE,)), *((IMAGES,) if request.images or plan.has_secrets else ()))
    reasons = host.drift or ("its variables or its packages differ from the last run, or it is the first",)
    return replace(
        plan, is_converged=is_converged, is_present=is_present, steps=steps, reasons=reasons if steps else ()
    )


def _inputs_of_1_0_0(request: DockerRequest, host: DockerHost, source: str) -> str:
    """The hash that version 1.0.0 recorded: all fields that it had, in the form that it had."""
    fields = asdict(replace(request, secrets="", drop_in="", images=(), purge=False))
    return _digest([_FORMAT_OF_1_0_0, host.platform["name"], source, {name: fields[name] for name in _FIELDS_OF_1_0_0}])


def plan(request: DockerRequest, host: DockerHost) -> Plan:
    """The plan as every role has it, for what is decided before the first change; nothing in it is secret."""
    found = plan_docker(request, host)
    return Plan(found.refusals, found.steps, found.reasons, found.inputs)


def _source(request: DockerRequest, host: DockerHost) -> str:
    own = host.platform["docker_packages"]
    if request.source != AUTO:
        return request.source
    if not own or "docker-ce" in host.installed:
        return REPOSITORY
    # docker.io needs the distribution's containerd, which conflicts with containerd.io.
    return REPOSITORY if "containerd.io" in host.installed and own[0] not in host.installed else DISTRIBUTION


def _optional(source: str, host: DockerHost) -> tuple[str, ...]:
    """Compose and buildx of the distribution, by its package lists; those of the last run before the lists are read."""
    if source != DISTRIBUTION:
        return ()
    if host.offered is None:
        return tuple(map(str, host.was("optional")))
    offered = host.offered
    chosen = (next((name for name in names if _is_plugin(name, offered)), "") for names in _PLUGINS)
    return tuple(filter(None, chosen))


def _is_plugin(name: str, offered: Mapping[str, str]) -> bool:
    return name in offered and not (name == "docker-compose" and offered[name].startswith("1."))


def _other_versions(version: str, engine: Iterable[str], host: DockerHost) -> Iterator[str]:
    """Installed versions other than the requested one: 28.5.1 is neither 28.5.10 nor 28.5.2."""
    for name in engine:
        found = host.version(name)
        if version and found and not re.match(rf"(?:[0-9]+:)?{re.escape(version)}(?![0-9])", found):
            yield f"{name} {found}"


def _specifications(version: str, plan: DockerPlan, manager: str) -> Iterator[str]:
    """What to install: only what is missing or has another version, as apt would upgrade the rest along with it."""
    others = [other.partition(" ")[0] for other in plan.other_versions]
    for name in plan.packages:
        if name in plan.missing or name in others:
            is_versioned = version and name in plan.engine
            yield f"{name}={_version_pattern(version, plan.source, manager)}" if is_versioned else name


def _version_pattern(version: str, source: str, manager: str) -> str:
    """The versions of a branch, or of one release in all its builds, as apt or dnf matches them."""
    if manager == "dnf":
        return f"{version}-*" if version.count(".") == _RELEASE_DOTS else f"{version}.*"
    epoch = "5:" if source == REPOSITORY else ""
    # With a last * apt compares what is before it as it is; elsewhere wildcards count.
    return f"{epoch}{version}[-+~]*[0-9a-z]" if version.count(".") == _RELEASE_DOTS else f"{epoch}{version}.*"


def _repository(request: DockerRequest, host: DockerHost) -> Mapping[str, Any]:
    """Docker's repository, in the form that the role common takes."""
    uses_apt, directory = host.manager == "apt", host.platform["docker_repository"]
    # $releasever may be a minor release, or that of a rebuild: Docker has major ones only.
    major = str(host.platform["name"]).rpartition(" ")[2]
    own = re.escape(request.url.partition(":")[2]) + "/" if "://" in request.url else VENDOR_URL
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
        "source_file": "/etc/apt/sources.list.d/docker.sources" if uses_apt else "/etc/yum.repos.d/docker-ce.repo",
        "key_file": "/etc/apt/keyrings/docker.asc" if uses_apt else "/etc/pki/rpm-gpg/RPM-GPG-KEY-docker-ce",
        "old_line": rf"^[^#\n]*({'|'.join(dict.fromkeys((VENDOR_URL, own)))})",
        "entry_files": list(_ENTRY_FILES.get(host.manager, ())),
        "attempts": 4,
        "url_option": "docker_repository_url",
        "key_url_option": "docker_repository_key_url",
        "fingerprints_option": "docker_repository_key_fingerprint",
    }


def _logins(request: DockerRequest) -> list[Registry]:
    return [one for one in request.registries if one.has_password]


def _with_files(request: DockerRequest, host: DockerHost, plan: DockerPlan) -> DockerPlan:
    """The plan with the files and keys to record."""
    files = [plan.repository["key_file"], plan.repository["source_file"]] if plan.adds_repository else []
    files += plan.certificates
    files += ["/etc/apt/preferences.d/gpu-fleet-docker"] if request.version and host.manager == "apt" else []
    files += ["/root/.docker/config.json"] if plan.logins else []
    files += [_DROP_IN] if plan.drop_in else []
    files += [str(export["path"]) for export in request.exports]
    # rpm stores trusted keys as packages.
    keys = [f"gpg-pubkey-{plan.repository['fingerprints'][0][-8:].lower()}"]
    is_trusted = plan.adds_repository and host.manager == "dnf"
    return replace(plan, files=tuple(files), rpm_keys=tuple(keys) if is_trusted else ())


def _with_removals(request: DockerRequest, host: DockerHost, plan: DockerPlan) -> DockerPlan:
    """The plan with what an earlier run has set up and this request does not have."""
    is_absent = request.state == "absent"
    keys = () if is_absent else tuple(login["key"] for login in plan.logins)
    users = () if is_absent else request.users
    certificates = () if is_absent else plan.certificates
    removable = _removable(request, host)
    engines = [name for name in _ENGINES if name in host.installed]
    return replace(
        plan,
        logouts=tuple(key for key in host.was("registries") if key not in keys),
        old_users=tuple(name for name in host.was("users") if name not in users),
        old_certificates=tuple(path for path in host.was("certificates") if path not in certificates),
        removable=removable,
        kept=tuple(name for name in engines if name not in removable),
    )


def _removable(request: DockerRequest, host: DockerHost) -> tuple[str, ...]:
    """The installed packages that the role has installed; with docker_purge all of Docker."""
    own = _REMOVABLE if request.purge else _own(host)
    names = [name for name in _REMOVABLE if name in own]
    if request.purge and not _runs_kubernetes(host):
        names.append("containerd.io")
    return tuple(name for name in names if name in host.installed)


def _own(host: DockerHost) -> tuple[str, ...]:
    """The packages that earlier runs have installed. Records of earlier versions of the role do not name them."""
    if host.recorded is None:
        return ()
    return host.was("installed") if "installed" in host.recorded else _EARLIER


def _runs_kubernetes(host: DockerHost) -> bool:
    return any(name in host.installed for name in _KUBERNETES)


def _directories(host: DockerHost) -> tuple[str, ...]:
    """What docker_purge removes. The data of containerd may be that of Kubernetes."""
    is_shared = "containerd" in host.installed or _runs_kubernetes(host)
    return ("/etc/docker", "/var/lib/docker", "/root/.docker", *(() if is_shared else ("/var/lib/containerd",)))


def _missing_images(request: DockerRequest, host: DockerHost) -> Iterator[Mapping[str, Any]]:
    """The requested images that the engine does not list."""
    yield from (image for image in request.images if listed_image(str(image["name"])) not in host.images)


def listed_image(name: str) -> str:
    """The name by which Docker lists an image: without its default registry and namespace, with the default tag."""
    short = re.sub(r"^docker[.]io/(library/)?", "", name)
    return short if "@" in short or ":" in short.rpartition("/")[2] else f"{short}:latest"


# Refusals


def _against_values(request: DockerRequest) -> Iterator[str]:
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


def _against_platform(request: DockerRequest, host: DockerHost) -> Iterator[str]:
    platform = host.platform
    if not platform["supported"]:
        yield (
            f"{platform['name']} is not supported by the role gpu.fleet.docker; take the host out of the play or use "
            f"one of: {', '.join(platform['known'])}"
        )
    elif request.source == DISTRIBUTION and not platform["docker_packages"]:
        yield f"{platform['name']} has no Docker of its own; set docker_source to docker_repository or auto"


def _against_host(request: DockerRequest, host: DockerHost, replaced: Sequence[str]) -> Iterator[str]:
    if request.state != "present":
        return
    if host.snap:
        yield (
            "Docker is a snap here, which does not read /etc/docker/daemon.json and sees few paths of the host; move "
            "what its containers need, run `snap remove docker`, then run again"
        )
    unknown = [name for name in request.users if host.accounts.get(name) is False]
    if unknown:
        yield f"docker_users has {', '.join(unknown)[:100]}, who do not exist on the host; create them first"
    removed = [name for name in replaced if name in host.installed and name not in request.replace]
    if removed:
        yield _removal_refusal(removed, request, host)


def _removal_refusal(removed: Sequence[str], request: DockerRequest, host: DockerHost) -> str:
    source = _source(request, host)
    engine = _REPOSITORY_ENGINE[0] if source == REPOSITORY else host.platform["docker_packages"][0]
    others = (DISTRIBUTION, REPOSITORY) if host.platform["docker_packages"] else (REPOSITORY,)
    fitting = [
        other
        for other in others
        if other != source and not set(_REPLACED_BY.get((other, host.manager), ())) & set(host.installed)
    ]
    kubernetes = ", with the containers of Kubernetes on this node" if _runs_kubernetes(host) else ""
    instead = f"set docker_source to {' or '.join(fitting)}, " if fitting else ""
    return (
        f"{engine} would remove {', '.join(removed)}{kubernetes}; nothing was changed; {instead}"
        "remove what you do not need yourself, or name in docker_replace what Docker may replace"
    )


# The restart


_TIMED_OUT = 124
"""Exit status of timeout."""
_NONE_FOUND = 1
"""Exit status of pgrep."""


@dataclass(frozen=True)
class RestartPlan:
    """Whether Docker is restarted in this run. `notes` and `refusals` name the containers that this would stop."""

    now: bool = False
    notes: tuple[str, ...] = ()
    refusals: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The dict that templates get."""
        return {"now": self.now, "notes": list(self.notes), "refusals": list(self.refusals)}


def plan_restart(
    policy: str, reasons: Sequence[str], containers: Sequence[str], live_restore: bool, unread: str = ""
) -> RestartPlan:
    """Plan the restart that these reasons ask for, while these containers run.

    With live-restore containers outlive the daemon, so that a restart stops none. `unread` is why it is not known which
    containers run.
    """
    if not reasons:
        return RestartPlan()
    why = "; ".join(reasons)
    stopped = () if live_restore else tuple(containers)
    running = ", ".join(stopped)
    if policy == "never":
        note = f"Docker has to be restarted ({why}), and docker_restart is never: restart it yourself"
        return RestartPlan(notes=(note,))
    if unread and policy == "when_idle":
        refusal = (
            f"Docker has to be restarted ({why}), and it is not known which running containers that would stop: "
            f"{unread}; nothing was changed; see journalctl -u docker, or set docker_restart to always, which stops "
            "them, or to never, which leaves the restart to you"
        )
        return RestartPlan(refusals=(refusal,))
    if stopped and policy == "when_idle":
        refusal = (
            f"Docker has to be restarted ({why}), which would stop the running containers {running}; nothing was "
            "changed; run again when they have ended, or set docker_restart to always, which stops them, or to never, "
            "which leaves the restart to you; containers outlive restarts where the daemon runs with live-restore"
        )
        return RestartPlan(refusals=(refusal,))
    if unread:
        stopped, running = ("unknown",), f"that there are: {unread}"
    notes = (f"the restart of Docker ({why}) stops the running containers {running}",) if stopped else ()
    return RestartPlan(now=True, notes=notes)


# For templates


def docker_plan(variables: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """The plan as a dictionary; a request that has not the documented form is refused like any other."""
    try:
        return plan_docker(read_request(variables), read_host(facts)).as_dict()
    except RequestError as error:
        return DockerPlan(refusals=(str(error),)).as_dict()


def docker_restart(policy: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The plan of a restart as a dictionary."""
    containers = [str(name) for name in facts.get("containers") or ()]
    reasons, unread = list(facts["reasons"]), _unread(facts.get("listing") or {}, facts.get("shims") or {})
    return plan_restart(policy, reasons, containers, bool(facts.get("live_restore")), unread).as_dict()


def _unread(listing: Mapping[str, Any], shims: Mapping[str, Any]) -> str:
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


def read_host(facts: Mapping[str, Any]) -> DockerHost:
    """The facts of the host as the role knows them; `record` is that of the role."""
    record = facts.get("record") or {}
    return DockerHost(
        platform=facts["platform"],
        architecture=str(facts.get("architecture") or ""),
        packages=facts.get("packages"),
        recorded=record.get("data"),
        recorded_inputs=str(record.get("inputs") or ""),
        drift=tuple(str(found["message"]) for found in record.get("drift") or ()),
        offered=parse_offered(str(facts["offered"])) if facts.get("offered") is not None else None,
        snap=bool(facts.get("snap", False)),
        accounts={str(name): bool(entry) for name, entry in (facts.get("accounts") or {}).items()},
        members=_members(facts.get("group")),
        images=tuple(map(str, facts.get("images") or ())),
    )


def _members(entry: Sequence[str] | None) -> tuple[str, ...]:
    """The members of a group by what getent has of it: password, number, members."""
    return tuple(filter(None, str(entry[-1]).split(","))) if entry else ()


def parse_offered(text: str) -> dict[str, str]:
    """The newest versions by name in the output of `apt-cache madison`, which has the newest of a package first."""
    rows = ([cell.strip() for cell in line.split("|")] for line in text.splitlines())
    return {row[0]: row[1] for row in reversed(list(rows)) if len(row) == 3}


# Messages of the engine


def pull_error(result: Mapping[str, Any]) -> str:
    """Why images could not be pulled, from the result of a task with a loop, and what helps where that is known."""
    items = [item for item in result.get("results") or [result] if item.get("failed")]
    messages = [" ".join(str(item.get("msg", "no reason given")).split()) for item in items]
    text = "; ".join(dict.fromkeys(messages))
    # docker-ce 29.5.0 with nvcr.io.
    if "incorrect repository format" in text.lower():
        text += (
            "; Docker 29 has containerd store images, and some (29.5.0) cannot pull from nvcr.io that way: set "
            "docker_daemon_options to {features: {containerd-snapshotter: false}}, which hides images pulled before, "
            "or docker_version to another one"
        )
    return text
