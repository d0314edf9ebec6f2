# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All that differs between the releases of ansible-core on a controller. Private to this collection.

ansible-core 2.19 has a new templating. Before it, a template returns text, and null becomes the empty text; with the
setting jinja2_native it returns what it evaluates to, but a text that looks like a number becomes one: 12.10 is 12.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any, Literal

from ansible import constants
from ansible.errors import AnsibleError
from ansible.release import __version__ as _installed

from ._planning.contract import Ask
from ._planning.plain import plain

OLDEST_CORE = (2, 16)
"""As in meta/runtime.yml, of which ansible-core itself only warns."""
_NEW_TEMPLATING = (2, 19)
UNDECRYPTED = ("undecryptable", "no vault secrets", "Decryption failed")
"""Words about a secret whose password is not given or another one: the first since 2.19."""


def _series(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])


REQUIRES_NATIVE = _series(_installed) < _NEW_TEMPLATING
"""Whether the templating is the old one, and has to be set to return types."""
# New ones have no such setting, or will not have it.
_IS_NATIVE = bool(getattr(constants, "DEFAULT_JINJA2_NATIVE", True))


def refuse_old_core(version: str = _installed, native: bool = _IS_NATIVE) -> None:
    """Raise AnsibleError for an ansible-core that the collection does not work with, or not as it is configured."""
    if _series(version) < OLDEST_CORE:
        oldest = ".".join(map(str, OLDEST_CORE))
        raise AnsibleError(
            f"ansible-core {version} is too old for gpu.fleet, which needs {oldest} or newer; run `pip install "
            f"--upgrade 'ansible-core>={oldest}'` in the environment of ansible-playbook, with Python 3.10 or newer"
        )
    if _series(version) < _NEW_TEMPLATING and not native:
        raise AnsibleError(
            f"with ansible-core {version} templates of gpu.fleet would lose null and the types of values; set "
            "jinja2_native = true in the section [defaults] of ansible.cfg, or ANSIBLE_JINJA2_NATIVE=true, or use "
            "ansible-core 2.19 or newer, which needs no setting"
        )


def of_task(result: Any, part: Literal["host", "result", "task"]) -> Any:
    """A part of what a callback gets of a task."""
    return getattr(result, part) if hasattr(result, part) else getattr(result, f"_{part}")


def evaluated(templar: Any, value: Any) -> Any:
    """A value with its templates evaluated, of the types that they have. Raises AnsibleError."""
    return _opened(plain(_typed(templar).template(value))) if REQUIRES_NATIVE else plain(templar.template(value))


_PACKAGE_MANAGERS = ("apt", "dnf")
_ABSENT = "is not a directory"
"""What `find` warns of a path that does not exist or is a file. From ansible-core 2.19 on a warning is an object."""


def reading(action: Any, module: str, arguments: Mapping[str, Any], variables: dict[str, Any]) -> dict[str, Any]:
    """The result of a module that only reads, in check mode too; what may change the host previews it, in any mode."""
    task, is_ours = action._task, "." in module
    before = task.check_mode, task.no_log
    # The host's log has no options of a preview, which may be secret.
    task.check_mode, task.no_log = is_ours or module in _PACKAGE_MANAGERS, is_ours or task.no_log
    name = module if is_ours else f"ansible.legacy.{module}"
    try:
        found = action._execute_module(name, dict(arguments), task_vars=variables)
    finally:
        task.check_mode, task.no_log = before
    # A stage may return what was read, and Ansible's own error of a failed module can be in no variable.
    read: dict[str, Any] = plain({key: value for key, value in found.items() if key != "exception"})
    if module == "find" and "warnings" in read:
        # A missing directory is a result, not a reason to warn.
        read["warnings"] = [warning for warning in read["warnings"] if _ABSENT not in str(warning)]
    return read


def readings(action: Any, asked: Ask, variables: dict[str, Any]) -> dict[str, Any]:
    """The results of what a stage asks for, by name."""
    return {
        name: {"results": [reading(action, *each, variables) for each in one]}
        if isinstance(one, list)
        else reading(action, *one, variables)
        for name, one in asked.readings.items()
    }


def for_templates(result: dict[str, Any]) -> dict[str, Any]:
    """The result of an action, whose strings stay strings in templates."""
    kept: dict[str, Any] = _kept(result) if REQUIRES_NATIVE else result
    return kept


if REQUIRES_NATIVE:
    from ansible.parsing.yaml.objects import AnsibleVaultEncryptedUnicode
    from ansible.template import AnsibleNativeEnvironment
    from ansible.template.native_helpers import ansible_concat
    from ansible.utils.native_jinja import NativeJinjaText
    from jinja2 import pass_context

    def _joined(nodes: Iterable[Any]) -> Any:
        """The one value of a template, or the text of its parts: as in 2.19, no text is made a number."""
        rest: Iterator[Any] = iter(nodes)
        first = [*islice(rest, 2)]
        return first[0] if len(first) == 1 else ansible_concat(chain(first, rest))

    class _Typed(AnsibleNativeEnvironment):  # type: ignore[misc]  # ansible-core has no types
        concat = staticmethod(_joined)

    def _typed(templar: Any) -> Any:
        copy = templar.copy_with_new_env(environment_class=_Typed)
        # Ansible knows its own class only.
        copy.jinja2_native = True
        # What needs the context is not evaluated when a template is compiled, which makes a text of each constant.
        finalize = copy.environment.finalize
        copy.environment.finalize = pass_context(lambda _context, value: finalize(value))
        return copy

    def _opened(value: Any) -> Any:
        """A plain value with its secrets decrypted."""
        if isinstance(value, dict):
            return {key: _opened(item) for key, item in value.items()}
        if isinstance(value, list):
            return [_opened(item) for item in value]
        return value.data if isinstance(value, AnsibleVaultEncryptedUnicode) else value

    def _kept(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: _kept(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [_kept(item) for item in value]
        return NativeJinjaText(value) if isinstance(value, str) else value
