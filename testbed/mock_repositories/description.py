# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads descriptions/<name>/*.yml: which repositories there are, where, and the packages in each."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

REPOSITORIES = Path(__file__).parent / "descriptions"

RELATIONS = ("depends", "recommends", "suggests", "conflicts", "provides", "replaces", "breaks", "obsoletes")
SCRIPTS = ("preinst", "postinst", "prerm", "postrm")
_PACKAGE_KEYS = {
    *("name", "version", "versions", "each", "architecture", "summary", "files", "places", "deb", "rpm"),
    *RELATIONS,
    *SCRIPTS,
}
_RPM_ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}
_TRIPLETS = {"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}


class DescriptionError(Exception):
    """A file of descriptions/ is invalid; the message names the file and what is allowed."""


@dataclass(frozen=True)
class File:
    """A file of a package, or one that is served as it is. `source` holds exactly one of the kinds.

    Kinds: content (text), link (target), copy (path next to the description), c (source text, compiled), debian (path
    in a Debian release's packages), key (name of a key: its public half), tar (its members).
    """

    kind: str
    value: Any
    mode: int | None = None
    flags: tuple[str, ...] = ()
    suite: str = ""
    compression: str = ""
    armored: bool = False
    # A configuration file of its package that is not below /etc.
    configuration: bool = False


@dataclass(frozen=True)
class Package:
    """A package of one repository and one architecture ('all', 'amd64', 'arm64'), all placeholders replaced."""

    name: str
    version: str
    architecture: str
    summary: str
    relations: Mapping[str, tuple[str, ...]]
    scripts: Mapping[str, str]
    files: Mapping[str, File]

    @property
    def upstream(self) -> str:
        """The version without epoch and revision."""
        return _upstream(self.version)


@dataclass(frozen=True)
class Stream:
    """A module stream of an rpm repository; `artifacts` are selected by package name and version pattern."""

    name: str
    stream: str
    versions: tuple[str, ...]
    packages: tuple[str, ...]
    profiles: Mapping[str, tuple[str, ...]]
    default: bool = False


@dataclass(frozen=True)
class Place:
    """One repository at one URL. `layout` is apt-flat, apt-dists, rpm or files."""

    id: str
    url: str
    layout: str
    key: str
    key_file: str
    suite: str
    component: str
    architectures: tuple[str, ...]
    packages: tuple[Package, ...]
    streams: tuple[Stream, ...]
    files: Mapping[str, File] = field(default_factory=dict)
    # The derivative or release whose hosts have this repository from the start, as a part of their distribution.
    installed_on: str = ""
    # Served not as a repository but inside one package of this name, for hosts without a network.
    local_package: str = ""

    @property
    def host(self) -> str:
        """Host name of the URL."""
        return urlsplit(self.url).netloc

    @property
    def path(self) -> str:
        """Directory below the host, without a slash at either end."""
        return urlsplit(self.url).path.strip("/")


def read_places(root: Path = REPOSITORIES) -> list[Place]:
    """All repositories below a directory."""
    return [
        place for directory in sorted(root.iterdir()) if directory.is_dir() for place in _read_repository(directory)
    ]


def rpm_architecture(architecture: str) -> str:
    """The rpm name of an architecture given by its Debian name."""
    return "noarch" if architecture == "all" else _RPM_ARCHITECTURES[architecture]


def _upstream(version: str) -> str:
    return version.split(":", 1)[-1].rsplit("-", 1)[0]


def _load(path: Path) -> dict[str, Any]:
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    if not isinstance(document, dict):
        raise DescriptionError(f"{path}: has to be a mapping")
    return document


def _read_repository(directory: Path) -> Iterator[Place]:
    path = directory / "repository.yml"
    if not path.exists():
        raise DescriptionError(f"{directory}: has no repository.yml")
    repository = _load(path)
    files = [(other, _load(other)) for other in sorted(directory.glob("*.yml")) if other != path]
    for name, own in repository["places"].items():
        settings = {**{k: v for k, v in repository.items() if k != "places"}, **(own or {})}
        architectures: dict[str, str] = settings.get("architectures", {"x86_64": "amd64"})
        groups = (
            [{word: deb} for word, deb in architectures.items()]
            if "@ARCHITECTURE@" in settings["url"]
            else [architectures]
        )
        for group in groups:
            yield _place(directory, name, settings, group, files)


def _place(
    directory: Path,
    name: str,
    settings: dict[str, Any],
    architectures: dict[str, str],
    files: list[tuple[Path, dict[str, Any]]],
) -> Place:
    variables = {
        "PLACE": name,
        "DISTRIBUTION": name,
        "ARCHITECTURE": next(iter(architectures)),
        "KEY": settings.get("key", ""),
        # Of the machine, which its containers share.
        "KERNEL": platform.release(),
        **{k: str(v) for k, v in settings.get("variables", {}).items()},
    }
    variables["URL"] = _fill(settings["url"], variables)
    layout = settings["layout"]
    packages: list[Package] = []
    streams: list[Stream] = []
    for path, document in files:
        if not _applies(document, name) or not fnmatch(path.stem, settings.get("packages_of", "*")):
            continue
        try:
            for entry in document.get("packages", []):
                if _applies(entry, name):
                    found = _packages(entry, layout, architectures, variables, directory)
                    desired = settings.get("only_version", "*")
                    packages.extend(package for package in found if fnmatch(package.upstream, desired))
            modules = document.get("modules", []) if layout == "rpm" else []
            streams.extend(_stream(entry) for entry in modules if _applies(entry, name))
        except (KeyError, TypeError, ValueError, DescriptionError) as error:
            raise DescriptionError(f"{path}: {error!r}") from error
    plain = {
        key: _file(value, variables, directory) for key, value in _fill(settings.get("files", {}), variables).items()
    }
    return Place(
        id="/".join([directory.name, name] + ([next(iter(architectures))] if len(architectures) == 1 else [])),
        url=variables["URL"],
        layout=layout,
        key=settings.get("key", ""),
        key_file=_fill(settings.get("key_file", ""), variables),
        suite=settings.get("suite", name),
        component=settings.get("component", "stable"),
        architectures=tuple(architectures.values()),
        packages=tuple(packages),
        streams=tuple(streams),
        files=plain,
        installed_on=settings.get("installed_on", ""),
        local_package=_fill(settings.get("local_package", ""), variables),
    )


def _applies(entry: dict[str, Any], place: str) -> bool:
    return any(fnmatch(place, pattern) for pattern in entry.get("places", ["*"]))


def _fill(value: Any, variables: Mapping[str, str]) -> Any:
    """Replace @NAME@ in every string below a value; unknown names are left as they are."""
    if isinstance(value, str):
        return re.sub(r"@([A-Z_]+)@", lambda match: variables.get(match[1], match[0]), value)
    if isinstance(value, dict):
        return {_fill(key, variables): _fill(item, variables) for key, item in value.items()}
    return [_fill(item, variables) for item in value] if isinstance(value, list) else value


def _packages(
    entry: dict[str, Any], layout: str, architectures: dict[str, str], variables: Mapping[str, str], directory: Path
) -> Iterator[Package]:
    if unknown := set(entry) - _PACKAGE_KEYS:
        raise DescriptionError(f"{entry['name']}: unknown {sorted(unknown)}; allowed: {sorted(_PACKAGE_KEYS)}")
    own = entry.get("rpm" if layout == "rpm" else "deb", {})
    merged = {**entry, **own, "files": {**entry.get("files", {}), **own.get("files", {})}}
    versions = merged.get("versions", [merged["version"]] if "version" in merged else ["1.0-1"])
    native = list(architectures.items())
    for each, version, (word, debian) in product(merged.get("each", [{}]), versions, native):
        names = {**variables, **{k: str(v) for k, v in each.items()}, "ARCHITECTURE": word}
        names["LIBDIR"] = "/usr/lib64" if layout == "rpm" else f"/usr/lib/{_TRIPLETS[debian]}"
        full = _fill(str(version), names)
        numbers = _upstream(full).split(".")
        names |= {
            "VERSION": full,
            "VERSION_WITHOUT_RELEASE": full.rsplit("-", 1)[0],
            "UPSTREAM": _upstream(full),
            "BRANCH": numbers[0],
            "SERIES": ".".join(numbers[:2]),
            "SERIES_NAME": "-".join(numbers[:2]),
        }
        data = _fill({k: v for k, v in merged.items() if k not in ("deb", "rpm", "each", "versions")}, names)
        architecture = "all" if data.get("architecture") == "all" else debian
        if architecture == "all" and word != native[0][0]:
            continue
        yield Package(
            name=data["name"],
            version=full,
            architecture=architecture,
            summary=data.get("summary", f"Mock of {data['name']}"),
            relations={key: _strings(data[key]) for key in RELATIONS if data.get(key)},
            scripts={key: data[key] for key in SCRIPTS if data.get(key)},
            files={path: _file(value, names, directory) for path, value in data["files"].items()},
        )


def _strings(value: Any) -> tuple[str, ...]:
    return tuple(part.strip() for part in value.split(",")) if isinstance(value, str) else tuple(value)


def _file(value: Any, variables: Mapping[str, str], directory: Path) -> File:
    value = _fill(value, variables)
    if isinstance(value, str):
        return File("content", value)
    mode = int(str(value["mode"]), 8) if "mode" in value else None
    kinds = [kind for kind in ("content", "link", "copy", "c", "debian", "key", "tar") if kind in value]
    if len(kinds) != 1:
        raise DescriptionError(f"a file is one of content, link, copy, c, debian, key, tar: {sorted(value)}")
    kind = kinds[0]
    data = value[kind]
    if kind == "copy":
        data = str((directory / data).resolve())
    if kind == "tar":
        data = {path: _file(item, variables, directory) for path, item in data.items()}
    return File(
        kind,
        data,
        mode=mode,
        flags=tuple(value.get("flags", ())),
        suite=value.get("suite", ""),
        compression=value.get("compression", ""),
        armored=value.get("armored", False),
        configuration=value.get("configuration", False),
    )


def _stream(entry: dict[str, Any]) -> Stream:
    return Stream(
        name=entry["name"],
        stream=str(entry["stream"]),
        versions=tuple(entry["versions"]),
        packages=tuple(entry["packages"]),
        profiles={name: tuple(packages) for name, packages in entry.get("profiles", {}).items()},
        default=entry.get("default", False),
    )
