#!/usr/bin/python
# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Configure a runtime of containerd in a drop-in."""

from __future__ import annotations

DOCUMENTATION = r"""
module: containerd_runtime
short_description: Give containerd one more runtime, in a drop-in
version_added: 0.1.0
description:
  - Writes a drop-in with a runtime for containerd's CRI plugin, as Kubernetes uses it, and has C(config.toml) import
    it. All else of C(config.toml) stays as it is, other imports too.
  - containerd 1.x takes a plugin's section from the last file that has it, as a whole. So the drop-in repeats what is
    in force for the CRI plugin. It is generated again when that has changed.
  - The new configuration is tried with C(containerd config dump). When containerd does not take it, the files are put
    back.
  - containerd itself is not restarted.
author:
  - gpu.fleet contributors (@gpu-fleet)
extends_documentation_fragment:
  - gpu.fleet.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  name:
    description: Name of the runtime.
    type: str
    default: nvidia
  binary:
    description: Its program. In all else the runtime is like the default one.
    type: path
    default: /usr/bin/nvidia-container-runtime
  state:
    description: With V(absent) the drop-in goes, and its import when no other file needs it.
    type: str
    choices: [present, absent]
    default: present
  cdi:
    description: Whether the plugin is to read CDI specifications. Before containerd 1.7 it does not know of them.
    type: bool
    default: true
  default:
    description: Whether it is the runtime of containers that name none.
    type: bool
    default: false
  config:
    description: containerd's configuration. One that is not there is made.
    type: path
    default: /etc/containerd/config.toml
  drop_in:
    description: The drop-in.
    type: path
    default: /etc/containerd/conf.d/99-nvidia.toml
  executable:
    description: containerd.
    type: str
    default: containerd
"""

EXAMPLES = r"""
- name: Let Kubernetes run containers with NVIDIA's runtime
  gpu.fleet.containerd_runtime:
  notify: Restart containerd

- name: Take it away again
  gpu.fleet.containerd_runtime:
    state: absent
"""

RETURN = r"""
files:
  description: The files that were written or removed, or would be.
  returned: success
  type: list
  elements: str
  sample: [/etc/containerd/conf.d/99-nvidia.toml]
"""

import glob
import os
import re
import tempfile
from typing import Any, Dict, Optional

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpu.fleet.plugins.module_utils._common.arguments import check_path, shortened
from ansible_collections.gpu.fleet.plugins.module_utils._files.containerd import (
    NOTE,
    ConfigurationError,
    drop_in,
    has_runtime,
    imports,
    is_ours,
    with_imports,
)

ARGUMENT_SPEC: dict[str, dict[str, Any]] = {
    "name": {"type": "str", "default": "nvidia"},
    "binary": {"type": "path", "default": "/usr/bin/nvidia-container-runtime"},
    "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
    "cdi": {"type": "bool", "default": True},
    "default": {"type": "bool", "default": False},
    "config": {"type": "path", "default": "/etc/containerd/config.toml"},
    "drop_in": {"type": "path", "default": "/etc/containerd/conf.d/99-nvidia.toml"},
    "executable": {"type": "str", "default": "containerd"},
}

# Characters that would end a TOML string or begin another key.
_NOT_IN_TOML = re.compile(r"[\"\\\x00-\x1f\x7f]")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_DROP_IN = re.compile(r"[^*?\[\]]*/[^/*?\[\]]+\.toml")
Files = Dict[str, Optional[str]]
"""Content by path; None means no file."""


def read(path: str) -> str | None:
    """The content of a file, None when there is none."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return None


def dump(module: AnsibleModule, config: str) -> str:
    """The effective configuration: `containerd config dump` of a file."""
    engine = module.get_bin_path(module.params["executable"])
    if engine is None:
        raise ConfigurationError(f"is not installed: there is no executable {shortened(module.params['executable'])}")
    status, output, error = module.run_command([engine, "--config", config, "config", "dump"])
    text = str(output)
    if status != 0:
        reported = (error.strip() or text.strip() or "it does not say why").splitlines()[-1]
        raise ConfigurationError(f"does not take its configuration: {reported}")
    return text


def dump_without(module: AnsibleModule, text: str, own: str) -> str:
    """The effective configuration without our drop-in: imports are listed one by one, as patterns would match it."""
    directory = os.path.dirname(module.params["config"])
    named = [
        path for pattern in imports(text) for path in sorted(glob.glob(os.path.join(directory, pattern))) if path != own
    ]
    handle, temporary = tempfile.mkstemp(suffix=".toml", dir=module.tmpdir)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(with_imports(text, tuple(named), 2) or "version = 2\n")
    return dump(module, temporary)


def plan(module: AnsibleModule) -> tuple[Files, Files]:
    """The current and the desired files."""
    config, own = module.params["config"], module.params["drop_in"]
    pattern = os.path.join(os.path.dirname(own), "*.toml")
    before: Files = {config: read(config), own: read(own)}
    text = before[config] or ""
    if module.params["state"] == "absent":
        others = [path for path in glob.glob(pattern) if path != own]
        rest = tuple(item for item in imports(text) if item != pattern or others)
        after = with_imports(text, rest, 2) if rest != imports(text) else text
        return before, {config: None if is_ours(after) or before[config] is None else after, own: None}
    options = (module.params["name"], module.params["binary"], module.params["cdi"], module.params["default"])
    desired = drop_in(dump_without(module, text, own), *options)
    has_it = any(os.path.join(os.path.dirname(config), item) in (pattern, own) for item in imports(text))
    # The imported file first, then the import: an interrupted run leaves no dangling import.
    return before, {
        own: desired,
        config: text if has_it else with_imports(text, (*imports(text), pattern), 2),
    }


def put(module: AnsibleModule, files: Files) -> None:
    """Write or remove each file atomically."""
    for path, text in files.items():
        if text is None:
            if os.path.lexists(path):
                os.unlink(path)
            continue
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=module.tmpdir)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        existed = os.path.exists(path)
        module.atomic_move(temporary, path)
        if not existed:
            os.chmod(path, 0o644)


def apply(module: AnsibleModule, before: Files, after: Files) -> None:
    """Write, and check that containerd has the runtime; else roll back."""
    config = module.params["config"]
    theirs = not (before[config] or NOTE).startswith(NOTE)
    if theirs and before[config] != after[config]:
        module.backup_local(config)
    try:
        put(module, after)
        if module.params["state"] == "absent":
            return
        if not has_runtime(dump(module, config), module.params["name"], module.params["binary"]):
            raise ConfigurationError(f"does not have the runtime {module.params['name']} with the new configuration")
    except (ConfigurationError, OSError):
        put(module, before)
        raise


def main() -> None:
    """Converge and return."""
    module = AnsibleModule(
        argument_spec=ARGUMENT_SPEC,
        supports_check_mode=True,
    )
    for option in ("config", "drop_in", "binary"):
        check_path(module, option)
        if _NOT_IN_TOML.search(module.params[option]):
            module.fail_json(
                msg=f"{option}: {shortened(module.params[option])} has a quote, backslash or control character"
            )
    if not _NAME.fullmatch(module.params["name"]):
        module.fail_json(msg=f"name: {shortened(module.params['name'])} is not a name of letters, digits and _ . -")
    if not _DROP_IN.fullmatch(module.params["drop_in"]):
        module.fail_json(
            msg=f"drop_in: {module.params['drop_in']} is not imported; its name has to end in .toml, without * ? [ ]"
        )
    try:
        before, after = plan(module)
        changed = [path for path in after if before[path] != after[path]]
        if changed and not module.check_mode:
            apply(module, before, after)
    except ConfigurationError as error:
        module.fail_json(msg=f"containerd {error}", exception=error)
    except (OSError, UnicodeError) as error:
        module.fail_json(msg=f"containerd's configuration cannot be read or written: {error}", exception=error)
    module.exit_json(
        changed=bool(changed),
        files=changed,
        diff=[
            {
                "before_header": path,
                "after_header": path,
                "before": before[path] or "",
                "after": after[path] or "",
            }
            for path in changed
        ],
    )


if __name__ == "__main__":
    main()
