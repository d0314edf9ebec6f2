# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The request for a signed repository, and the content of its files. Private to this collection. Pure."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any, Mapping
from urllib.parse import urlsplit

from .._common.arguments import check_path, shortened
from .._common.errors import ChangeError
from .._common.masking import masked

# What begins with it is an entry: a line of a .list, a paragraph of a .sources, a section of a .repo.
_SEPARATORS = {"list": "\n", "sources": "\n\n", "repo": "\n["}
_ANY_ENTRY = re.compile(r"^[ \t]*(deb(-src)?\s|Types\s*:|\[)", re.MULTILINE)
# What becomes a line of a file, or an argument of a program.
_LINE = re.compile(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]*")
_WORD = re.compile(r"[^\s\x00-\x1f\x7f-\x9f\ud800-\udfff]*")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._:-]*")
_FINGERPRINT = re.compile(r"[0-9A-F]{40}")
_SHA256 = re.compile(r"([0-9a-f]{64})?")
_URL = re.compile(r"(https?|file)://\S+")
_FORMS = {
    **dict.fromkeys(("role", "title", "suite", "component", "architectures"), (_LINE, "one line of text")),
    **dict.fromkeys(("url_option", "key_url_option", "fingerprints_option"), (_LINE, "one line of text")),
    **dict.fromkeys(("url", "key_url"), (_WORD, "a URL")),
    **dict.fromkeys(("name", "id", "old_packages"), (_NAME, "a name of letters, digits and . _ + : -")),
    "fingerprints": (_FINGERPRINT, "a fingerprint, 40 hexadecimal digits in capitals"),
    "key_sha256": (_SHA256, "a sha256, 64 hexadecimal digits"),
}
"""By option of the repository: the form of its values, and that in words."""

_PATHS = ("source_file", "key_file", "preferences_file", "entry_files", "old_files")


@dataclass(frozen=True)
class Request:
    """One repository; the options of the module describe the fields. `host` begins the messages, where it is known."""

    is_present: bool
    uses_apt: bool
    host: str
    revoked: tuple[str, ...]
    role: str
    name: str
    id: str
    title: str
    url: str
    suite: str
    component: str
    architectures: str
    key: str | None
    key_url: str
    fingerprints: tuple[str, ...]
    key_sha256: str
    gpgcheck: bool
    repo_gpgcheck: bool
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    priority: int | None
    source_file: str
    key_file: str
    preferences_file: str
    old_line: str
    entry_files: tuple[str, ...]
    old_packages: tuple[str, ...]
    old_files: tuple[str, ...]
    attempts: int
    url_option: str
    key_url_option: str
    fingerprints_option: str

    @property
    def key_origin(self) -> str:
        """Where the key comes from, in words."""
        return self.key_url if self.key is None else "the given key"

    @property
    def has_preferences(self) -> bool:
        """Whether apt needs a file of preferences; dnf has them in the entry."""
        return bool(self.preferences_file) and bool(self.exclude or self.priority is not None)

    def message(self, text: str) -> str:
        """The text of an error message, which begins with the host."""
        return f"{self.host}: {text}" if self.host else text


def parse_request(params: Mapping[str, Any], uses_apt: bool) -> Request:
    """The request in the options; raises ChangeError by the name of an option."""
    given = params["repository"]
    values: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    for option, text in _each({**given, "revoked": params["revoked"], "host": params["host"]}):
        form, meant = _FORMS["fingerprints"] if option == "revoked" else _FORMS.get(option, (_LINE, "one line of text"))
        if option != "key" and not form.fullmatch(text):
            # A URL may have a password.
            raise ChangeError(f"{_named(option)}: {'it' if form is _WORD else shortened(text)} is not {meant}")
        if option in _PATHS and text:
            check_path(_named(option), text)
            if os.path.normpath(text) != text or text == "/":
                raise ChangeError(f"{_named(option)}: {shortened(text)} is not the path of a file")
    request = Request(params["state"] == "present", uses_apt, params["host"], tuple(params["revoked"]), **values)
    try:
        re.compile(request.old_line)
    except (re.error, RecursionError, OverflowError) as error:
        raise ChangeError(f"repository.old_line: it is not a regular expression: {error}") from error
    if request.is_present:
        _refuse_what_is_missing(request)
        _refuse_what_cannot_be_written(request)
    return request


def _each(given: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Each string of the options with its option. An empty one is no value, except in a list."""
    found = []
    for option, value in given.items():
        if isinstance(value, list):
            found += [(option, text) for text in value]
        elif isinstance(value, str) and value:
            found.append((option, value))
    return found


def _named(option: str) -> str:
    return option if option in ("revoked", "host") else f"repository.{option}"


def _refuse_what_is_missing(request: Request) -> None:
    if not _URL.fullmatch(request.url):
        raise ChangeError(f"repository.url: {shortened(masked(request.url))} is not a URL (https, http or file)")
    if request.key is None and not _URL.fullmatch(request.key_url):
        raise ChangeError("repository.key_url: it has to be a URL (https, http or file), or set repository.key")
    if not (request.fingerprints or request.key_sha256):
        raise ChangeError("repository.fingerprints: it has to name the fingerprints of the keys that are accepted")
    if not (request.role and request.title and request.id):
        raise ChangeError("repository: role, title and id have to be set")


def _refuse_what_cannot_be_written(request: Request) -> None:
    ending = ".sources" if request.uses_apt else ".repo"
    if not request.source_file.endswith(ending):
        raise ChangeError(f"repository.source_file: {shortened(request.source_file)} does not end with {ending}")
    try:
        (request.key or "").encode()
    except UnicodeError as error:
        raise ChangeError(f"repository.key: it has characters that cannot be encoded: {error}") from error


def source_text(request: Request, key_file: str) -> str:
    """The entry for apt or dnf, with the key that it accepts."""
    lines = [f"# {request.title}; managed by gpu.fleet.{request.role}"]
    if request.uses_apt:
        lines += ["Types: deb", f"URIs: {request.url}", f"Suites: {request.suite}"]
        lines += [f"Components: {request.component}"] if request.component else []
        lines += [f"Architectures: {request.architectures}"] if request.architectures else []
        lines += [f"Signed-By: {key_file}"]
    else:
        lines += [f"[{request.id}]", f"name={request.title}", f"baseurl={request.url}", "enabled=1"]
        lines += [f"gpgcheck={int(request.gpgcheck)}", f"repo_gpgcheck={int(request.repo_gpgcheck)}"]
        lines += [
            "# A file that was checked: dnf imports by itself whatever it finds here.",
            f"gpgkey=file://{key_file}",
        ]
        lines += [f"includepkgs={' '.join(request.include)}"] if request.include else []
        lines += [f"excludepkgs={' '.join(request.exclude)}"] if request.exclude else []
        lines += [f"priority={request.priority}"] if request.priority is not None else []
    return "\n".join(lines) + "\n"


def preferences_text(request: Request) -> str:
    """The records of apt's preferences: packages that are not taken from the repository, and its priority."""
    origin = f'origin "{urlsplit(request.url).hostname or ""}"'
    pins = [(package, "-1") for package in request.exclude]
    pins += [("*", str(request.priority))] if request.priority is not None else []
    records = [f"\nPackage: {package}\nPin: {origin}\nPin-Priority: {priority}\n" for package, priority in pins]
    return "".join([f"# {request.title}; managed by gpu.fleet.{request.role}\n", *records])


def without_entries(path: str, text: str, old_line: str) -> str | None:
    """The text of a file of sources without the entries that have such a line; None where no entry is left."""
    separator = _SEPARATORS.get(path.rpartition(".")[2], "\n")
    entries = ("\n" + re.sub(r"(?m)^[ \t]+$", "", text)).split(separator)
    kept = [entry for entry in entries if not re.search(old_line, entry, re.MULTILINE)]
    if len(kept) == len(entries):
        return text
    remaining = re.sub(r"^\n", "", separator.join(kept)).rstrip("\n") + "\n"
    return remaining if _ANY_ENTRY.search(remaining) else None


def is_list_of(request: Request, name: str) -> bool:
    """Whether a file or directory of the package manager's cache, by its name, is of the repository."""
    if not request.uses_apt:
        return bool(request.id) and name.startswith((f"{request.id}-", f"{request.id}."))
    prefix = _list_prefix(request.url)
    return bool(prefix) and name.startswith(f"{prefix}_")


def _list_prefix(url: str) -> str:
    """How apt begins the names of a repository's lists: without scheme and user, some characters quoted."""
    place = re.sub(r"^[a-z]+://|/$", "", url)
    host, slash, path = place.partition("/")
    quoted = re.sub(
        r'[\\|{}\[\]<>"^~_=!@#$%&*]', lambda found: f"%{ord(found[0]):02x}", host.rpartition("@")[2] + slash + path
    )
    return quoted.replace("/", "_")
