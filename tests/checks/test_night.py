# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`make night`: the parts that run next, and their record."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from testbed import __main__, night, parts, settings, suite
from testbed.night import Passed
from testbed.progress import CommandError

NOW = datetime(2026, 11, 29, 2, 17, tzinfo=UTC)
OLD = Passed("2026-11-20T02:17Z", "aaaaaaaa", 30.0)
NEW = Passed("2026-11-28T02:17Z", "bbbbbbbb", 30.0)
PARTS = tuple(parts.Part(name, "test-long", (), minutes=30.0) for name in ("new", "never", "old"))


def outcome(part: parts.Part, status: int = 0, closing: str = "3 passed in 90.00s") -> suite.Outcome:
    return suite.Outcome(part, status, 90.0, 60.0, closing, 3, (), ())


@pytest.mark.parametrize(
    ("hours", "names"),
    [
        # Two processors that are busy for 80 % of an hour: three parts of half an hour, or two.
        (1.0, ["never", "old", "new"]),
        (0.7, ["never", "old"]),
        # At least one, or it would never have its turn.
        (0.01, ["never"]),
    ],
)
def test_those_that_have_waited_longest_run(hours: float, names: list[str]) -> None:
    chosen = night.chosen(PARTS, {"new": NEW, "old": OLD}, hours, 2)
    assert [part.name for part in chosen] == names


def test_a_part_that_does_not_fit_lets_a_shorter_one_run() -> None:
    (long, short) = (parts.Part(name, "test-long", ()) for name in ("long", "short"))
    first = parts.Part("first", "test-long", (), minutes=30.0)
    record = {"long": Passed(OLD.at, "", 500.0), "short": Passed(NEW.at, "", 5.0)}
    assert [part.name for part in night.chosen((long, short, first), record, 1.0, 2)] == ["first", "short"]


@pytest.mark.parametrize(("status", "closing"), [(1, "1 failed, 2 passed in 90.00s"), (0, "3 skipped in 0.10s")])
def test_what_failed_or_was_skipped_keeps_its_place(status: int, closing: str) -> None:
    record = {"old": OLD}
    assert night.with_outcome(record, outcome(PARTS[2], status, closing), NOW, "cccccccc") == record
    assert night.with_outcome({}, outcome(PARTS[1], status, closing), NOW, "cccccccc") == {}


def test_every_part_has_its_turn_within_a_few_nights() -> None:
    every = parts.parts_of("test-long")
    record: night.Record = {}
    for day in range(1, 29):
        for part in night.chosen(every, record, 4.0, 2):
            record = night.with_outcome(record, outcome(part), NOW.replace(day=day), "cccccccc")
    assert record.keys() == {part.name for part in every}
    assert min(passed.at for passed in record.values()) > "2026-11-25"


def test_the_record_is_kept_while_the_parts_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "kept" / "night.json"
    monkeypatch.setattr(parts, "PARTS", PARTS)
    monkeypatch.setattr(suite, "run_parts", lambda chosen, _prepared, ended: [ended(outcome(part)) for part in chosen])
    monkeypatch.setattr(__main__, "_packages", lambda _optional: None)
    monkeypatch.setattr(__main__, "_environment", lambda: None)
    monkeypatch.setattr(settings, "CACHE", tmp_path)
    __main__.run_night(["--hours", "0.7", "--record", str(path)])
    record = night.read(path)
    assert [*record] == ["never", "new"]
    assert {passed.minutes for passed in record.values()} == {1.5}
    assert capsys.readouterr().out.splitlines()[-3:][0].split()[:2] == ["old", "never"]
    __main__.run_night(["--hours", "0.1", "--record", str(path)])
    assert night.read(path).keys() == {"never", "new", "old"}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a": 1}', '{"a": {"at": "x"}}'])
def test_a_damaged_record_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "night.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CommandError, match=r"night\.json is no record of the parts that passed; remove it"):
        night.read(path)
