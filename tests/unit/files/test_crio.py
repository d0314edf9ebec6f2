# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""crio_runtime, with the output of `crio config` as CRI-O's template and upstream packages have it."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.testing import patch_module_args
from ansible_collections.gpu.fleet.plugins.module_utils._files import crio
from ansible_collections.gpu.fleet.plugins.module_utils._files.containerd import Runtime
from ansible_collections.gpu.fleet.plugins.modules import crio_runtime

UPSTREAM = (Path(__file__).parent / "fixtures" / "crio" / "upstream.toml").read_text()
BINARY = "/usr/bin/nvidia-container-runtime"
DEFAULTS = '[crio.runtime]\n# default_runtime = "crun"\n# [crio.runtime.runtimes.crun]\n# monitor_path = ""\n'


def _written(dump: str, cdi: bool = True, default: bool = False) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads(crio.drop_in(dump, Runtime("nvidia", BINARY, cdi, default)))["crio"][
        "runtime"
    ]
    return found


@pytest.mark.parametrize("default", [False, True])
def test_the_runtime_is_a_copy_of_the_default_one_with_its_monitor(default: bool) -> None:
    written = _written(UPSTREAM, default=default)
    assert written.pop("runtimes") == {
        "nvidia": {
            "runtime_path": BINARY,
            "runtime_type": "oci",
            "runtime_root": "/run/crun",
            "monitor_path": "/usr/libexec/crio/conmon",
            "allowed_annotations": ["io.containers.trace-syscall"],
            "privileged_without_host_devices": False,
        }
    }
    assert written == ({"default_runtime": "nvidia"} if default else {})


@pytest.mark.parametrize(
    ("default_runtime", "types", "program", "monitor"),
    [
        pytest.param("runc", "", "/usr/libexec/crio/runc", "/usr/libexec/crio/conmon", id="another default"),
        pytest.param(
            "nvidia", "", "/usr/libexec/crio/crun", "/usr/libexec/crio/conmon", id="ours is no model of itself"
        ),
        pytest.param("none", "", "/usr/libexec/crio/crun", "/usr/libexec/crio/conmon", id="a default that is missing"),
        pytest.param("crun", "pod", "", "conmon", id="the monitor of pods starts no ordinary runtime"),
    ],
)
def test_what_is_copied(default_runtime: str, types: str, program: str, monitor: str) -> None:
    dump = UPSTREAM.replace('default_runtime = "crun"', f'default_runtime = "{default_runtime}"')
    dump = dump.replace('runtime_type = ""', f'runtime_type = "{types}"')
    assert crio.program(dump, "nvidia") == program
    merged = dump + crio.drop_in(dump, Runtime("nvidia", BINARY, True, False)).replace("[crio.runtime]\n", "")
    assert crio.monitor_path(merged, "nvidia") == monitor
    assert crio.runtime_path(merged, "nvidia") == BINARY


def test_defaults_that_are_comments_are_not_copied() -> None:
    assert _written(DEFAULTS) == {"runtimes": {"nvidia": {"runtime_path": BINARY, "runtime_type": "oci"}}}
    assert crio.program(DEFAULTS, "nvidia") == ""
    assert crio.monitor_path(DEFAULTS, "nvidia") == "conmon"
    assert crio.monitor_path('[crio.runtime]\nconmon = "/opt/conmon"\n', "nvidia") == "/opt/conmon"


@pytest.mark.parametrize(
    ("directories", "cdi", "expected"),
    [
        (None, True, None),
        (["/etc/cdi", "/run/cdi"], True, None),
        (["/opt/cdi"], True, ["/opt/cdi", "/etc/cdi", "/var/run/cdi"]),
        (["/opt/cdi"], False, None),
    ],
)
def test_directories_of_specifications_are_added_to_others(
    directories: list[str] | None, cdi: bool, expected: list[str] | None
) -> None:
    lines = "".join(f'\t"{path}",\n' for path in directories or [])
    dump = (
        UPSTREAM
        if directories is None
        else UPSTREAM.replace("default_runtime =", f"cdi_spec_dirs = [\n{lines}]\ndefault_runtime =")
    )
    assert _written(dump, cdi).get("cdi_spec_dirs") == expected


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A host with CRI-O's packages below a directory, and a mock of `crio config` that prints the files it reads."""
    for name in ("libexec/conmon", "libexec/crun", "nvidia-container-runtime"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    (tmp_path / "etc" / "crio.conf.d").mkdir(parents=True)
    packaged = UPSTREAM.replace("/usr/libexec/crio", str(tmp_path / "libexec"))
    (tmp_path / "etc" / "crio.conf.d" / "10-crio.conf").write_text(packaged)
    program = tmp_path / "crio"
    program.write_text(
        '#!/bin/sh\nif [ "$1" = --config ]; then cat "$2"; shift 2; fi\n'
        'if grep -rq broken "$2"; then echo "unable to decode configuration" >&2; exit 1; fi\n'
        'cat "$2"/*\n'
    )
    program.chmod(0o755)
    return tmp_path


@pytest.fixture
def run(host: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run the module on the host."""

    def call(check_mode: bool = False, **arguments: Any) -> dict[str, Any]:
        places = {
            "config": f"{host}/etc/crio.conf",
            "drop_in": f"{host}/etc/crio.conf.d/99-nvidia.conf",
            "executable": str(host / "crio"),
            "binary": f"{host}/nvidia-container-runtime",
        }
        internal = {"_ansible_check_mode": check_mode, "_ansible_remote_tmp": "/tmp"}
        with patch_module_args({**places, **arguments, **internal}), pytest.raises(SystemExit):
            crio_runtime.main()
        result: dict[str, Any] = json.loads(capsys.readouterr().out)
        return result

    return call


def _names(host: Path) -> list[str]:
    return sorted(path.name for path in (host / "etc").rglob("*") if path.is_file())


def test_it_is_written_once_and_removed(run: Any, host: Path) -> None:
    assert run(check_mode=True)["changed"] is True
    assert _names(host) == ["10-crio.conf"]
    first = run()
    drop_in = host / "etc" / "crio.conf.d" / "99-nvidia.conf"
    assert (first["changed"], first["previous"]) == (True, {str(drop_in): None})
    assert first["program"] == f"{host}/libexec/crun"
    assert set(yaml.safe_load(crio_runtime.RETURN)) <= set(first)
    assert f'monitor_path = "{host}/libexec/conmon"' in drop_in.read_text()
    assert run()["changed"] is False
    before = drop_in.read_text()
    assert run(default=True)["previous"] == {str(drop_in): before}
    assert run(state="absent")["changed"] is True
    assert _names(host) == ["10-crio.conf"]
    assert run(state="absent")["changed"] is False


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("libexec/conmon", "libexec/conmon, the monitor of containers; see monitor_path"),
        ("nvidia-container-runtime", "nvidia-container-runtime, the program of the runtime; see binary"),
    ],
)
def test_what_crio_would_not_start_with_is_refused(missing: str, message: str, run: Any, host: Path) -> None:
    (host / missing).unlink()
    result = run()
    assert result["failed"] is True and message in result["msg"]
    assert _names(host) == ["10-crio.conf"]


def test_what_crio_does_not_take_is_reported_and_not_written(run: Any, host: Path) -> None:
    (host / "etc" / "crio.conf.d" / "20-mine.conf").write_text("# broken\n")
    result = run()
    assert result["failed"] is True
    assert "CRI-O rejects its configuration: unable to decode configuration" in result["msg"]
    assert _names(host) == ["10-crio.conf", "20-mine.conf"]


def test_a_main_file_and_directories_are_read_too(run: Any, host: Path) -> None:
    (host / "etc" / "crio.conf").write_text('[crio.runtime]\nconmon = "/none/conmon"\n')
    assert "/none/conmon" in run()["msg"], "conmon of the main file is for all runtimes"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "a.b"}, "name: 'a.b' is not a name"),
        ({"binary": '/usr/bin/"'}, "has a quote"),
        ({"executable": "none-crio"}, "CRI-O is not installed: there is no executable 'none-crio'"),
    ],
)
def test_bad_options_are_refused_by_name(arguments: dict[str, str], message: str, run: Any, host: Path) -> None:
    result = run(**arguments)
    assert result["failed"] is True and message in result["msg"]
    assert _names(host) == ["10-crio.conf"]
