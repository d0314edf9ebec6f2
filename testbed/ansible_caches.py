# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Keeps what each run of Ansible makes again: compiled templates and collections, and the archives of modules.

Each task of each host compiles the templates that it reads in a fork of its own, each run compiles the collections'
plugins and looks for what the modules import: more than half of the processor time of a short run. A .pth file has
Ansible's programs of .cache/venv, and tests/unit/plays.py, keep it where GPU_FLEET_ANSIBLE_CACHES names a
directory. Figures of the benchmark are measured without.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import importlib.metadata
import marshal
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import CodeType
from typing import Any

from ansible import constants
from ansible.utils.collection_loader import _collection_finder

DIRECTORY = "GPU_FLEET_ANSIBLE_CACHES"
_PLUGINS = "ansible_collections/gpu/fleet/plugins"
_DAY_S = 86400


def _kept(directory: Path, key: str, make: Callable[[], CodeType]) -> CodeType:
    path = directory / hashlib.sha256(f"{sys.version} {key}".encode(errors="surrogatepass")).hexdigest()
    try:
        code: CodeType = marshal.loads(path.read_bytes())
    except (OSError, EOFError, ValueError, TypeError):
        code = make()
        # Another process may write the same one just now.
        own = path.with_suffix(f".{os.getpid()}")
        with contextlib.suppress(OSError):
            own.write_bytes(marshal.dumps(code))
            own.rename(path)
    return code


def keep_templates(directory: Path) -> None:
    """Keep the code of templates.

    It depends on nothing but the text and what is in the key: Ansible has no constants evaluated when it compiles.
    """
    from ansible._internal._templating import _jinja_bits  # noqa: PLC0415 # since ansible-core 2.19

    directory.mkdir(parents=True, exist_ok=True)
    environment = _jinja_bits.AnsibleEnvironment
    of_jinja = environment.compile
    versions = [importlib.metadata.version(name) for name in ("ansible-core", "jinja2")]

    def compiled(self: Any, source: Any, *arguments: Any, **options: Any) -> Any:
        if not isinstance(source, str) or arguments or options:
            return of_jinja(self, source, *arguments, **options)
        context = _jinja_bits._TemplateCompileContext.current(optional=True)
        syntax = [getattr(self, name) for name in _jinja_bits._TEMPLATE_OVERRIDE_FIELD_NAMES]
        escapes = context and context.escape_backslashes
        key = repr((str(source), syntax, escapes, sorted(self.extensions), versions))
        return _kept(directory, key, lambda: of_jinja(self, source))

    environment.compile = compiled


def keep_collections(directory: Path) -> None:
    """Keep the bytecode of what belongs to a collection."""
    directory.mkdir(parents=True, exist_ok=True)

    def compiled(source: str | bytes, filename: str, **options: Any) -> CodeType:
        return _kept(directory, repr((source, filename)), lambda: compile(source, filename, **options))

    _collection_finder.compile = compiled


def keep_modules(directory: Path) -> None:
    """Keep the archives that Ansible sends to hosts, as long as no file of this collection's plugins changes."""
    paths = os.environ.get("ANSIBLE_COLLECTIONS_PATH", "").split(":")
    found = [path for path in paths if Path(path, _PLUGINS).is_dir()]
    if len(found) != 1:
        return  # Ansible finds the collection elsewhere, or a test has replaced modules of it
    states = [
        (str(path), status.st_mtime_ns, status.st_size)
        for path in sorted(Path(found[0], _PLUGINS).resolve().glob("module*/**/*.py"))
        for status in (path.stat(),)
    ]
    others = [importlib.metadata.version("ansible-core"), os.environ.get("ANSIBLE_LIBRARY"), sys.version]
    kept = directory / hashlib.sha256(repr((states, others)).encode()).hexdigest()
    if not kept.is_dir():
        for other in directory.glob("*"):
            if time.time() - other.stat().st_mtime > _DAY_S:
                shutil.rmtree(other, ignore_errors=True)
        kept.mkdir(parents=True, exist_ok=True)
    Path(constants.DEFAULT_LOCAL_TMP, "ansiballz_cache").symlink_to(kept)


def keep_all() -> None:
    """Keep all of them below the directory that the environment names.

    Nor is anything collected: a run ends within minutes, and each of its forks would pass over all that it inherited.
    """
    gc.disable()
    directory = Path(os.environ[DIRECTORY])
    keep_collections(directory / "collections")
    keep_templates(directory / "templates")
    keep_modules(directory / "modules")
