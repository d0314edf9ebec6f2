# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module daemon_json, run as Ansible runs it, on daemon.json files as found on hosts."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.gpu.fleet.plugins.module_utils._common.atomic_write import atomic_write
from ansible_collections.gpu.fleet.plugins.module_utils._files import daemon_json as merging
from ansible_collections.gpu.fleet.plugins.module_utils._files import daemon_json_run
from ansible_collections.gpu.fleet.plugins.modules import daemon_json
from hypothesis import given
from hypothesis import strategies as st

RUNTIME = {"runtimes": {"nvidia": {"path": "nvidia-container-runtime", "args": []}}}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "docker" / "daemon.json"


@pytest.fixture
def run(place: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run the module on the file; return its result."""

    def call(check_mode: bool = False, **arguments: Any) -> dict[str, Any]:
        given_arguments = {"path": str(place), "executable": "/nonexistent/dockerd", **arguments}
        with (
            patch_module_args({**given_arguments, "_ansible_check_mode": check_mode, "_ansible_remote_tmp": "/tmp"}),
            pytest.raises(SystemExit),
        ):
            daemon_json.main()
        result: dict[str, Any] = json.loads(capsys.readouterr().out)
        return result

    return call


def lay(place: Path, text: str) -> None:
    place.parent.mkdir(exist_ok=True)
    place.write_text(text)


@pytest.mark.parametrize(
    ("before", "options", "after"),
    [
        pytest.param(None, {"debug": True}, {"debug": True}, id="absent"),
        pytest.param("", {"debug": True}, {"debug": True}, id="empty"),
        pytest.param(" \n", {"debug": True}, {"debug": True}, id="blank"),
        pytest.param('{"mtu": 1400}', {"debug": True}, {"mtu": 1400, "debug": True}, id="unmanaged key"),
        pytest.param(
            '{"features": {"containerd-snapshotter": true}}',
            {"features": {"cdi": True}},
            {"features": {"containerd-snapshotter": True, "cdi": True}},
            id="unmanaged features",
        ),
        pytest.param(
            '{"runtimes": {"kata": {"path": "kata-runtime"}}}',
            RUNTIME,
            {"runtimes": {"kata": {"path": "kata-runtime"}, **RUNTIME["runtimes"]}},
            id="unmanaged runtimes",
        ),
        pytest.param('{"dns": ["1.1.1.1"]}', {"dns": ["9.9.9.9"]}, {"dns": ["9.9.9.9"]}, id="a list is replaced"),
        pytest.param('{"mtu": 1}', {"mtu": True}, {"mtu": True}, id="true is not 1"),
        pytest.param('{"log-opts": "x"}', {"log-opts": {"a": "b"}}, {"log-opts": {"a": "b"}}, id="another type"),
    ],
)
def test_options_are_merged_and_unmanaged_ones_stay(
    run: Any, place: Path, before: str | None, options: dict[str, Any], after: dict[str, Any]
) -> None:
    if before is not None:
        lay(place, before)
    predicted = run(check_mode=True, options=options)
    assert (place.read_text() if place.exists() else None) == before
    done = run(options=options)
    assert json.loads(place.read_text()) == after == done["options"]
    assert (predicted["changed"], predicted["diff"]) == (True, done["diff"])
    assert run(options=options)["changed"] is False


@pytest.mark.parametrize(
    ("text", "ours", "planned"),
    [
        (None, True, ('{\n    "debug": true\n}\n', [])),
        ('{"debug":true}', False, (None, [])),
        ('{"debug": false}', True, ('{\n    "debug": true\n}\n', ["debug"])),
    ],
)
def test_plan_has_a_text_only_where_something_changes(
    text: str | None, ours: bool, planned: tuple[str | None, list[str]]
) -> None:
    found = daemon_json_run.plan(daemon_json_run.OptionsRequest("/x", {"debug": True}, {}, ours), text)
    assert (found.text, [conflict.place for conflict in found.conflicts]) == planned
    assert found.options == {"debug": True}


@pytest.mark.parametrize(
    "text", ['{"runtimes": {', "[]", '"text"', "{'a': 1}", '{"a": 1,}', "// c\n{}", "\ufeff\ufeff{}"]
)
def test_a_file_that_is_no_json_object_is_refused_and_left_untouched(run: Any, place: Path, text: str) -> None:
    lay(place, text)
    result = run(options={"debug": True})
    assert result["failed"] is True
    assert str(place) in result["msg"] and "JSON" in result["msg"]
    assert place.read_text() == text
    assert [path.name for path in place.parent.iterdir()] == ["daemon.json"]


def test_a_fifo_is_refused_at_once(run: Any, place: Path) -> None:
    place.parent.mkdir()
    os.mkfifo(place)
    result = run(options={"debug": True})
    assert result["failed"] is True and f"{place}" in result["msg"] and "it is not a regular file" in result["msg"]


def test_a_file_as_desired_is_not_rewritten_in_another_format(run: Any, place: Path) -> None:
    lay(place, '{ "debug":true,"mtu":1400 }')
    assert run(options={"debug": True})["changed"] is False
    assert place.read_text() == '{ "debug":true,"mtu":1400 }'


def test_the_old_file_is_kept_next_to_the_new_one(run: Any, place: Path) -> None:
    lay(place, '{"mtu": 1400}')
    place.chmod(0o600)
    backup = run(options={"debug": True})["backup_file"]
    assert Path(backup).read_text() == '{"mtu": 1400}'
    assert place.stat().st_mode & 0o777 == 0o600, "the mode that its owner gave it"


def test_a_link_is_followed(run: Any, place: Path, tmp_path: Path) -> None:
    lay(place, "{}")
    real = place.rename(tmp_path / "elsewhere.json")
    place.symlink_to(real)
    run(options={"debug": True})
    assert place.is_symlink()
    assert json.loads(real.read_text()) == {"debug": True}


def test_a_conflict_is_named_with_both_values_and_nothing_written(run: Any, place: Path) -> None:
    text = '{"log-driver": "syslog", "features": {"cdi": false}, "mtu": 1400}'
    lay(place, text)
    desired = {"log-driver": "local", "features": {"cdi": True}, "mtu": 1400}
    result = run(options=desired, on_conflict="fail")
    assert result["failed"] is True
    reported = result["msg"]
    assert (
        'log-driver is "syslog", but "local" is requested' in reported
        and "features.cdi is false, but true is requested" in reported
    )
    assert "mtu" not in reported
    assert place.read_text() == text
    replaced = run(options=desired)
    assert replaced["conflicts"] == ["log-driver", "features.cdi"]
    assert json.loads(place.read_text()) == desired


def test_our_own_earlier_value_is_no_conflict(run: Any, place: Path) -> None:
    lay(place, '{"log-driver": "json-file"}')
    result = run(options={"log-driver": "local"}, earlier={"log-driver": "json-file"}, on_conflict="fail")
    assert (result["changed"], result["conflicts"]) == (True, [])


@pytest.mark.parametrize(
    ("text", "options", "after"),
    [
        ('{"debug": true, "mtu": 1}', ({"debug": True}, {}), {"mtu": 1}),
        ('{"debug": false}', ({"debug": True}, {}), {"debug": False}),
        (json.dumps(RUNTIME), (RUNTIME, {}), {}),
        (
            json.dumps({"runtimes": {"kata": {"path": "k"}, **RUNTIME["runtimes"]}}),
            (RUNTIME, {}),
            {"runtimes": {"kata": {"path": "k"}}},
        ),
        ('{"features": {"cdi": true, "x": true}}', ({"features": {"cdi": True}}, {}), {"features": {"x": True}}),
        ('{"a": {"b": 1, "c": 2}}', ({"a": {"b": 1, "c": 2}}, {"a": {"c": 2}}), {"a": {"c": 2}}),
    ],
)
def test_what_is_no_longer_desired_goes_where_it_is_still_ours(
    run: Any, place: Path, text: str, options: tuple[dict[str, Any], dict[str, Any]], after: dict[str, Any]
) -> None:
    earlier, desired = options
    lay(place, text)
    run(options=desired, earlier=earlier)
    # Without any option left the file is removed.
    assert (json.loads(place.read_text()) if place.exists() else {}) == after
    assert place.exists() == bool(after)


def _engine(directory: Path, script: str) -> str:
    """A mock of dockerd, which is called with `--validate --config-file PATH`."""
    path = directory / "dockerd"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_what_the_engine_refuses_is_not_written(run: Any, place: Path, tmp_path: Path) -> None:
    lay(place, "{}")
    message = 'echo "unable to configure the Docker daemon with file $3: unknown option: no-such" >&2; exit 1'
    result = run(options={"no-such": 1}, executable=_engine(tmp_path, message))
    assert result["failed"] is True
    assert result["msg"].endswith("unknown option: no-such; correct the options")
    assert [path.name for path in place.parent.iterdir()] == ["daemon.json"]
    assert place.read_text() == "{}"


@pytest.mark.parametrize(("text", "expected"), [("{bad", "is not valid JSON ("), ("[]", "is not a JSON object")])
def test_a_file_that_is_no_options_is_refused_with_what_to_do(run: Any, place: Path, text: str, expected: str) -> None:
    lay(place, text)
    result = run(options={"debug": True})
    assert result["failed"] is True and place.read_text() == text
    # Ansible appends the messages of an exception's causes to `msg`.
    assert str(result.get("exception", "")).count(expected) == 0
    assert result["msg"].count(expected) == 1
    assert result["msg"].startswith(f"{place} {expected}")
    assert result["msg"].endswith("; repair or remove it, dockerd cannot start with it either; then run again")


def test_a_byte_order_mark_is_dropped(run: Any, place: Path) -> None:
    """dockerd 23 and newer read such a file, older ones do not."""
    lay(place, '\ufeff{"mtu": 1}')
    assert run(options={"mtu": 1})["changed"] is False
    assert run(options={"debug": True})["options"] == {"mtu": 1, "debug": True}
    assert place.read_bytes().startswith(b"{")


@pytest.mark.parametrize(
    "given", [{"data-root": "docker"}, {"exec-root": "./run"}, {"data-root": ""}, {"data-root": None}]
)
@pytest.mark.parametrize("check_mode", [False, True])
def test_a_directory_of_the_daemon_that_is_not_absolute_is_refused(
    run: Any, place: Path, given: dict[str, Any], check_mode: bool
) -> None:
    result = run(options={"debug": True, **given}, check_mode=check_mode)
    ((name, value),) = given.items()
    assert result["failed"] is True and not place.exists()
    assert result["msg"] == f"options: {name} is {json.dumps(value)}; it has to be an absolute path"


def test_an_engine_that_cannot_check_is_no_obstacle(run: Any, place: Path, tmp_path: Path) -> None:
    old = _engine(tmp_path, 'echo "unknown flag: --validate" >&2; exit 125')
    assert run(options={"debug": True}, executable=old)["changed"] is True


FLAG = "specified both as a flag and in the configuration file: hosts: (from flag: [fd://], from file: [tcp://a])"


@pytest.mark.parametrize("check_mode", [False, True])
@pytest.mark.parametrize(
    "arguments", ["-H fd:// --debug", "-H fd:// $OPTIONS", "", "--config-file=/srv/d.json -H fd://"]
)
def test_an_option_that_a_drop_in_gives_the_engine_as_well_is_refused_before_the_change(
    run: Any, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, arguments: str, check_mode: bool
) -> None:
    """The engine does not start with both; what its arguments are elsewhere is not known, and refuses nothing."""
    lay(place, "{}")
    engine = _engine(tmp_path, f'case "$*" in "-H fd:// --debug --validate"*) echo "{FLAG}" >&2; exit 1;; esac')
    program = tmp_path / "systemctl"
    program.write_text(
        f"#!/bin/sh\necho 'ExecStart={{ path={engine} ; argv[]={engine} {arguments} ; ignore_errors=no ; }}'\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    result = run(options={"hosts": ["tcp://a"]}, executable=engine, check_mode=check_mode)
    is_refused = arguments.endswith("--debug")
    assert result.get("failed", False) is is_refused, result
    assert not is_refused or f"{FLAG} (the flag is in `systemctl cat docker.service`)" in result["msg"]
    assert not is_refused or place.read_text() == "{}"


@pytest.mark.parametrize(
    ("text", "is_refused"),
    [
        ('# options\nOPTIONS="--debug"\n', True),
        ("OPTIONS=--debug", True),
        ("  OPTIONS='--debug'", True),
        ("OPTIONS=", False),
        ("#OPTIONS=--debug", False),
        ("OPTIONS=--config-file=/srv/d.json --debug", False),
        ("\xff", False),
        (None, False),
    ],
)
def test_options_of_the_units_environment_are_the_engines_too(
    run: Any, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, text: str | None, is_refused: bool
) -> None:
    """As in Amazon Linux, whose /etc/sysconfig/docker limits the open files of containers."""
    lay(place, "{}")
    engine = _engine(tmp_path, f'case "$*" in "-H fd:// --debug --validate"*) echo "{FLAG}" >&2; exit 1;; esac')
    if text is not None:
        (tmp_path / "options").write_text(text, encoding="latin-1")
    (tmp_path / "systemctl").write_text(
        f"#!/bin/sh\ncat <<'END'\nExecStart={{ path={engine} ; argv[]={engine} -H fd:// $OPTIONS $NONE ; pid=0 ; }}\n"
        f'Environment=OPTIONS=--icc "A=b c"\nEnvironment="\nEnvironmentFiles={tmp_path}/options (ignore_errors=yes)\n'
        f"EnvironmentFiles={tmp_path}/none (ignore_errors=yes)\nEND\n"
    )
    (tmp_path / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    result = run(options={"hosts": ["tcp://a"]}, executable=engine)
    assert result.get("failed", False) is is_refused, result


def test_check_mode_has_the_engine_validate_the_text(run: Any, place: Path, tmp_path: Path) -> None:
    result = run(options={"no-such": 1}, executable=_engine(tmp_path, "echo no-such >&2; exit 1"), check_mode=True)
    assert result["failed"] is True and "no-such; correct the options" in result["msg"] and not place.exists()


def test_what_another_process_writes_meanwhile_is_kept(run: Any, place: Path, tmp_path: Path) -> None:
    lay(place, '{"mtu": 1}')
    # The module calls dockerd between reading and writing; the mock writes the file then, once.
    once = f'[ -e {tmp_path}/seen ] || {{ touch {tmp_path}/seen; echo \'{{"mtu": 2, "dns": ["a"]}}\' > {place}; }}'
    run(options={"debug": True}, executable=_engine(tmp_path, once))
    assert json.loads(place.read_text()) == {"mtu": 2, "dns": ["a"], "debug": True}


def test_a_file_that_never_rests_is_given_up_by_name(run: Any, place: Path, tmp_path: Path) -> None:
    lay(place, '{"mtu": 1}')
    always = f'echo "{{\\"mtu\\": $$}}" > {place}'
    result = run(options={"debug": True}, executable=_engine(tmp_path, always))
    assert result["failed"] is True and str(place) in result["msg"]
    assert "debug" not in place.read_text()


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from(["x", "y"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
_OPTIONS = st.dictionaries(st.sampled_from("abc"), _VALUES, max_size=3)


@given(_OPTIONS, _OPTIONS, _OPTIONS)
def test_merging_twice_is_merging_once(found: dict[str, Any], desired: dict[str, Any], earlier: dict[str, Any]) -> None:
    merged = merging.merge(found, desired, earlier)
    assert merging.same(merging.merge(merged, desired, desired), merged)
    assert merging.conflicts(merged, desired, {}) == (), "every requested value is there"


@given(_OPTIONS, _OPTIONS)
def test_no_option_of_others_is_lost(found: dict[str, Any], desired: dict[str, Any]) -> None:
    merged = merging.merge(found, desired, {})
    assert all(merging.same(merged[key], value) for key, value in found.items() if key not in desired)


PROXY = {"proxies": {"http-proxy": "http://robot:p%40ss@proxy.example:3128"}}
MASKED = {"proxies": {"http-proxy": "http://***@proxy.example:3128"}}


def test_a_password_in_a_url_is_not_shown_and_only_root_can_read_the_file(run: Any, place: Path) -> None:
    lay(place, json.dumps(PROXY))
    result = run(options={**PROXY, "debug": True})
    assert json.loads(place.read_text()) == {**PROXY, "debug": True}
    assert (result["options"], result["changed"]) == ({**MASKED, "debug": True}, True)
    result.pop("invocation", None)  # ansible-core below 2.21 has the options in it
    assert "p%40ss" not in str(result)
    assert [file.stat().st_mode & 0o777 for file in (place, Path(result["backup_file"]))] == [0o600, 0o600]
    other = {"proxies": {"http-proxy": "http://robot:other@proxy.example:3128"}}
    assert "p%40ss" not in run(options=other, on_conflict="fail")["msg"]


def test_options_of_an_earlier_run_are_recognised_without_their_password(run: Any, place: Path) -> None:
    lay(place, json.dumps({**PROXY, "debug": True}))
    run(earlier=MASKED)
    assert json.loads(place.read_text()) == {"debug": True}


def test_a_file_without_any_option_left_is_removed(run: Any, place: Path) -> None:
    lay(place, '{"debug": true}')
    predicted = run(check_mode=True, earlier={"debug": True})
    assert (predicted["differs"], predicted["diff"]["after"], place.exists()) == (True, "", True)
    removed = run(earlier={"debug": True})
    assert (removed["changed"], removed["options"], place.exists()) == (True, {}, False)
    assert Path(removed["backup_file"]).read_text() == '{"debug": true}'
    assert run(earlier={"debug": True})["changed"] is False


@pytest.mark.parametrize("text", ["", "{}"])
def test_a_file_that_had_no_option_stays(run: Any, place: Path, text: str) -> None:
    lay(place, text)
    assert run(earlier={"debug": True})["changed"] is False
    assert place.read_text() == text


def test_what_another_process_replaces_at_once_was_written_before(
    run: Any, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay(place, "{}")

    def write(path: str, *arguments: Any) -> None:
        atomic_write(path, *arguments)
        place.write_text('{"mtu": 1400}')

    monkeypatch.setattr(daemon_json_run, "atomic_write", write)
    result = run(options={"debug": True})
    assert result["failed"] and "written by another process" in result["msg"]
    assert result["changed"] is True and Path(result["backup_file"]).read_text() == "{}"
