# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Debian packages by dpkg-deb, and apt's indexes by apt-ftparchive."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from testbed.mock_repositories.content import EPOCH, Content
from testbed.mock_repositories.description import RELATIONS, Package, Place
from testbed.mock_repositories.keys import Key

_RELATIONS = [name for name in RELATIONS if name != "obsoletes"]


def file_name(package: Package) -> str:
    """Name of the package's file, without the epoch, as every Debian archive has it."""
    return f"{package.name}_{package.version.split(':')[-1]}_{package.architecture}.deb"


def control(package: Package) -> str:
    """The control file."""
    fields = {
        "Package": package.name,
        "Version": package.version,
        "Architecture": package.architecture,
        "Maintainer": "gpu.fleet test testbed <nobody@testbed.invalid>",
        "Installed-Size": "1",
        "Priority": "optional",
        "Section": "utils",
        **{name.capitalize(): ", ".join(package.relations[name]) for name in _RELATIONS if name in package.relations},
        "Description": package.summary,
    }
    return "".join(f"{name}: {value}\n" for name, value in fields.items())


def build(package: Package, files: Mapping[str, Content], target: Path) -> None:
    """Build the package as the file `target`. Files below /etc are configuration files, as debhelper makes them."""
    members = {path.lstrip("/"): content for path, content in files.items()}
    members[f"usr/share/doc/{package.name}/README"] = Content(f"{package.summary}\n".encode())
    members["DEBIAN/control"] = Content(control(package).encode())
    for name, text in package.scripts.items():
        members[f"DEBIAN/{name}"] = Content(f"#!/bin/sh\nset -e\n{text}\n".encode(), 0o755)
    configuration = [path for path, content in members.items() if content.is_configuration(path)]
    if configuration:
        members["DEBIAN/conffiles"] = Content("".join(f"/{path}\n" for path in configuration).encode())
    with tempfile.TemporaryDirectory(prefix="deb-") as scratch:
        tree = Path(scratch)
        tree.chmod(0o755)
        for path, content in members.items():
            content.write(tree / path)
        # No compression: the packages are short-lived, and some hold real programs of a hundred megabytes.
        options = ("--root-owner-group", "-Znone", "--nocheck", "--build")
        _run("dpkg-deb", *options, str(tree), str(target), environment={"SOURCE_DATE_EPOCH": str(EPOCH)})


def write_index(place: Place, directory: Path) -> None:
    """Write Packages for each architecture, and Release over them, for the packages in `directory`.

    A flat repository has one Packages file for all architectures. One below dists/ names its packages from the root of
    the repository, where they will have the same paths as in `directory`.
    """
    if place.layout == "apt-flat":
        _write_packages(directory, directory / "Packages", ".")
        _write_release(place, directory, {})
        return
    with tempfile.TemporaryDirectory(prefix="root-") as scratch:
        root = Path(scratch)
        below = root / "dists" / place.suite
        below.parent.mkdir(parents=True)
        below.symlink_to(directory)
        for architecture in place.architectures:
            index = directory / place.component / f"binary-{architecture}" / "Packages"
            index.parent.mkdir(parents=True, exist_ok=True)
            _write_packages(root, index, f"dists/{place.suite}/pool", "--arch", architecture)
    _write_release(place, directory, {"Suite": place.suite, "Codename": place.suite, "Components": place.component})


def _write_packages(root: Path, index: Path, pool: str, *options: str) -> None:
    text = _run("apt-ftparchive", "--no-md5", "--no-sha1", "--no-sha512", *options, "packages", pool, cwd=root)
    index.write_bytes(text)
    _run("gzip", "-nk1", str(index))


def _write_release(place: Place, directory: Path, fields: Mapping[str, str]) -> None:
    origin = place.key or place.id
    fields = {"Origin": origin, "Label": origin, "Architectures": " ".join(place.architectures), **fields}
    options = [f"-oAPT::FTPArchive::Release::{name}={value}" for name, value in fields.items()]
    text = _run("apt-ftparchive", "--no-md5", "--no-sha1", "--no-sha512", *options, "release", ".", cwd=directory)
    (directory / "Release").write_bytes(text)


def sign(directory: Path, key: Key, target: Path) -> None:
    """Sign the Release file of one directory into another."""
    target.mkdir(parents=True, exist_ok=True)
    key.clearsign(directory / "Release", target / "InRelease")
    key.sign(directory / "Release", target / "Release.gpg")


def _run(*argv: str, environment: Mapping[str, str] | None = None, cwd: Path | None = None) -> bytes:
    done = subprocess.run(argv, env={**os.environ, **(environment or {})}, cwd=cwd, capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(argv)}: {done.stderr.decode(errors='replace')}")
    return done.stdout
