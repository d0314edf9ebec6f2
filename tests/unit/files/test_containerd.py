# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""containerd_runtime, with what containerd 1.6, 1.7 and 2.1 print."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.gpu.fleet.plugins.module_utils._common import os_errors
from ansible_collections.gpu.fleet.plugins.module_utils._common.atomic_write import atomic_write
from ansible_collections.gpu.fleet.plugins.module_utils._files import containerd, containerd_run, toml_tables
from ansible_collections.gpu.fleet.plugins.modules import containerd_runtime

FIXTURES = Path(__file__).parent / "fixtures" / "containerd"
"""Four files by containerd's version and what its configuration is like, made by Debian's 1.6.20, 1.7.24 and 2.1.9.

`config.toml`, `containerd config dump` of it, our drop-in, and the dump of config.toml with the drop-in imported.
"""
CASES = sorted(path.name for path in FIXTURES.iterdir())
BINARY = "/usr/bin/nvidia-container-runtime"
NVIDIA = containerd.Runtime("nvidia", BINARY, cdi=True, default=False)
CRI = {"1": "io.containerd.grpc.v1.cri", "2": "io.containerd.cri.v1.runtime"}


def _read(case: str, name: str) -> str:
    return (FIXTURES / case / name).read_text()


def _drop_in(case: str, runtime: containerd.Runtime = NVIDIA) -> str:
    return containerd.drop_in(_read(case, "dump.toml"), _read(case, "config.toml"), runtime)


@pytest.mark.parametrize("case", CASES)
def test_a_real_containerd_has_all_that_it_had_and_one_more_runtime(case: str) -> None:
    assert _drop_in(case) == _read(case, "99-nvidia.toml"), "the file that merged.toml was made with"
    before, merged = (tomllib.loads(_read(case, name)) for name in ("dump.toml", "merged.toml"))
    plugin, cri = merged["plugins"][CRI[case[0]]], before["plugins"][CRI[case[0]]]

    runtime = plugin["containerd"]["runtimes"].pop("nvidia")
    model = cri["containerd"]["runtimes"][cri["containerd"]["default_runtime_name"]]
    assert runtime == {**model, "options": {**model["options"], "BinaryName": BINARY}}
    if "enable_cdi" in cri:
        assert plugin.pop("enable_cdi") is True
        cri.pop("enable_cdi")
    before.pop("imports")
    merged.pop("imports")
    assert merged == before


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("default", [False, True])
def test_only_containerd_1_needs_a_copy_of_the_whole_plugin(case: str, default: bool) -> None:
    written = tomllib.loads(_drop_in(case, containerd.Runtime("nvidia", BINARY, cdi=False, default=default)))
    (plugin,) = written["plugins"].values()
    if case[0] == "1":
        before = tomllib.loads(_read(case, "dump.toml"))["plugins"][CRI["1"]]
        before["containerd"]["runtimes"]["nvidia"] = plugin["containerd"]["runtimes"]["nvidia"]
        before["containerd"]["default_runtime_name"] = "nvidia" if default else "runc"
        assert plugin == before
    else:
        expected = {"default_runtime_name": "nvidia"} if default else {}
        assert list(plugin) == ["containerd"] and list(plugin["containerd"]["runtimes"]) == ["nvidia"]
        assert {key: plugin["containerd"][key] for key in plugin["containerd"] if key != "runtimes"} == expected


@pytest.mark.parametrize(
    ("config", "version"),
    [
        ("", 3),
        ("root = '/x'\n", 3),
        ("version = 2\n[plugins]\nversion = 3\n", 2),
        ("imports = []\nversion = 3\n", 3),
        ("version = 4\n", 4),
    ],
)
def test_under_containerd_2_the_drop_in_has_the_version_of_config_toml(config: str, version: int) -> None:
    # With `version = 3` next to a config.toml of version 2, containerd 2.1 ignores the CRI settings of config.toml.
    written = tomllib.loads(containerd.drop_in(_read("2.1-empty", "dump.toml"), config, NVIDIA))
    assert written["version"] == version
    assert list(written["plugins"]) == [CRI["1" if version == 2 else "2"]]


def test_a_version_is_read_from_the_top_alone() -> None:
    assert [containerd.config_version(text) for text in ("", "[a]\nversion = 3\n", "# x\nversion=2 # why\n")] == [
        1,
        1,
        2,
    ]


def test_without_cdi_the_plugin_is_left_as_it_is() -> None:
    runtime = containerd.Runtime("nvidia", BINARY, cdi=False, default=False)
    written = tomllib.loads(_drop_in("1.7-kubernetes", runtime))
    assert written["plugins"][CRI["1"]]["enable_cdi"] is False
    assert "enable_cdi" not in _drop_in("2.1-version-3", runtime)


@pytest.mark.parametrize("case", ["1.7-kubernetes", "2.1-version-3"])
def test_a_runtime_of_that_name_is_replaced_and_is_no_model(case: str) -> None:
    there = _read(case, "merged.toml").replace(BINARY, "/opt/other")
    there = re.sub(r"(default_runtime_name = ).*", r'\1"nvidia"', there)
    after = tomllib.loads(containerd.drop_in(there, _read(case, "config.toml"), NVIDIA))
    (plugin,) = after["plugins"].values()
    assert plugin["containerd"]["runtimes"]["nvidia"]["options"]["BinaryName"] == BINARY
    assert plugin["containerd"]["default_runtime_name"] == "runc"


@pytest.mark.parametrize(
    "dump",
    [
        pytest.param('version = 2\n[plugins]\n[plugins."io.containerd.gc.v1.scheduler"]\n', id="1.x omits the plugin"),
        pytest.param(
            _read("2.1-empty", "dump.toml").replace(
                "disabled_plugins = []", "disabled_plugins = ['io.containerd.grpc.v1.cri']"
            ),
            id="2.1 prints it nevertheless, here of containerd.io's file",
        ),
    ],
)
def test_a_containerd_without_the_plugin_is_refused_by_what_to_do(dump: str) -> None:
    with pytest.raises(toml_tables.ConfigurationError, match="take cri out of disabled_plugins in config"):
        containerd.drop_in(dump, 'disabled_plugins = ["cri"]\n', NVIDIA)


@pytest.mark.parametrize(
    ("config", "refused"),
    [
        ("[plugins.cri]\n  enable_selinux = true\n", True),
        ('disabled_plugins = ["aufs"]\n', True),
        ('[debug]\n  level = "info"\n', False),
        ('version = 2\n[plugins."io.containerd.grpc.v1.cri"]\n', False),
        ("", False),
    ],
)
def test_version_1_next_to_a_drop_in_is_refused_by_containerd_1(config: str, refused: bool) -> None:
    # containerd 1.6 and 1.7: invalid plugin key URI "cri" expect io.containerd.x.vx
    dump = _read("1.7-kubernetes", "dump.toml")
    if refused:
        with pytest.raises(toml_tables.ConfigurationError, match="write it in version 2"):
            containerd.drop_in(dump, config, NVIDIA)
    else:
        assert containerd.drop_in(dump, config, NVIDIA)


OURS = "/etc/containerd/conf.d/*.toml"


@pytest.mark.parametrize(
    ("text", "others"),
    [
        ("", ()),
        ("version = 2\n", ()),
        ("# mine\nversion = 2\nroot = '/x'\n[plugins]\n  a = 1\n", ()),
        ('imports = ["/etc/a.toml"]\nversion = 2\n', ("/etc/a.toml",)),
        (
            'version = 3\nimports = [\n  \'/etc/a.toml\', # why\n  "b/*.toml",\n]\nroot = "/x"\n[debug]\n',
            ("/etc/a.toml", "b/*.toml"),
        ),
        ("[plugins]\nimports = ['not for the whole']\n", ()),
    ],
)
def test_an_import_is_added_and_taken_away_and_all_else_stays(text: str, others: tuple[str, ...]) -> None:
    assert containerd.imports(text) == others
    with_ours = containerd.with_imports(text, (*others, OURS), 2)
    read = tomllib.loads(with_ours)
    assert read.pop("imports") == [*others, OURS]
    before = tomllib.loads(text)
    before.pop("imports", None)
    assert read == (before or {"version": 2})
    without = tomllib.loads(containerd.with_imports(with_ours, others, 2))
    assert without.pop("imports", []) == list(others)
    assert without == (before or {"version": 2})


CONFIG, DROP_IN = "/etc/containerd/config.toml", "/etc/containerd/conf.d/99-nvidia.toml"


@pytest.mark.parametrize(
    ("present", "config", "has_other_drop_ins", "paths", "imported"),
    [
        pytest.param(True, None, False, [DROP_IN, CONFIG], [OURS], id="nothing there"),
        pytest.param(True, f'imports = ["{OURS}"]\n', True, [DROP_IN, CONFIG], [OURS], id="imported already"),
        pytest.param(True, 'imports = ["conf.d/*.toml"]\n', False, [DROP_IN, CONFIG], ["conf.d/*.toml"], id="relative"),
        pytest.param(False, f'imports = ["{OURS}"]\nroot = "/x"\n', False, [CONFIG, DROP_IN], [], id="absent"),
        pytest.param(False, f'imports = ["{OURS}"]\n', True, [CONFIG, DROP_IN], [OURS], id="absent, import needed"),
        pytest.param(False, None, False, [CONFIG, DROP_IN], None, id="absent, nothing there"),
    ],
)
def test_plan_writes_the_drop_in_before_its_import(
    present: bool, config: str | None, has_other_drop_ins: bool, paths: list[str], imported: list[str] | None
) -> None:
    request = containerd_run.RuntimeRequest("nvidia", BINARY, present, True, False, CONFIG, DROP_IN)
    state = containerd_run.ContainerdState(
        {CONFIG: config, DROP_IN: None}, has_other_drop_ins, _read("1.7-kubernetes", "dump.toml") if present else None
    )
    planned = containerd_run.plan(request, state)
    assert list(planned) == paths
    assert (planned[DROP_IN] is not None) is present
    text = planned[CONFIG]
    assert (None if text is None else list(containerd.imports(text))) == imported


@pytest.fixture(params=["1.7-kubernetes", "2.1-version-3"])
def engine(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A mock of containerd that prints the dump of the real one, with or without the drop-in."""
    program = tmp_path / "containerd"
    program.write_text(
        "#!/usr/bin/env python3\n"
        "import glob, re, sys\n"
        f"name = {str(FIXTURES / request.param)!r}\n"
        "text = open(sys.argv[2]).read()\n"
        "if 'broken' in text: sys.exit('containerd: cannot load')\n"
        "found = re.search(r'imports = \\[(.*?)\\]', text)\n"
        "patterns = re.findall(r'\"([^\"]*)\"', found[1] if found else '')\n"
        "has_ours = any('nvidia' in path for pattern in patterns for path in glob.glob(pattern))\n"
        "print(open(name + ('/merged.toml' if has_ours else '/dump.toml')).read())\n"
    )
    program.chmod(0o755)
    return program


@pytest.fixture
def run(tmp_path: Path, engine: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run the module on files below tmp_path."""

    def call(check_mode: bool = False, **arguments: Any) -> dict[str, Any]:
        places = {
            "config": f"{tmp_path}/etc/config.toml",
            "drop_in": f"{tmp_path}/etc/conf.d/99-nvidia.toml",
            "executable": str(engine),
        }
        internal = {"_ansible_check_mode": check_mode, "_ansible_remote_tmp": "/tmp"}
        with patch_module_args({**places, **arguments, **internal}), pytest.raises(SystemExit):
            containerd_runtime.main()
        result: dict[str, Any] = json.loads(capsys.readouterr().out)
        return result

    return call


def _files(directory: Path) -> dict[str, str]:
    return {str(path.relative_to(directory)): path.read_text() for path in directory.rglob("*") if path.is_file()}


def test_it_is_made_once_and_taken_away_without_a_trace(run: Any, tmp_path: Path) -> None:
    assert run(check_mode=True)["changed"] is True
    assert not (tmp_path / "etc").exists()
    first = run()
    assert first["changed"] is True
    assert first["previous"] == {
        str(tmp_path / "etc" / name): None for name in ("conf.d/99-nvidia.toml", "config.toml")
    }
    assert set(_files(tmp_path / "etc")) == {"config.toml", "conf.d/99-nvidia.toml"}
    assert run()["changed"] is False
    assert run(default=True)["changed"] is True
    assert run(state="absent")["changed"] is True
    assert _files(tmp_path / "etc") == {}
    assert run(state="absent")["changed"] is False


def test_what_users_have_stays(run: Any, tmp_path: Path) -> None:
    (tmp_path / "etc" / "conf.d").mkdir(parents=True)
    mine = {"config.toml": "# mine\nversion = 2\n", "conf.d/10-mine.toml": "version = 2\n"}
    for name, text in mine.items():
        (tmp_path / "etc" / name).write_text(text)
    run()
    assert (tmp_path / "etc" / "config.toml").read_text().startswith("# mine\nversion = 2\nimports = ")
    run(state="absent")
    left = {name: text for name, text in _files(tmp_path / "etc").items() if not name.endswith("~")}
    assert left["conf.d/10-mine.toml"] == mine["conf.d/10-mine.toml"]
    assert set(left) == set(mine), "its import stays with the file that may need it"


def test_what_containerd_does_not_take_is_reported_and_restored(run: Any, tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "config.toml").write_text("version = 2\n# broken\n")
    result = run()
    assert result["failed"] is True and "cannot load" in result["msg"]
    assert _files(tmp_path / "etc") == {"config.toml": "version = 2\n# broken\n"}


def test_a_list_ends_at_its_bracket_and_comments_name_no_file() -> None:
    text = '  imports = [ # ["/old.toml"]\r\n  "/a[12].toml", # "/b.toml" ]\r\n] # mine\r\nversion = 2\r\n[debug]\r\n'
    assert containerd.imports(text) == ("/a[12].toml",)
    with_ours = containerd.with_imports(text, ("/a[12].toml", OURS), 2)
    assert with_ours == f'imports = ["/a[12].toml", "{OURS}"] # mine\r\nversion = 2\r\n[debug]\r\n'


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("imports = []\nversion = 2\n", id="an empty list"),
        pytest.param("version = 2\nimports = [] # none\n", id="an empty list with a comment"),
        pytest.param("version = 2\r\nroot = '/x'\r\n", id="the ends of lines of Windows"),
        pytest.param("version = 2\n", id="no list"),
    ],
)
def test_a_users_file_is_the_same_again(text: str) -> None:
    with_ours = containerd.with_imports(text, (OURS,), 2)
    assert tomllib.loads(with_ours) == {**tomllib.loads(text), "imports": [OURS]}
    assert with_ours.count("\r\n") in (0, with_ours.count("\n"))
    assert containerd.with_imports(with_ours, (), 2) == text


CHOSEN = _read("1.7-kubernetes", "dump.toml").replace(
    'default_runtime_name = "runc"', 'default_runtime_name = "nvidia"'
)


@pytest.mark.parametrize(
    ("default", "earlier", "refused"),
    [
        pytest.param(False, None, True, id="first run"),
        pytest.param(True, None, False, id="as the site has it"),
        pytest.param(False, "runc", False, id="the drop-in has runc"),
        pytest.param(False, "nvidia", True, id="by an earlier run as well"),
    ],
)
def test_a_default_runtime_of_the_site_is_not_taken_in_silence(
    default: bool, earlier: str | None, refused: bool
) -> None:
    assert 'default_runtime_name = "nvidia"' in CHOSEN
    request = containerd_run.RuntimeRequest("nvidia", BINARY, True, True, default, CONFIG, DROP_IN)
    drop_in = None if earlier is None else CHOSEN.replace('name = "nvidia"', f'name = "{earlier}"')
    state = containerd_run.ContainerdState({CONFIG: "version = 2\n", DROP_IN: drop_in}, False, CHOSEN)
    if not refused:
        assert containerd_run.plan(request, state)[DROP_IN]
        return
    with pytest.raises(toml_tables.ConfigurationError, match="take the GPUs from pods without a RuntimeClass"):
        containerd_run.plan(request, state)


def test_a_link_to_the_file_of_the_user_stays(run: Any, tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    target, link = tmp_path / "site.toml", tmp_path / "etc" / "config.toml"
    target.write_text("version = 2\n")
    link.symlink_to(target)
    assert run()["changed"] is True
    assert link.is_symlink() and "imports = " in target.read_text()
    assert run(state="absent")["changed"] is True
    assert link.is_symlink() and target.read_text() == "version = 2\n"


@pytest.mark.parametrize("also", [False, True], ids=["all is restored", "the drop-in is not"])
def test_a_file_that_cannot_be_written_leaves_nothing_behind(
    also: bool, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "etc").mkdir()
    config, drop_in = tmp_path / "etc" / "config.toml", tmp_path / "etc" / "conf.d" / "99-nvidia.toml"
    config.write_text("version = 2\n")
    denied = PermissionError(1, "Operation not permitted")
    written, unlink = atomic_write, os.unlink

    def write(path: str, *arguments: Any) -> None:
        if path == str(config):
            raise denied
        written(path, *arguments)

    def remove(path: Any, *arguments: Any, **named: Any) -> None:
        if also and path == str(drop_in):
            raise denied
        unlink(path, *arguments, **named)

    monkeypatch.setattr(containerd_run, "atomic_write", write)
    monkeypatch.setattr(os, "unlink", remove)
    result = run()
    assert result["failed"] is True and "Operation not permitted" in result["msg"]
    assert config.read_text() == "version = 2\n"
    assert drop_in.exists() is also
    assert (f"not restored: {drop_in}: Operation not permitted" in result["msg"]) is also
    assert also or set(_files(tmp_path / "etc")) == {"config.toml"}, "no backup of a run that has failed"


@pytest.fixture
def immutable() -> Iterator[Callable[[Path], None]]:
    """Sets the attribute i until the end of a test: only root can, where the file system has it."""
    changed: list[Path] = []

    def change(path: Path, sign: str = "+") -> bool:
        return not shutil.which("chattr") or subprocess.run(["chattr", f"{sign}i", path], check=False).returncode != 0

    def make(path: Path) -> None:
        if change(path):
            pytest.skip("no attribute i here")
        changed.append(path)

    yield make
    for path in changed:
        change(path, "-")


@pytest.mark.parametrize("place", ["config.toml", ".", "conf.d"])
def test_what_is_really_immutable_is_named_and_all_else_restored(
    place: str, run: Any, tmp_path: Path, immutable: Callable[[Path], None]
) -> None:
    etc = tmp_path / "etc"
    (etc / "conf.d").mkdir(parents=True)
    (etc / "config.toml").write_text("version = 2\n")
    immutable(etc / place)
    result = run()
    assert result["failed"] is True and "Operation not permitted" in result["msg"]
    assert "see `lsattr -d`" in result["msg"] and "not restored" not in result["msg"]
    assert _files(etc) == {"config.toml": "version = 2\n"}


def test_a_drop_in_that_is_really_immutable_is_not_left_without_its_import(
    run: Any, tmp_path: Path, immutable: Callable[[Path], None]
) -> None:
    run()
    before = _files(tmp_path / "etc")
    immutable(tmp_path / "etc" / "conf.d" / "99-nvidia.toml")
    result = run(state="absent")
    assert result["failed"] is True and "Operation not permitted" in result["msg"]
    assert _files(tmp_path / "etc") == before


@pytest.mark.parametrize(("user", "remedy"), [(0, "see `lsattr -d`"), (1000, "this needs root")])
def test_root_need_not_become_root(user: int, remedy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: user)
    assert remedy in os_errors.advice(PermissionError(1, "Operation not permitted"))
