# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values of the variables of this collection's roles, for the plan of a host. Private to this collection.

Ansible compiles a template each time it evaluates it, and a plan has hundreds, in each fork, for each host. Here the
templates of the roles' files are compiled once, in Ansible's main process, whose forks inherit them, and each variable
is evaluated at most once for a host. Jinja, its filters and tests are those of Ansible. Only templates of this
collection are evaluated so: a variable of the user is a value here, which Ansible has evaluated.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from datetime import UTC, datetime
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.loader import filter_loader, test_loader
from jinja2 import ChainableUndefined, StrictUndefined, TemplateError, Undefined, nodes
from jinja2.exceptions import UndefinedError
from jinja2.filters import FILTERS
from jinja2.lexer import Lexer
from jinja2.nativetypes import NativeCodeGenerator, NativeEnvironment, NativeTemplate
from jinja2.tests import TESTS

Value = Any

# The filters and tests that take what is undefined: they are Jinja's, as is what it takes for undefined.
_OF_UNDEFINED = ("default", "d", "defined", "undefined")
_ITERATORS = (Iterator, ItemsView, KeysView, ValuesView, range)
_NAME = re.compile(r"\b[a-z_][a-z0-9_]*")


class CompiledVariables:
    """Variables of roles by name, whose templates are compiled here, with all that these names depend on."""

    def __init__(self, variables: Mapping[str, Value], names: Iterable[str]) -> None:
        self._environment = _Environment()
        self._compiled: dict[str, Value] = {}
        due = list(names)
        while due:
            name = due.pop()
            if name in variables and name not in self._compiled:
                self._compiled[name] = self._compile(variables[name])
                due += _NAME.findall(str(variables[name]))

    def of_host(self, known: Mapping[str, Value], given: Callable[[str], Value]) -> HostValues:
        """The variables on one host. `known` are values; `given` gives the user's, and raises KeyError."""
        return HostValues(self._compiled, {**self._environment.globals, **known}, given)

    def _compile(self, value: Value) -> Value:
        if isinstance(value, str):
            return self._environment.from_string(value) if "{{" in value else value
        if isinstance(value, Mapping):
            return {key: self._compile(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._compile(item) for item in value]
        return value


class HostValues:
    """Variables of roles on one host, evaluated on demand."""

    def __init__(
        self, compiled: Mapping[str, Value], known: Mapping[str, Value], given: Callable[[str], Value]
    ) -> None:
        self._compiled = compiled
        self._known = known
        self._given = given
        self._found: dict[str, Value] = {}

    def value(self, name: str) -> Value:
        """The value of a variable; raises AnsibleError where it, or what it needs, cannot be evaluated."""
        try:
            found = self[name]
            _refuse_undefined(found)
        except KeyError:
            raise AnsibleError(f"{name} is undefined") from None
        except TemplateError as error:
            raise AnsibleError(f"{name}: {error}") from error
        return found

    def where(self, **known: Value) -> HostValues:
        """The same variables where these are known as well; all are evaluated again."""
        return HostValues(self._compiled, {**self._known, **known}, self._given)

    # What Jinja asks of the variables of a template.

    def __contains__(self, name: str) -> bool:
        try:
            self[name]
        except KeyError:
            return False
        return True

    def __getitem__(self, name: str) -> Value:
        if name in self._known:
            return self._known[name]
        if name not in self._found:
            try:
                self._found[name] = self._given(name)
            except KeyError:
                self._found[name] = self._evaluated(self._compiled[name])
        return self._found[name]

    def _evaluated(self, compiled: Value) -> Value:
        if isinstance(compiled, Mapping):
            return {key: self._evaluated(item) for key, item in compiled.items()}
        if isinstance(compiled, list):
            return [self._evaluated(item) for item in compiled]
        if not isinstance(compiled, _Template):
            return compiled
        # A variable is evaluated before it is known whether the template needs it, so an error is one where it is used.
        try:
            return _joined(compiled.root_render_func(compiled.new_context(self, shared=True)))  # type: ignore[arg-type]
        except UndefinedError as error:
            return _Undefined(str(error))
        except Exception as error:  # pylint: disable=broad-exception-caught
            return _Failed(str(error))


class _Undefined(ChainableUndefined, StrictUndefined):
    """What is undefined may be asked for more, as in Ansible; its use is an error."""


class _Failed(_Undefined):
    """What cannot be evaluated. No default stands for it."""


def _refuse_undefined(value: Value) -> None:
    """Raise the error of the first value that has one."""
    if isinstance(value, Undefined):
        bool(value)
    elif isinstance(value, Mapping):
        for item in value.values():
            _refuse_undefined(item)
    elif isinstance(value, list):
        for item in value:
            _refuse_undefined(item)


def _joined(values: Iterable[Value]) -> Value:
    """The value of a template: that of its only expression, or text."""
    found = list(values)
    return _listed(found[0]) if len(found) == 1 else "".join(map(str, found))


def _listed(value: Value) -> Value:
    return list(value) if isinstance(value, _ITERATORS) else value


class _Plugins(dict[str, Callable[..., Value]]):
    """Filters or tests of Ansible and of Jinja by name, loaded when a template that is compiled has them."""

    def __init__(self, loader: Any, of_jinja: Mapping[str, Any]) -> None:
        super().__init__()
        self._loader = loader
        self._of_jinja = of_jinja

    def __contains__(self, name: object) -> bool:
        return self.get(str(name)) is not None

    def __missing__(self, name: str) -> Callable[..., Value]:
        plugin = None if name in _OF_UNDEFINED else self._loader.get(name)
        function = self._of_jinja[name] if plugin is None else plugin.j2_function
        self[name] = _guarded(function, takes_undefined=name in _OF_UNDEFINED)
        return self[name]

    def get(self, name: str, default: Any = None) -> Any:
        """The function of a plugin."""
        try:
            return self[name]
        except KeyError:
            return default


def _guarded(function: Callable[..., Value], takes_undefined: bool) -> Callable[..., Value]:
    """The function of a filter or test, which is called with what is undefined only if it is made for that."""

    @functools.wraps(function)
    def call(*args: Value, **kwargs: Value) -> Value:
        undefined = next((item for item in (*args, *kwargs.values()) if isinstance(item, Undefined)), None)
        if undefined is not None and (isinstance(undefined, _Failed) or not takes_undefined):
            return undefined
        return _listed(function(*args, **kwargs))

    return call


class _Lexer(Lexer):
    def tokeniter(self, *args: Any, **kwargs: Any) -> Iterator[tuple[int, str, str]]:
        """As Ansible's: a backslash in a constant is itself, which regular expressions need."""
        for line, kind, text in super().tokeniter(*args, **kwargs):
            yield line, kind, text.replace("\\", "\\\\") if kind == "string" else text


class _CodeGenerator(NativeCodeGenerator):
    def _output_child_to_const(self, node: nodes.Expr, *args: Any) -> Any:
        """Constants keep their type: Jinja would write them as text."""
        if not isinstance(node, nodes.TemplateData):
            raise nodes.Impossible
        return super()._output_child_to_const(node, *args)


class _Environment(NativeEnvironment):
    code_generator_class = _CodeGenerator
    concat = staticmethod(_joined)
    lexer = property(_Lexer)

    def __init__(self) -> None:
        # As Ansible's.
        super().__init__(undefined=_Undefined, trim_blocks=True, keep_trailing_newline=True)
        self.filters = _Plugins(filter_loader, FILTERS)
        self.tests = _Plugins(test_loader, TESTS)  # type: ignore[assignment]
        self.globals.update(now=_now)


class _Template(NativeTemplate):
    environment_class = _Environment  # type: ignore[assignment]


_Environment.template_class = _Template


def _now(utc: bool = False, fmt: str = "") -> Value:
    """As Ansible's function of this name."""
    time = datetime.now(UTC).replace(tzinfo=None) if utc else datetime.now()
    return time.strftime(fmt) if fmt else time
