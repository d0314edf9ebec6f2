# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Refused archives; unpacked files always stay in their directory."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from ansible_collections.gpu.fleet.plugins.module_utils._files import archive
from ansible_collections.gpu.fleet.plugins.module_utils._files.archive import ArchiveError, Content, Member
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.cuda import archives

FILE, LINK, HARD_LINK = "file", "link", "hard link"


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ([Member("/etc/passwd", FILE)], ["/etc/passwd", "absolute"]),
        ([Member("top/../../etc/passwd", FILE)], ["top/../../etc/passwd", "out of the directory"]),
        ([Member("..", "directory")], ["..", "out of the directory"]),
        ([Member("top/null", "device node")], ["top/null", "device node"]),
        ([Member("top/pipe", "named pipe")], ["top/pipe", "named pipe"]),
        ([Member("top/what", "member of unknown type")], ["top/what", "unknown"]),
        ([Member("top/lib", LINK, "/etc")], ["top/lib", "/etc"]),
        ([Member("top/lib", LINK, "")], ["top/lib", "nothing"]),
        ([Member("top/lib", LINK, "../..")], ["top/lib", "out of the directory"]),
        ([Member("top/lib", LINK, "../other/lib")], ["top/lib", "out of the directory"]),
        ([Member("top/lib/x", HARD_LINK, "../etc/shadow")], ["top/lib/x", "out of the directory"]),
        # Lexically no link leaves the directory; the second does once the first is followed.
        ([Member("top/a/b/c", LINK, "../.."), Member("top/out", LINK, "a/b/c/../secret")], ["top/out"]),
        ([Member("top/a", LINK, "b"), Member("top/b", LINK, "a")], ["top/a"]),
        # A member below a link would be written to the link's target.
        ([Member("top/lib", LINK, "lib64"), Member("top/lib/x", FILE)], ["top/lib/x", "below top/lib"]),
        ([Member("top/x", FILE), Member("top/x/y", FILE)], ["top/x/y", "below top/x"]),
        ([Member("top/x", FILE), Member("top/./x", FILE)], ["twice"]),
        ([Member("one/x", FILE), Member("two/x", FILE)], ["one", "two", "one top-level directory"]),
        ([Member("x", FILE)], ["x", "top"]),
        ([Member("top", "directory")], ["empty"]),
        ([], ["nothing"]),
    ],
)
def test_an_unsafe_archive_is_refused_by_name(members: list[Member], words: list[str]) -> None:
    with pytest.raises(ArchiveError) as refused:
        archive.layout(members)
    assert [word for word in words if word not in str(refused.value)] == []


def test_all_that_is_refused_is_counted() -> None:
    with pytest.raises(ArchiveError, match=r"; and 2 more$"):
        archive.layout([Member(f"/{number}", FILE) for number in range(5)])


def test_the_directory_at_the_top_is_left_out_and_links_stay_as_they_are() -> None:
    entries = archive.layout(
        [
            Member("./cuda", "directory"),
            Member("./cuda/lib64/libcudnn.so.7", LINK, "libcudnn.so.7.6.5"),
            Member("./cuda/lib64/libcudnn.so.7.6.5", FILE, size=10, executable=True),
            Member("./cuda/lib", LINK, "lib64"),
            Member("./cuda/targets/x/y", LINK, "../../lib64/libcudnn.so.7"),
        ]
    )
    assert [(entry.path, entry.target, entry.executable) for entry in entries] == [
        ("lib", "lib64", False),
        ("lib64/libcudnn.so.7", "libcudnn.so.7.6.5", False),
        ("lib64/libcudnn.so.7.6.5", None, True),
        ("targets/x/y", "../../lib64/libcudnn.so.7", False),
    ]


def test_a_hard_link_becomes_a_link_to_the_same_file() -> None:
    entries = archive.layout([Member("top/a/one", FILE), Member("top/b/two", HARD_LINK, "top/a/one")])
    assert [(entry.path, entry.target) for entry in entries] == [("a/one", None), ("b/two", "../a/one")]


def test_unpacking_gives_what_was_packed_and_ignores_whose_it_was(tmp_path: Path) -> None:
    path = tmp_path / "archive.tgz"
    checksum = archives.write(
        path,
        archives.member("cuda/bin/tool", "#!/bin/sh\n", mode=0o6755),
        archives.member("cuda/text", "x", mode=0o600),
        archives.link("cuda/link", "text"),
    )
    record = archive.unpack(str(path), str(tmp_path / "directory"), checksum)
    directory = tmp_path / "directory"
    assert (directory / "bin/tool").read_text() == "#!/bin/sh\n"
    assert [f"{(directory / name).stat().st_mode & 0o7777:o}" for name in ("bin/tool", "text")] == ["755", "644"]
    assert (directory / "text").stat().st_uid == os.getuid()
    assert (directory / "link").readlink() == Path("text")
    assert archive.read_record(str(directory)) == record
    assert archive.differences(archive.observe(str(directory)), record.contents) == ()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"archive": "x"}',
        '{"archive": "x", "contents": {"a": 1}}',
        '{"archive": "x", "contents": {"a": {}}}',
    ],
)
def test_a_damaged_record_is_no_record(text: str) -> None:
    with pytest.raises(ArchiveError):
        archive.parse(text)


def test_the_loader_looks_for_names_with_the_number_of_the_interface() -> None:
    content = Content("0" * 64, 0o755, None)
    names = """
        lib/libcudnn.so lib/libcudnn.so.9 lib/libcudnn.so.9.14.0 lib/libcudnn_ops.so.9 lib/stubs/libcuda.so.1
        targets/x86_64-linux/lib/libnvinfer.so.10 lib/libcudnn_static.a include/cudnn.so.9
    """
    assert archive.loaded_names(dict.fromkeys(names.split(), content)) == {
        "libcudnn.so.9": "lib/libcudnn.so.9",
        "libcudnn_ops.so.9": "lib/libcudnn_ops.so.9",
        "libnvinfer.so.10": "targets/x86_64-linux/lib/libnvinfer.so.10",
    }


PARTS = st.sampled_from(["a", "b", "c", "..", ".", "", "lib"])
PATHS = st.lists(PARTS, min_size=1, max_size=5).map("/".join)


@given(
    st.lists(
        st.tuples(st.sampled_from([FILE, LINK, HARD_LINK, "directory"]), PATHS, PATHS),
        min_size=1,
        max_size=6,
    )
)
@settings(max_examples=400, deadline=None)
def test_whatever_is_unpacked_stays_in_its_directory(members: list[tuple[str, str, str]]) -> None:
    """Random archives of a few short paths, whose links interact: refused, or no path leads out of the directory."""
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch, "place")
        place.mkdir()
        path = Path(scratch, "archive.tgz")
        packed = []
        for kind, name, target in members:
            if kind == LINK:
                packed.append(archives.link(f"top/{name}", target))
            elif kind == HARD_LINK:
                packed.append(archives.hard_link(f"top/{name}", f"top/{target}"))
            elif kind == FILE:
                packed.append(archives.member(f"top/{name}", "x"))
        checksum = archives.write(path, *packed)
        try:
            archive.unpack(str(path), str(place / "directory"), checksum)
        except ArchiveError:
            assert list(place.iterdir()) == []
            return
        assert [entry.name for entry in place.iterdir()] == ["directory"]
        real = os.path.realpath(place / "directory")
        for parent, directories, files in os.walk(place / "directory"):
            for name in [*directories, *files]:
                leads_to = os.path.realpath(f"{parent}/{name}")
                assert leads_to == real or leads_to.startswith(f"{real}/"), f"{name} leads to {leads_to}"
