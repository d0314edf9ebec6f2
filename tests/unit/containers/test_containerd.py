# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""containerd_runtime, with the configuration dumps of containerd 1.6, 1.7 and 2."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.gpu.fleet.plugins.module_utils._files import containerd, containerd_run
from ansible_collections.gpu.fleet.plugins.modules import containerd_runtime

FIXTURES = Path(__file__).parent / "fixtures"
BINARY = "/usr/bin/nvidia-container-runtime"
CRI = {"1.6": "io.containerd.grpc.v1.cri", "1.7": "io.containerd.grpc.v1.cri", "2": "io.containerd.cri.v1.runtime"}


def _dump(version: str) -> str:
    """`containerd config dump` with a custom pause image and SystemdCgroup = true, as in Kubernetes' guides."""
    return (FIXTURES / f"containerd-{version}.toml").read_text()


@pytest.mark.parametrize("version", CRI)
@pytest.mark.parametrize("default", [False, True])
def test_the_drop_in_is_what_was_in_force_with_one_more_runtime(version: str, default: bool) -> None:
    before = tomllib.loads(_dump(version))["plugins"][CRI[version]]
    written = tomllib.loads(containerd.drop_in(_dump(version), "nvidia", BINARY, cdi=True, default=default))
    assert written.keys() == {"version", "plugins"}
    assert list(written["plugins"]) == [CRI[version]], "other plugins stay as config.toml has them"
    after = written["plugins"][CRI[version]]

    runtime = after["containerd"]["runtimes"].pop("nvidia")
    model = before["containerd"]["runtimes"]["runc"]
    assert runtime == {**model, "options": {**model["options"], "BinaryName": BINARY}}
    assert after["containerd"].pop("default_runtime_name") == ("nvidia" if default else "runc")
    before["containerd"].pop("default_runtime_name")
    if "enable_cdi" in before:
        assert after.pop("enable_cdi") is True
        before.pop("enable_cdi")
    assert after == before


def test_without_cdi_the_plugin_is_left_as_it_is() -> None:
    written = tomllib.loads(containerd.drop_in(_dump("1.7"), "nvidia", BINARY, cdi=False, default=False))
    assert written["plugins"][CRI["1.7"]]["enable_cdi"] is False


def test_a_runtime_of_that_name_is_replaced_and_is_no_model() -> None:
    first = containerd.drop_in(_dump("1.7"), "nvidia", "/opt/other", cdi=True, default=True)
    again = containerd.drop_in(first, "nvidia", BINARY, cdi=True, default=False)
    after = tomllib.loads(again)["plugins"][CRI["1.7"]]["containerd"]
    assert after["runtimes"]["nvidia"]["options"]["BinaryName"] == BINARY
    assert after["default_runtime_name"] == "runc"


def test_a_containerd_without_the_plugin_is_refused_by_what_to_do() -> None:
    with pytest.raises(containerd.ConfigurationError, match="disabled_plugins"):
        containerd.drop_in(
            'version = 2\n[plugins]\n[plugins."io.containerd.gc.v1.scheduler"]\n', "n", BINARY, True, True
        )


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
        {CONFIG: config, DROP_IN: None}, has_other_drop_ins, _dump("1.7") if present else None
    )
    planned = containerd_run.plan(request, state)
    assert list(planned) == paths
    assert (planned[DROP_IN] is not None) is present
    text = planned[CONFIG]
    assert (None if text is None else list(containerd.imports(text))) == imported


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    """A mock of containerd; like 1.x, it merges files by replacing a plugin's whole section."""
    program = tmp_path / "containerd"
    program.write_text(
        "#!/usr/bin/env python3\n"
        "import glob, re, sys\n"
        f"dump = open({str(FIXTURES / 'containerd-1.7.toml')!r}).read()\n"
        "text = open(sys.argv[2]).read()\n"
        "if 'broken' in text: sys.exit('containerd: cannot load')\n"
        "found = re.search(r'imports = \\[(.*?)\\]', text)\n"
        "for pattern in re.findall(r'\"([^\"]*)\"', found[1] if found else ''):\n"
        "    for path in sorted(glob.glob(pattern)):\n"
        "        if 'nvidia' in path: dump = open(path).read()\n"
        "print(dump)\n"
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
    assert run()["changed"] is True
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
