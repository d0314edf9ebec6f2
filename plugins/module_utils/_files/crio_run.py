# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""crio_runtime: a drop-in for CRI-O, which CRI-O itself reads before it is written. Private to this collection."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from typing import Any, Mapping

from ansible.module_utils.basic import AnsibleModule

from .._common.arguments import check_path, shortened
from .._common.atomic_write import atomic_write
from .._common.errors import ChangeError
from .._common.regular_file import read_text
from .containerd import Runtime
from .containerd_run import NAME, NOT_IN_TOML
from .crio import drop_in, monitor_path, program, runtime_path
from .toml_tables import ConfigurationError

# Where NVIDIA's runtime finds a program by its name.
_IN_PATH = ("", "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


@dataclass(frozen=True)
class CrioRequest:
    """The runtime or its absence; `config` is the path of CRI-O's main file, which need not exist."""

    runtime: Runtime
    present: bool
    config: str
    drop_in: str


def parse_request(params: Mapping[str, Any]) -> CrioRequest:
    """The request in the options; raises ChangeError by the name of an option."""
    for option in ("config", "drop_in", "binary"):
        check_path(option, params[option])
    if NOT_IN_TOML.search(params["binary"]):
        raise ChangeError(f"binary: {shortened(params['binary'])} has a quote, backslash or control character")
    if not NAME.fullmatch(params["name"]) or "." in params["name"]:
        raise ChangeError(f"name: {shortened(params['name'])} is not a name of letters, digits and _ -")
    runtime = Runtime(params["name"], params["binary"], params["cdi"], params["default"])
    return CrioRequest(runtime, params["state"] == "present", params["config"], params["drop_in"])


class Crio:
    """CRI-O's configuration on this host."""

    def __init__(self, module: AnsibleModule, request: CrioRequest) -> None:
        self._module = module
        self._request = request

    def dump(self, ours: str | None) -> str:
        """What `crio config` prints with this content of our drop-in, None for no drop-in; nothing is written.

        Raises ConfigurationError when CRI-O refuses it.
        """
        executable = self._module.params["executable"]
        crio = self._module.get_bin_path(executable)
        if crio is None:
            raise ConfigurationError(f"is not installed: there is no executable {shortened(executable)}")
        main = ["--config", self._request.config] if os.path.lexists(self._request.config) else []
        with tempfile.TemporaryDirectory(dir=self._module.tmpdir) as temporary:
            directory, name = os.path.split(self._request.drop_in)
            copy = os.path.join(temporary, "crio.conf.d")
            if os.path.isdir(directory):
                shutil.copytree(directory, copy, ignore=lambda path, _: [name] if path == directory else [])
            os.makedirs(copy, exist_ok=True)
            if ours is not None:
                atomic_write(os.path.join(copy, name), ours.encode())
            status, output, error = self._module.run_command([crio, *main, "--config-dir", copy, "config"])
        if status != 0:
            reported = (error.strip() or str(output).strip() or "it reports no reason").splitlines()[-1]
            raise ConfigurationError(f"rejects its configuration: {reported}")
        if not str(output).strip():
            raise ConfigurationError(
                f"prints no configuration; executable is {shortened(executable)}, which is another program"
            )
        return str(output)

    def check(self, dump: str) -> None:
        """Raise ConfigurationError when CRI-O would not start a container of our runtime with this configuration."""
        runtime = self._request.runtime
        if runtime_path(dump, runtime.name) != runtime.binary:
            raise ConfigurationError(f"does not have the runtime {runtime.name} with the new configuration")
        monitor = monitor_path(dump, runtime.name)
        where = "monitor_path of the default runtime in the output of `crio config`"
        for found, use in (
            (runtime.binary, "the program of the runtime; see binary"),
            (monitor, f"the monitor of containers; see {where}"),
        ):
            if self._module.get_bin_path(found) is None:
                raise ConfigurationError(
                    f"would not start with the runtime {runtime.name}: there is no executable {found}, {use}"
                )

    def write(self, text: str | None) -> None:
        """Write the drop-in, or remove it."""
        if text is not None:
            atomic_write(self._request.drop_in, text.encode())
        elif os.path.lexists(self._request.drop_in):
            os.unlink(self._request.drop_in)


def run(module: AnsibleModule) -> dict[str, Any]:
    """One run of the module; raises ChangeError."""
    request = parse_request(module.params)
    engine = Crio(module, request)
    path = request.drop_in
    after, copied = None, ""
    try:
        before = read_text(path)
        if request.present:
            dump = engine.dump(None)
            after = drop_in(dump, request.runtime)
            copied = program(dump, request.runtime.name)
            engine.check(engine.dump(after))
        changed = before != after
        if changed and not module.check_mode:
            engine.write(after)
    except ConfigurationError as error:
        raise ChangeError(f"CRI-O {error}") from error
    except (OSError, UnicodeError, shutil.Error) as error:
        raise ChangeError(f"CRI-O's configuration cannot be read or written: {error}") from error
    return {
        "changed": changed,
        "files": [path] if changed else [],
        "previous": {path: before} if changed else {},
        "program": "" if os.path.dirname(copied) in _IN_PATH else copied,
        "diff": [{"before_header": path, "after_header": path, "before": before or "", "after": after or ""}],
    }
