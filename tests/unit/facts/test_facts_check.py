# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make facts-check` on stored feeds: it is silent where the tables agree, and names what they have not."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.gpu.fleet.plugins.module_utils._knowledge import branches, cuda, gpus, vulnerabilities
from ansible_collections.gpu.fleet.plugins.module_utils._knowledge.source import Source
from ansible_collections.gpu.fleet.plugins.module_utils._knowledge.vulnerabilities import Bulletin

from testbed import __main__ as testbed_main
from testbed import bulletins, facts_check, release

FEEDS = Path(__file__).parent / "feeds"
TODAY = "2026-11-24"


def check(**changed: Callable[[bytes], bytes]) -> tuple[list[str], list[str]]:
    """The result for the stored feeds, some of them changed; names are those of the files up to the first dot."""

    def read(feed: facts_check.Feed) -> bytes:
        change = changed.get(feed.file.partition(".")[0].replace("-", "_"))
        content = (FEEDS / feed.file).read_bytes()
        return change(content) if change else content

    return facts_check.check(read, TODAY)


def test_the_tables_agree_with_the_stored_feeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert check() == ([], [])
    assert facts_check.main([f"--feeds={FEEDS}", f"--today={TODAY}"]) == 0
    assert "the tables agree" in capsys.readouterr().out


def test_a_branch_that_the_table_has_not_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = tuple(branch for branch in branches.BRANCHES if branch.number != 620)
    monkeypatch.setattr(branches, "BRANCHES", rows)
    monkeypatch.setattr(branches, "KNOWN_BRANCHES", frozenset(branch.number for branch in rows))
    assert facts_check.main([f"--feeds={FEEDS}", f"--today={TODAY}"]) == 1
    printed = capsys.readouterr().out
    assert "new: driver branch 620 (lts branch) [https://docs.nvidia.com/" in printed
    assert "new: driver branch 620 (nvidia-open 620.70.06-1ubuntu1)" in printed


def test_versions_that_the_tables_have_not_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        cuda, "DRIVER_OF_CUDA", {name: driver for name, driver in cuda.DRIVER_OF_CUDA.items() if name != "13.5"}
    )
    monkeypatch.setattr(cuda, "CUDNN", cuda.CUDNN[:-1])
    found, failures = check()
    assert failures == []
    assert [line.partition(" [")[0] for line in found] == [
        "new: CUDA 13.5 (cuda-toolkit-13-5)",
        "new: CUDA 13.5 (on PyPI)",
        "new: cuDNN 9.12 (on PyPI)",
        "new: cuDNN 9.28 (on PyPI)",
    ]


def edited(change: Callable[[Any], None]) -> Callable[[bytes], bytes]:
    def edit(content: bytes) -> bytes:
        document = json.loads(content)
        change(document)
        return json.dumps(document).encode()

    return edit


def test_releases_that_nobody_read_are_named() -> None:
    found, _failures = check(
        dcgm_exporter=edited(lambda tags: tags.insert(0, {"tag_name": "4.8.0-4.10.0"})),
        k8s_device_plugin=edited(lambda tags: tags.insert(0, {"tag_name": "v0.21.0-rc.1", "prerelease": True})),
    )
    (line,) = found
    assert line.startswith("new: NVIDIA/dcgm-exporter 4.10.0: read its notes, the table has 4.9.0")


def test_what_is_missing_changed_or_ended_is_named() -> None:
    found, _failures = check(releases=edited(lambda document: document.pop("620")))
    assert [line.partition(" [")[0] for line in found] == [
        "missing: driver branch 620, which the table has until 2029-09"
    ]
    found, _failures = check(releases=edited(lambda document: document["615"].update(type="production branch")))
    assert [line.partition(" [")[0] for line in found] == [
        "changed: driver branch 615 is a production branch, the table has a new feature branch"
    ]
    content = (FEEDS / "releases.json").read_bytes()
    ended = [str(one) for one in facts_check.compare_driver_releases(content, "2027-04-01")]
    assert len(ended) == 1
    assert ended[0].startswith("ended: driver branch 595 in 2027-03: read https://docs.nvidia.com/")


def test_an_index_may_be_compressed() -> None:
    assert check(ubuntu2404=gzip.compress) == ([], [])


def test_the_branches_of_ubuntus_real_index_are_known() -> None:
    index = Path(__file__).parents[1] / "real_indexes" / "noble.Packages.xz"
    assert list(facts_check.compare_packages(lzma.decompress(index.read_bytes()), TODAY)) == []


@pytest.mark.parametrize(
    ("feed", "content"),
    [
        ("releases", b"<html>moved</html>"),
        ("releases", b"{}"),
        ("releases", b'{"latest": {"type": "x"}}'),
        ("releases", b"[]"),
        ("ubuntu2404", b"<html>moved</html>"),
        ("ubuntu2404", b"\x1f\x8bnot gzip"),
        ("ubuntu2404", b""),
        ("nvidia_cuda_crt", b'{"message": "Not Found"}'),
        ("dcgm_exporter", b'{"message": "API rate limit exceeded"}'),
    ],
)
def test_a_feed_that_is_none_is_a_failure_and_not_an_agreement(feed: str, content: bytes) -> None:
    found, failures = check(**{feed: lambda _stored: content})
    assert found == []
    assert len(failures) == 1


def test_a_feed_that_cannot_be_read_is_a_failure(tmp_path: Path) -> None:
    assert facts_check.main([f"--feeds={tmp_path}"]) == 2


def test_make_runs_it_in_a_process_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(testbed_main, "_tools", lambda: None)
    testbed_main.facts_check([f"--feeds={FEEDS}", f"--today={TODAY}"])
    assert "the tables agree" in capfd.readouterr().out


def test_every_row_has_an_address_and_a_date() -> None:
    tables = facts_check.sources()
    assert {name.partition(" ")[0] for name in tables} == {
        path.name for path in facts_check.KNOWLEDGE.glob("*.py") if path.name != "source.py"
    }
    for name, rows in tables.items():
        for source in rows:
            assert source.url.startswith("https://"), name
            assert date.fromisoformat(source.read) <= date.today(), (name, source)


def test_the_oldest_row_of_a_table_decides_whether_it_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = Source("https://old.example/", "2026-08-01"), Source("https://new.example/", "2026-11-01")
    monkeypatch.setattr(facts_check, "sources", lambda: {"gpus.py CHIPS": [new, old, new], "cuda.py CUDA": [new]})
    assert facts_check.outdated(date(2026, 10, 30)) == []
    assert facts_check.outdated(date(2026, 10, 31)) == [
        "gpus.py CHIPS was last compared with https://old.example/ of 2026-08-01, 91 days ago"
    ]
    assert facts_check.main(["--outdated", "--today=2026-10-30"]) == 0
    assert facts_check.main(["--outdated", "--today=2026-10-31"]) == 1


# Bulletins


def without(*bulletins: str) -> tuple[Bulletin, ...]:
    return tuple(row for row in vulnerabilities.BULLETINS if row.number not in bulletins)


def test_bulletins_that_the_table_has_not_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vulnerabilities, "BULLETINS", without("5861", "5850", "5857", "5520"))
    found, failures = check()
    assert failures == []
    assert [line.partition(":")[0] + line.partition("bulletin")[2][:5] for line in found] == [
        "new 5520",
        "new 5861",
        "new 5857",
        "new 5850",
    ]
    assert "bulletin 5861 of 2026-09-30, updated 2026-09-30: Security Bulletin: GPU Display Driver" in found[1]


def test_a_bulletin_that_was_published_again_is_named() -> None:
    def published(index: bytes) -> bytes:
        return index.replace(b"| 2026-05-19 | 2026-05-21 |", b"| 2026-05-19 | 2026-11-02 |")

    (line,) = check(product_security_2026=published)[0]
    assert line.startswith("changed: bulletin 5821 of 2026-05-19, updated 2026-11-02")


@pytest.mark.parametrize("number", ["5821", "5850", "5857", "5861"])
def test_the_rows_are_those_of_the_documents(number: str) -> None:
    document = json.loads((FEEDS / f"{number}.json").read_text(encoding="utf-8"))
    assert bulletins.bulletin(document, "2026-09-30") == [
        one for one in vulnerabilities.BULLETINS if one.number == number
    ]


@pytest.mark.parametrize("document", [{}, [], {"document": {"tracking": {}}}, None])
def test_what_is_no_advisory_gives_no_row(document: Any) -> None:
    with pytest.raises(bulletins.BulletinError):
        bulletins.bulletin(document, TODAY)


def test_the_table_is_as_it_would_be_written() -> None:
    text = bulletins.TABLE.read_text(encoding="utf-8")
    assert bulletins.written(text, vulnerabilities.BULLETINS) == text


def test_write_adds_the_missing_rows_and_their_dates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Out of a table without three bulletins; of the year whose index cannot be read, nothing is dated."""
    table, stored = tmp_path / "vulnerabilities.py", tmp_path / "feeds"
    shutil.copytree(FEEDS, stored)
    (stored / "product-security-2023.md").write_text("<html>moved</html>")
    rows = without("5861", "5850", "5857")
    monkeypatch.setattr(vulnerabilities, "BULLETINS", rows)
    table.write_text(bulletins.written(bulletins.TABLE.read_text(encoding="utf-8"), rows))
    monkeypatch.setattr(bulletins, "TABLE", table)
    monkeypatch.setattr(facts_check, "reload", lambda _module: None)
    assert facts_check.main([f"--feeds={stored}", "--today=2026-11-24", "--write"]) == 3
    assert "not written: https://raw.githubusercontent.com/" in capsys.readouterr().err
    namespace: dict[str, Any] = {"__name__": vulnerabilities.__name__, "__package__": vulnerabilities.__package__}
    exec(compile(table.read_text(), str(table), "exec"), namespace)
    found = {(row.product, row.number): row for row in namespace["BULLETINS"]}
    assert found["driver", "5861"].fixed_in["580"] == "580.178.04"
    assert {row.read for row in found.values() if row.date[:4] == "2026"} == {"2026-11-24"}
    assert {row.read for row in found.values() if row.date[:4] == "2023"} == {"2026-08-18"}
    assert len(found) == len(rows) + 3


def test_gpus_that_no_row_has_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "CHIPS", tuple(chip for chip in gpus.CHIPS if chip.name != "GR100"))
    monkeypatch.setattr(gpus, "WITHOUT_CAPABILITY", ())
    assert [line.partition(" [https")[0] for line in check()[0]] == [
        "new: GPU 3000  GR100 [Reserved Dev ID A]",
        "new: GPU 3021  GR100 [PCIe Faber]",
        "new: GPU 3040  GR100 [Reserved Dev ID B]",
        *(f"new: GPU {name}" for name in ("30c0  GR102", "3200  GB112", "3224  GB112", "323e  GB112", "3340  GB120")),
    ]


def test_a_difference_and_a_feed_that_was_not_read_are_distinguished(tmp_path: Path) -> None:
    shutil.copytree(FEEDS, tmp_path, dirs_exist_ok=True)
    (tmp_path / "moby.json").write_text('[{"tag_name": "docker-v29.6.0"}]')
    arguments = [f"--feeds={tmp_path}", f"--today={TODAY}"]
    assert facts_check.main(arguments) == 1
    (tmp_path / "slurm.json").unlink()
    assert facts_check.main(arguments) == 3
    (tmp_path / "moby.json").write_text('[{"tag_name": "docker-v29.5.1"}]')
    assert facts_check.main(arguments) == 2


def test_make_release_stops_at_a_table_that_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[list[str]] = []

    def show(argv: Sequence[object]) -> None:
        shown.append([str(word) for word in argv])
        raise SystemExit(1)

    monkeypatch.setattr(testbed_main, "_tools", lambda: None)
    monkeypatch.setattr(testbed_main, "_show", show)
    monkeypatch.setattr(release, "build", lambda _directory: pytest.fail("a release was built"))
    with pytest.raises(SystemExit):
        testbed_main.make_release()
    assert [argv[-3:] for argv in shown] == [["-m", "testbed.facts_check", "--outdated"]]


WORKFLOW = yaml.safe_load((Path(__file__).parents[3] / ".github/workflows/facts.yml").read_text(encoding="utf-8"))


def test_the_workflow_runs_once_a_week() -> None:
    ((minute, hour, day, month, weekday),) = (one["cron"].split() for one in WORKFLOW["on"]["schedule"])
    assert (day, month) == ("*", "*")
    assert all(field.isdigit() for field in (minute, hour, weekday))
    assert WORKFLOW["permissions"]["issues"] == "write"


@pytest.mark.parametrize(
    ("status", "already", "command"), [(0, "", ""), (1, "", "create"), (3, "17", "comment 17"), (2, "", "")]
)
def test_the_workflow_reports_a_difference_as_an_issue(status: int, already: str, command: str, tmp_path: Path) -> None:
    """Its steps as bash runs them, with a make that finds something and a gh that keeps what it is given."""
    programs = {
        "make": f"[ $1 = facts-check ] || exit 9; echo 'new: driver branch 625'; exit {status}",
        "gh": f"""if [ $2 = list ]; then printf '%s' '{already}'
else echo "$@" >> gh.log; for word; do if [ -e "$word" ]; then cat "$word" >> gh.log; fi; done; fi""",
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "GITHUB_OUTPUT": str(tmp_path / "output")}
    outputs: dict[str, str] = {}
    failed = False
    for step in [one for one in WORKFLOW["jobs"]["facts"]["steps"] if "run" in one]:
        condition = step.get("if", "'' == ''")
        for name, value in outputs.items():
            condition = condition.replace(f"steps.compare.outputs.{name}", repr(value))
        if eval(condition.replace("||", "or").replace("&&", "and")):  # comparisons of strings
            text = step["run"].replace("${{ steps.compare.outputs.status }}", outputs.get("status", ""))
            failed |= (
                subprocess.run(["bash", "-e", "-c", text], cwd=tmp_path, env=environment, check=False).returncode != 0
            )
        outputs = dict(line.split("=", 1) for line in (tmp_path / "output").read_text().splitlines())
    assert failed is (status >= 2)
    given = (tmp_path / "gh.log").read_text() if (tmp_path / "gh.log").exists() else ""
    assert outputs == {"status": str(status)}
    assert given.startswith(f"issue {command} " if command else "")
    assert ("    new: driver branch 625\n" in given) is bool(command)
