# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Debian packages, written without dpkg, and apt's indexes."""

from __future__ import annotations

import datetime
import gzip
import hashlib
from collections.abc import Mapping
from pathlib import Path

from bed.vendors.content import EPOCH, Content, compress, tar
from bed.vendors.description import RELATIONS, Package, Place
from bed.vendors.keys import Key

_RELATIONS = [name for name in RELATIONS if name != "obsoletes"]


def file_name(package: Package) -> str:
    """Name of the package's file, without the epoch, as every Debian archive has it."""
    return f"{package.name}_{package.version.split(':')[-1]}_{package.architecture}.deb"


def control(package: Package) -> str:
    """The control file, also the first part of the package's entry in the index."""
    fields = {
        "Package": package.name,
        "Version": package.version,
        "Architecture": package.architecture,
        "Maintainer": "gpu.fleet test bed <nobody@bed.invalid>",
        "Installed-Size": "1",
        "Priority": "optional",
        "Section": "utils",
        **{name.capitalize(): ", ".join(package.relations[name]) for name in _RELATIONS if name in package.relations},
        "Description": package.summary,
    }
    return "".join(f"{name}: {value}\n" for name, value in fields.items())


def build(package: Package, files: Mapping[str, Content]) -> bytes:
    """The package. Files below /etc are configuration files, as debhelper makes them."""
    members = {path.lstrip("/"): content for path, content in files.items()}
    members[f"usr/share/doc/{package.name}/README"] = Content(f"{package.summary}\n".encode())
    scripts = {name: Content(f"#!/bin/sh\nset -e\n{text}\n".encode(), 0o755) for name, text in package.scripts.items()}
    configuration = "".join(
        f"/{path}\n" for path, content in members.items() if path.startswith("etc/") and not content.link
    )
    own = {"control": Content(control(package).encode()), **scripts}
    if configuration:
        own["conffiles"] = Content(configuration.encode())
    parts = {
        "debian-binary": b"2.0\n",
        "control.tar.gz": compress(tar(own, "./"), "gz"),
        "data.tar.gz": compress(tar(members, "./"), "gz"),
    }
    output = b"!<arch>\n"
    for name, data in parts.items():
        header = f"{name:<16}{EPOCH:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n"
        output += header.encode() + data + (b"\n" if len(data) % 2 else b"")
    return output


def write_index(place: Place, folder: Path, packages: Mapping[Path, Package], root: str) -> None:
    """Write Packages for each architecture and Release over them. `root` is what file names in it begin with.

    A flat repository has one Packages file for all architectures.
    """
    flat = place.layout == "apt-flat"
    entries = {path: _entry(package, path, f"{root}{path.relative_to(folder)}") for path, package in packages.items()}
    indexes: dict[str, bytes] = {}
    for architecture in ("",) if flat else place.architectures:
        text = "\n".join(
            entries[path] for path, package in packages.items() if flat or package.architecture in (architecture, "all")
        ).encode()
        base = "" if flat else f"{place.component}/binary-{architecture}/"
        indexes |= {f"{base}Packages": text, f"{base}Packages.gz": gzip.compress(text, mtime=0)}
    for name, data in indexes.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    now = datetime.datetime.now(datetime.UTC).strftime("%a, %d %b %Y %H:%M:%S UTC")
    origin = place.key or place.id
    release = f"Origin: {origin}\nLabel: {origin}\n"
    if not flat:
        release += f"Suite: {place.suite}\nCodename: {place.suite}\nComponents: {place.component}\n"
    release += f"Architectures: {' '.join(place.architectures)}\nDate: {now}\nSHA256:\n"
    release += "".join(f" {hashlib.sha256(data).hexdigest()} {len(data)} {name}\n" for name, data in indexes.items())
    (folder / "Release").write_text(release, encoding="utf-8")


def sign(folder: Path, key: Key, target: Path) -> None:
    """Sign the Release file of one folder into another."""
    target.mkdir(parents=True, exist_ok=True)
    key.clearsign(folder / "Release", target / "InRelease")
    key.sign(folder / "Release", target / "Release.gpg")


def _entry(package: Package, path: Path, name: str) -> str:
    data = path.read_bytes()
    sums = f"SHA256: {hashlib.sha256(data).hexdigest()}\nSize: {len(data)}\n"
    return control(package).replace("Description:", f"Filename: {name}\n{sums}Description:")
