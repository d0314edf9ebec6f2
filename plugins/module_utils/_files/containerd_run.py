# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""containerd_runtime: a drop-in for containerd, and its import. Private to this collection."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import stat
import tempfile
import time
from dataclasses import dataclass
from typing import Any, Dict, Mapping, Optional, Sequence

from ansible.module_utils.basic import AnsibleModule

from .._common.arguments import check_path, shortened
from .._common.atomic_write import atomic_write
from .._common.errors import ChangeError, RunError
from .._common.os_errors import advice
from .._common.regular_file import read_text
from .containerd import (
    Runtime,
    config_version,
    default_runtime,
    drop_in,
    has_runtime,
    imports,
    is_ours,
    with_imports,
)
from .toml_tables import NOTE, ConfigurationError

# Characters that would end a TOML string or begin another key.
NOT_IN_TOML = re.compile(r"[\"\\\x00-\x1f\x7f]")
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_DROP_IN = re.compile(r"[^*?\[\]]*/[^/*?\[\]]+\.toml")

Files = Dict[str, Optional[str]]
"""Content by path; None means no file."""


@dataclass(frozen=True)
class RuntimeRequest:
    """The runtime `name` with its program `binary`, or its absence; `config` and `drop_in` are paths."""

    name: str
    binary: str
    present: bool
    cdi: bool
    default: bool
    config: str
    drop_in: str

    @property
    def runtime(self) -> Runtime:
        """The runtime as the drop-in has it."""
        return Runtime(self.name, self.binary, self.cdi, self.default)

    @property
    def pattern(self) -> str:
        """The import of the drop-in: all files of its directory."""
        return os.path.join(os.path.dirname(self.drop_in), "*.toml")


@dataclass(frozen=True)
class ContainerdState:
    """The two files, whether the pattern matches others, and the configuration in effect without the drop-in.

    `dump` is None where no drop-in is requested.
    """

    files: Mapping[str, str | None]
    has_other_drop_ins: bool
    dump: str | None


def parse_request(params: Mapping[str, Any]) -> RuntimeRequest:
    """The request in the options; raises ChangeError by the name of an option."""
    for option in ("config", "drop_in", "binary"):
        check_path(option, params[option])
        if NOT_IN_TOML.search(params[option]):
            raise ChangeError(f"{option}: {shortened(params[option])} has a quote, backslash or control character")
    if not NAME.fullmatch(params["name"]):
        raise ChangeError(f"name: {shortened(params['name'])} is not a name of letters, digits and _ . -")
    if not _DROP_IN.fullmatch(params["drop_in"]):
        raise ChangeError(
            f"drop_in: {params['drop_in']} is not imported; its name has to end in .toml, without * ? [ ]"
        )
    return RuntimeRequest(
        name=params["name"],
        binary=params["binary"],
        present=params["state"] == "present",
        cdi=params["cdi"],
        default=params["default"],
        config=params["config"],
        drop_in=params["drop_in"],
    )


def plan(request: RuntimeRequest, observed: ContainerdState) -> Files:
    """The desired files, in the order in which they are to be written."""
    config, before = request.config, observed.files[request.config]
    text = before or ""
    if observed.dump is None:
        rest = tuple(item for item in imports(text) if item != request.pattern or observed.has_other_drop_ins)
        after = with_imports(text, rest, 2) if rest != imports(text) else text
        return {config: None if is_ours(after) or before is None else after, request.drop_in: None}
    _refuse_another_default(request, observed)
    imported = [os.path.join(os.path.dirname(config), item) for item in imports(text)]
    has_it = request.pattern in imported or request.drop_in in imported
    # The imported file first, then the import: an interrupted run leaves no dangling import.
    return {
        request.drop_in: drop_in(observed.dump, text, request.runtime),
        config: text
        if has_it
        else with_imports(text, (*imports(text), request.pattern), config_version(observed.dump)),
    }


def _refuse_another_default(request: RuntimeRequest, observed: ContainerdState) -> None:
    """Refuse to take the default runtime from a site that has chosen ours; a drop-in that has done so before stays."""
    in_effect = default_runtime(observed.files[request.drop_in] or "") or default_runtime(observed.dump or "")
    if not request.default and default_runtime(observed.dump or "") == request.name == in_effect:
        raise ConfigurationError(
            f"has {request.name} as its default runtime by its own configuration, and default is false, which would "
            f"take the GPUs from pods without a RuntimeClass; set default (nvidia_container_toolkit_default_runtime) "
            f"to true to keep it, or default_runtime_name in {request.config} to another runtime"
        )


class Containerd:
    """containerd's configuration on this host."""

    def __init__(self, module: AnsibleModule, request: RuntimeRequest) -> None:
        self._module = module
        self._request = request

    def observe(self) -> ContainerdState:
        """Read the files, and from containerd itself what is in effect."""
        request = self._request
        files = {path: read_text(path, newline="") for path in (request.config, request.drop_in)}
        others = [path for path in glob.glob(request.pattern) if path != request.drop_in]
        text = files[request.config] or ""
        return ContainerdState(files, bool(others), self._dump_without_drop_in(text) if request.present else None)

    def apply(self, before: Mapping[str, str | None], after: Mapping[str, str | None]) -> None:
        """Write, and check that containerd has the runtime; else restore the files, and raise what went wrong."""
        request, config = self._request, self._request.config
        theirs = not (before[config] or NOTE).startswith(NOTE)
        backup, written = "", []
        try:
            if theirs and before[config] != after[config]:
                backup = self._backed_up(config, before[config] or "")
            for path in after:
                if before[path] != after[path]:
                    self._write(path, after[path])
                    written.append(path)
            if request.present and not has_runtime(self._dump(config), request.name, request.binary):
                raise ConfigurationError(f"does not have the runtime {request.name} with the new configuration")
        except (ConfigurationError, OSError) as error:
            left = self._restore(before, written)
            if left:
                result = {"changed": True, "files": list(left), "previous": {path: before[path] for path in left}}
                raise RunError(f"{_message(error)}; not restored: {'; '.join(left.values())}", result) from error
            if backup:
                with contextlib.suppress(OSError):
                    os.unlink(backup)
            raise

    def _restore(self, before: Mapping[str, str | None], written: Sequence[str]) -> dict[str, str]:
        """Restore files in the reverse order, all that can be; returns the errors of the others by path."""
        left = {}
        for path in reversed(written):
            try:
                self._write(path, before[path])
            except OSError as error:
                left[path] = f"{path}: {error.strerror}"
        return left

    def _backed_up(self, path: str, text: str) -> str:
        """The path of a copy, named as other modules name theirs, which would copy the attribute i as well."""
        backup = f"{path}.{os.getpid()}.{time.strftime('%Y-%m-%d@%H:%M:%S')}~"
        atomic_write(backup, text.encode(), stat.S_IMODE(os.stat(path).st_mode))
        return backup

    def _dump(self, config: str) -> str:
        """The effective configuration: `containerd config dump` of a file."""
        executable = self._module.params["executable"]
        program = self._module.get_bin_path(executable)
        if program is None:
            raise ConfigurationError(f"is not installed: there is no executable {shortened(executable)}")
        status, output, error = self._module.run_command([program, "--config", config, "config", "dump"])
        text = str(output)
        if status != 0:
            reported = (error.strip() or text.strip() or "it reports no reason").splitlines()[-1]
            raise ConfigurationError(f"rejects its configuration: {reported}")
        if not text.strip():
            raise ConfigurationError(
                f"prints no configuration; executable is {shortened(executable)}, which is another program"
            )
        return text

    def _dump_without_drop_in(self, text: str) -> str:
        """The effective configuration without our drop-in: each import is listed, as patterns would match it."""
        directory = os.path.dirname(self._request.config)
        named = [
            path
            for pattern in imports(text)
            for path in sorted(glob.glob(os.path.join(directory, pattern)))
            if path != self._request.drop_in
        ]
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".toml", dir=self._module.tmpdir) as file:
            file.write(with_imports(text, tuple(named), 2) or "version = 2\n")
            file.flush()
            return self._dump(file.name)

    def _write(self, path: str, text: str | None) -> None:
        """Write or remove a file atomically. A link of the user to config.toml stays."""
        target = os.path.realpath(path) if path == self._request.config else path
        if text is not None:
            atomic_write(target, text.encode())
        elif os.path.lexists(target):
            os.unlink(target)


def _message(error: Exception) -> str:
    if isinstance(error, ConfigurationError):
        return f"containerd {error}"
    return f"containerd's configuration cannot be read or written: {error}{advice(error)}"


def run(module: AnsibleModule) -> dict[str, Any]:
    """One run of the module; raises ChangeError."""
    request = parse_request(module.params)
    engine = Containerd(module, request)
    try:
        observed = engine.observe()
        before, after = observed.files, plan(request, observed)
        changed = [path for path in after if before[path] != after[path]]
        if changed and not module.check_mode:
            engine.apply(before, after)
    except (ConfigurationError, OSError, UnicodeError) as error:
        raise ChangeError(_message(error)) from error
    return {
        "changed": bool(changed),
        "files": changed,
        "previous": {path: before[path] for path in changed},
        "diff": [
            {"before_header": path, "after_header": path, "before": before[path] or "", "after": after[path] or ""}
            for path in changed
        ],
    }
