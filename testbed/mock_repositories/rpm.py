# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RPM packages by rpmbuild, many per spec file, and dnf's metadata with module streams."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from typing import Any

import yaml

from testbed.mock_repositories.content import Content
from testbed.mock_repositories.description import Package, Stream, rpm_architecture
from testbed.mock_repositories.keys import Key

_TAGS = {
    "depends": "Requires",
    "recommends": "Recommends",
    "suggests": "Suggests",
    "conflicts": "Conflicts",
    "provides": "Provides",
    "obsoletes": "Obsoletes",
}
_SCRIPTS = {"preinst": "pre", "postinst": "post", "prerm": "preun", "postrm": "postun"}


def split_version(package: Package) -> tuple[str, str, str]:
    """Epoch ('0' when there is none), version and release."""
    epoch, _colon, rest = package.version.rpartition(":")
    version, _dash, release = rest.rpartition("-")
    return epoch or "0", version, release


def file_name(package: Package) -> str:
    """Name of the package's file."""
    _epoch, version, release = split_version(package)
    return f"{package.name}-{version}-{release}.{rpm_architecture(package.architecture)}.rpm"


def relation(text: str) -> str:
    """Debian's `a (>= 1) | b` in rpm's syntax; what is in rpm's syntax already is left."""
    parts = [
        re.sub(r"\(([<>=]+) *([^)]*)\)", r"\1 \2", part).replace("<<", "<").replace(">>", ">").strip()
        for part in text.split(" | ")
    ]
    return parts[0] if len(parts) == 1 else f"({' or '.join(parts)})"


def build(packages: Sequence[tuple[Package, Mapping[str, Content]]], scratch: Path, key: Key) -> dict[str, Path]:
    """Build and sign packages; returns their files by name."""
    output = scratch / "rpms"
    output.mkdir(parents=True)
    by_architecture: dict[str, list[Path]] = {}
    for number, group in enumerate(_groups(packages)):
        specification = _specification(group, scratch / str(number))
        by_architecture.setdefault(group.architecture, []).append(specification)
    for architecture, specifications in by_architecture.items():
        defines = {
            "_topdir": scratch / "top",
            "_rpmdir": output,
            "_dbpath": scratch / "db",
            "_build_id_links": "none",
            "_rpmfilename": "%%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm",
            "_buildhost": "testbed.invalid",
            "_binary_payload": "w1.gzdio",
            # Programs are packaged as they are: not stripped, and without a check of their architecture.
            "__os_install_post": "%{nil}",
            "_binaries_in_noarch_packages_terminate_build": "0",
            "_unpackaged_files_terminate_build": "0",
        }
        words = [word for name, value in defines.items() for word in ("--define", f"{name} {value}")]
        _run("rpmbuild", "-bb", "--quiet", "--nodeps", "--target", architecture, *words, *map(str, specifications))
    built = {path.name: path for path in output.iterdir()}
    gpg = ("--define", f"_gpg_name {key.uid}", "--define", "__gpg /usr/bin/gpg")
    _run("rpmsign", *gpg, "--addsign", *map(str, built.values()), environment=key.environment)
    return built


def write_index(directory: Path, packages: Iterable[Package], streams: Sequence[Stream], scratch: Path) -> None:
    """Write repodata, with the module streams when there are any."""
    _run("createrepo_c", "--quiet", "--no-database", str(directory))
    if streams:
        modules = scratch / "modules.yaml"
        modules.write_text(modules_document(list(packages), streams), encoding="utf-8")
        _run("modifyrepo_c", "--mdtype=modules", str(modules), str(directory / "repodata"))


def modules_document(packages: Sequence[Package], streams: Sequence[Stream]) -> str:
    """modules.yaml: a stream has every package whose name and version fit patterns of it.

    A stream without packages is left out.
    """
    documents: list[dict[str, Any]] = []
    for number, stream in enumerate(streams):
        artifacts = [
            "{}-{}:{}-{}.{}".format(package.name, *split_version(package), rpm_architecture(package.architecture))
            for package in packages
            if any(fnmatchcase(package.name, name) for name in stream.packages)
            and any(fnmatchcase(package.upstream, pattern) for pattern in stream.versions)
        ]
        if not artifacts:
            continue
        data = {
            "name": stream.name,
            "stream": stream.stream,
            "version": 20260101000000,
            "context": f"{number:08x}",
            "arch": "x86_64",
            "summary": f"Mock of {stream.name}:{stream.stream}",
            "description": "a mock for tests",
            "license": {"module": ["GPL-3.0-or-later"]},
            "profiles": {name: {"rpms": list(names)} for name, names in stream.profiles.items()},
            "artifacts": {"rpms": artifacts},
        }
        documents.append({"document": "modulemd", "version": 2, "data": data})
    made = {(document["data"]["name"], document["data"]["stream"]) for document in documents}
    for stream in streams:
        if stream.default and (stream.name, stream.stream) in made:
            profiles = {stream.stream: ["default"]} if "default" in stream.profiles else {}
            data = {"module": stream.name, "stream": stream.stream, "profiles": profiles}
            documents.append({"document": "modulemd-defaults", "version": 1, "data": data})
    return yaml.safe_dump_all(documents, explicit_start=True, explicit_end=True, sort_keys=False)


def sign(directory: Path, key: Key, target: Path) -> None:
    """Sign the metadata of one directory into another."""
    (target / "repodata").mkdir(parents=True, exist_ok=True)
    key.sign(directory / "repodata" / "repomd.xml", target / "repodata" / "repomd.xml.asc")


@dataclass(frozen=True)
class _Group:
    """Packages that fit into one spec file: no name and no file twice. Fewer spec files make rpmbuild faster."""

    architecture: str
    packages: list[tuple[Package, Mapping[str, Content]]] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)


def _groups(packages: Iterable[tuple[Package, Mapping[str, Content]]]) -> list[_Group]:
    groups: list[_Group] = []
    for package, files in packages:
        architecture = "x86_64" if package.architecture == "all" else rpm_architecture(package.architecture)
        taken = {package.name, *files}
        fitting = (group for group in groups if group.architecture == architecture and not group.taken & taken)
        group = next(fitting, None)
        if group is None:
            group = _Group(architecture)
            groups.append(group)
        group.packages.append((package, files))
        group.taken.update(taken)
    return groups


def _specification(group: _Group, scratch: Path) -> Path:
    tree = scratch / "tree"
    tree.mkdir(parents=True)
    text = "Name: testbed\nVersion: 1\nRelease: 1\nSummary: Mocks\nLicense: GPL-3.0-or-later\n"
    text += "%global debug_package %{nil}\n%description\nMocks for tests.\n"
    text += f"%install\nmkdir -p %{{buildroot}}\ncp -a {tree}/. %{{buildroot}}/\n"
    text += "".join(_subpackage(package, files, tree) for package, files in group.packages)
    specification = scratch / "packages.spec"
    specification.write_text(text, encoding="utf-8")
    return specification


def _subpackage(package: Package, files: Mapping[str, Content], tree: Path) -> str:
    """The part of a spec file for one package, whose files are written below `tree`."""
    epoch, version, release = split_version(package)
    every = {path.lstrip("/"): content for path, content in files.items()}
    every[f"usr/share/doc/{package.name}/README"] = Content(f"{package.summary}\n".encode())
    listed = ""
    for path, content in every.items():
        content.write(tree / path)
        listed += ("%config(noreplace) " if content.is_configuration(path) else "") + f'"/{path}"\n'
    # A directory whose name has the version or the package's name belongs to the package, with those below, and is
    # removed with it; rpm leaves all others.
    directories = {directory for path in every for directory in PurePath(path).parents}
    own = {
        str(directory)
        for directory in directories
        if any(version in part or part == package.name for part in directory.parts)
    }
    listed += "".join(f'%dir "/{directory}"\n' for directory in sorted(own))
    # The derivative's package database has no libraries, and no interpreter for scripts but a shell.
    head = {"Version": version, "Release": release, "Summary": package.summary, "AutoReqProv": "no"}
    head |= {"Epoch": epoch} if epoch != "0" else {}
    head |= {"BuildArch": "noarch"} if package.architecture == "all" else {}
    text = f"%package -n {package.name}\n" + "".join(f"{name}: {value}\n" for name, value in head.items())
    for name, tag in _TAGS.items():
        text += "".join(f"{tag}: {relation(value)}\n" for value in package.relations.get(name, ()))
    text += f"%description -n {package.name}\n{package.summary}\n"
    for name, script in package.scripts.items():
        text += f"%{_SCRIPTS[name]} -n {package.name}\n{_escaped(script)}\n"
    return f"{text}%files -n {package.name}\n{listed}"


def _escaped(script: str) -> str:
    return script.replace("%", "%%")


def _run(*argv: str, environment: Mapping[str, str] | None = None) -> None:
    subprocess.run(argv, env=environment, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
