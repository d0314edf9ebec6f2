# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mock vendor packages without any package manager: descriptions, .deb files, rpm metadata, module streams."""

from __future__ import annotations

import gzip
import io
import lzma
import subprocess
import tarfile
from pathlib import Path
from textwrap import dedent

import pytest
import yaml

from testbed.mock_repositories import deb, rpm
from testbed.mock_repositories.content import Content, Materializer
from testbed.mock_repositories.description import DescriptionError, File, Package, Place, read_places

_REPOSITORY = """\
    url: https://vendor.example/repos/@PLACE@/@ARCHITECTURE@
    key: vendor
    key_file: key.pub
    architectures: {x86_64: amd64, sbsa: arm64}
    layout: apt-flat
    places:
      debian12: {variables: {REVISION: "1"}}
      rhel9: {layout: rpm, variables: {REVISION: 1.el9}}
    """


def _places(directory: Path, packages: str, repository: str = _REPOSITORY) -> dict[str, Place]:
    (directory / "vendor").mkdir()
    (directory / "vendor" / "repository.yml").write_text(dedent(repository))
    (directory / "vendor" / "packages.yml").write_text(dedent(packages))
    return {place.id: place for place in read_places(directory)}


def test_each_version_place_and_architecture_is_a_package(tmp_path: Path) -> None:
    places = _places(
        tmp_path,
        """\
        packages:
          - name: tool-@BRANCH@
            versions: [3:580.159.04-@REVISION@, 610.57.04-@REVISION@]
            depends: [lib (= @VERSION@)]
            files: {/opt/tool-@UPSTREAM@/info: "@SERIES@ @SERIES_NAME@ @ARCHITECTURE@ @LIBDIR@ me@example.org"}
          - {name: data, version: "1-1", architecture: all, places: [deb*]}
        """,
    )
    found = {
        name: [(package.name, package.version, package.architecture) for package in place.packages]
        for name, place in places.items()
    }
    assert found == {
        "vendor/debian12/x86_64": [
            ("tool-580", "3:580.159.04-1", "amd64"),
            ("tool-610", "610.57.04-1", "amd64"),
            ("data", "1-1", "all"),
        ],
        "vendor/debian12/sbsa": [
            ("tool-580", "3:580.159.04-1", "arm64"),
            ("tool-610", "610.57.04-1", "arm64"),
            ("data", "1-1", "all"),
        ],
        "vendor/rhel9/x86_64": [("tool-580", "3:580.159.04-1.el9", "amd64"), ("tool-610", "610.57.04-1.el9", "amd64")],
        "vendor/rhel9/sbsa": [("tool-580", "3:580.159.04-1.el9", "arm64"), ("tool-610", "610.57.04-1.el9", "arm64")],
    }
    first = places["vendor/debian12/sbsa"].packages[0]
    assert first.relations == {"depends": ("lib (= 3:580.159.04-1)",)}
    assert first.files == {
        "/opt/tool-580.159.04/info": File("content", "580.159 580-159 sbsa /usr/lib/aarch64-linux-gnu me@example.org")
    }
    assert places["vendor/rhel9/x86_64"].url == "https://vendor.example/repos/rhel9/x86_64"


def test_what_a_format_states_for_itself_replaces_and_files_are_added(tmp_path: Path) -> None:
    places = _places(
        tmp_path,
        """\
        packages:
          - name: tool
            version: "1-1"
            depends: [libc6]
            files: {/a: "", /b: ""}
            rpm: {depends: [glibc], files: {/b: changed, /c: ""}}
        """,
    )
    for_rpm = places["vendor/rhel9/x86_64"].packages[0]
    for_deb = places["vendor/debian12/x86_64"].packages[0]
    assert (for_rpm.relations, [*for_rpm.files], for_rpm.files["/b"].value) == (
        {"depends": ("glibc",)},
        ["/a", "/b", "/c"],
        "changed",
    )
    assert (for_deb.relations, [*for_deb.files]) == ({"depends": ("libc6",)}, ["/a", "/b"])


@pytest.mark.parametrize(
    ("packages", "words"),
    [
        ("packages: [{name: tool, dependss: [x]}]", "dependss"),
        ("packages: [{name: tool, files: {/a: {content: x, link: y}}}]", "is one of"),
        ("packages: [{version: 1-1}]", "name"),
    ],
)
def test_a_mistake_is_refused_with_the_file(tmp_path: Path, packages: str, words: str) -> None:
    with pytest.raises(DescriptionError, match=words) as refused:
        _places(tmp_path, packages)
    assert "packages.yml" in str(refused.value)


def test_the_projects_own_descriptions_are_understood() -> None:
    places = read_places()
    assert {place.layout for place in places} == {"apt-flat", "apt-dists", "rpm", "files"}
    for place in places:
        names = [(package.name, package.version, package.architecture) for package in place.packages]
        assert len(names) == len(set(names)), place.id
        text = repr(place.packages)
        assert "@VERSION@" not in text
        assert "@UPSTREAM@" not in text


def _package(**changes: object) -> Package:
    values: dict[str, object] = {
        "name": "tool",
        "version": "1:2.0-1",
        "architecture": "amd64",
        "summary": "A tool",
        "relations": {},
        "scripts": {},
        "files": {},
        **changes,
    }
    return Package(**values)  # type: ignore[arg-type]


def _ask_dpkg(*arguments: str | Path) -> str:
    return subprocess.run(["dpkg-deb", *map(str, arguments)], check=True, capture_output=True, text=True).stdout


def test_a_deb_is_read_by_dpkg_as_it_was_described(tmp_path: Path) -> None:
    package = _package(relations={"depends": ("a", "b (>= 2)")}, scripts={"postinst": "true"})
    files = {
        "/etc/tool.conf": Content(b"x\n"),
        "/usr/bin/tool": Content(b"#!/bin/sh\n", 0o755),
        "/usr/bin/t": Content(link="tool"),
    }
    built = tmp_path / deb.file_name(package)
    deb.build(package, files, built)
    assert built.name == "tool_2.0-1_amd64.deb"
    assert _ask_dpkg("--field", built, "Version", "Depends") == "Version: 1:2.0-1\nDepends: a, b (>= 2)\n"
    control = tmp_path / "control"
    _ask_dpkg("--control", built, control)
    assert (control / "conffiles").read_text() == "/etc/tool.conf\n"
    assert (control / "postinst").stat().st_mode & 0o777 == 0o755
    listed = {words[-1]: words for words in map(str.split, _ask_dpkg("--contents", built).splitlines())}
    assert (listed["./usr/bin/tool"][0], listed["./usr/bin/tool"][1]) == ("-rwxr-xr-x", "root/root")
    assert listed["tool"][5:7] == ["./usr/bin/t", "->"]
    assert listed["./usr/bin/"][0] == "drwxr-xr-x"
    again = tmp_path / "again.deb"
    deb.build(package, files, again)
    assert again.read_bytes() == built.read_bytes(), "the same input makes the same file"


@pytest.mark.parametrize(
    ("debian", "expected"),
    [
        ("a", "a"),
        ("a (>= 1.0)", "a >= 1.0"),
        ("a (<< 2)", "a < 2"),
        ("a (= 3:1-1) | b", "(a = 3:1-1 or b)"),
        ("nvidia-kmod = 3:580", "nvidia-kmod = 3:580"),
    ],
)
def test_relations_become_those_of_rpm(debian: str, expected: str) -> None:
    assert rpm.relation(debian) == expected


def test_a_stream_has_the_packages_of_its_names_and_versions(tmp_path: Path) -> None:
    place = _places(
        tmp_path,
        """\
        packages:
          - {name: driver, versions: [3:580.1-1.el9, 3:610.1-1.el9]}
          - {name: other, version: 580.1-1.el9}
        modules:
          - name: nvidia
            stream: 580-open
            versions: ["580.*"]
            packages: [driver]
            profiles: {default: [driver]}
            default: true
        """,
    )["vendor/rhel9/x86_64"]
    stream, defaults = yaml.safe_load_all(rpm.modules_document(place.packages, place.streams))
    assert stream["data"]["artifacts"]["rpms"] == ["driver-3:580.1-1.el9.x86_64"]
    assert stream["data"]["profiles"] == {"default": {"rpms": ["driver"]}}
    assert (stream["data"]["stream"], defaults["data"]["stream"]) == ("580-open", "580-open")


@pytest.mark.parametrize(
    ("name", "opened"), [("a.tar.gz", gzip.decompress), ("a.tgz", gzip.decompress), ("a.tar.xz", lzma.decompress)]
)
def test_an_archive_is_compressed_as_its_name_states(name: str, opened: object) -> None:
    file = File(
        "tar", {"top/lib.so": File("content", "x"), "../escape": File("content", "y"), "/absolute": File("link", "z")}
    )
    data = Materializer(lambda _name, _armored: b"", {}).content(file, "amd64", name).data
    assert callable(opened)
    with tarfile.open(fileobj=io.BytesIO(opened(data))) as archive:
        names = archive.getnames()
    # Hostile names are stored unchanged too.
    assert [member for member in names if member != "top"] == ["top/lib.so", "../escape", "/absolute"]
