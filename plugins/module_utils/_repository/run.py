# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""signed_repository: read the host, verify key and repository, change files, read back. Private to this collection."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Iterator, Sequence

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.urls import fetch_url

from .._common.atomic_write import atomic_write
from .._common.distribution import uses_dpkg
from .._common.errors import ChangeError, RunError
from .._common.file_steps import MODE, File, FileStep, diff_of, read_file, take
from .._common.host_files import HostFiles
from .._common.masking import masked
from .._common.os_errors import advice
from .._common.plain_text import one_line
from .._common.regular_file import MOST_BYTES, read_bytes
from .._common.runner import CommandResult, find_executable, run_all
from . import replies
from .keys import Key, Keyring, accepted, refuse
from .plan import Observed, Plan, Verified, plan
from .request import Request, is_list_of, parse_request, source_text

_SECONDS = 900
"""Timeout of one program; apt and dnf give up a server that does not respond long before."""
_FETCH_SECONDS = 30
_PAUSES = (2, 4, 8, 16)
_RETRIED = (-1, 408, 429, 500, 502, 503, 504)
_LOCK_ATTEMPTS, _LOCK_PAUSE = 12, 5
# Not this collection's to judge, and not for NVIDIA's repositories: the distributions' own.
_OF_DISTRIBUTION = ("debian-archive-", "ubuntu-")
_TRUSTED = ("/etc/apt/trusted.gpg", "/etc/apt/*.gpg", "/etc/apt/*.asc")
_TRUSTED_PARTS = ("/etc/apt/trusted.gpg.d/*.gpg", "/etc/apt/trusted.gpg.d/*.asc")
_RPM_KEY = re.compile(r"[0-9a-f]{8,40}")


@dataclass(frozen=True)
class Fetched:
    """A response: its HTTP status, None for a file, its error, and the content, None where there is none."""

    status: int | None
    message: str
    content: bytes | None


@dataclass
class Host:
    """The host that is changed: its files, how to run programs and to fetch, and what was done so far."""

    files: HostFiles
    fetch: Callable[[str], Fetched]
    scratch: str = ""
    done: list[FileStep] = field(default_factory=list)
    others: list[str] = field(default_factory=list)

    def run(self, argv: Sequence[str]) -> CommandResult:
        """Run a program."""
        return run_all([argv], _SECONDS)[0]

    def work(self, what: str, argv: Sequence[str], changed: Callable[[], Sequence[str]]) -> None:
        """Run a program that changes the host; raises ChangeError with `what` it was for.

        `changed` finds what it has changed, also where it was killed.
        """
        result = self.run(argv)
        self.others += changed()
        if result.rc != 0:
            raise ChangeError(f"{what}: {replies.error_message(result)}")

    @property
    def keyring(self) -> Keyring:
        """gpg for this run."""
        return Keyring(self.scratch, self.run)


def run(module: AnsibleModule, files: HostFiles) -> dict[str, Any]:
    """One run of the module; raises ChangeError."""
    params = module.params
    request = parse_request(params, uses_dpkg(files))
    host = Host(files, lambda url: _fetched(module, url))
    # Scripts of packages must not ask.
    os.environ["DEBIAN_FRONTEND"] = "noninteractive"
    try:
        with tempfile.TemporaryDirectory(prefix="gpu-fleet-") as host.scratch:
            return _converge(request, host, module.check_mode)
    except (OSError, UnicodeError) as error:
        message = f"the files of the repository {request.name}: {error}{advice(error)}"
        raise RunError(request.message(one_line(masked(message))), _done(host)) from error
    except ChangeError as error:
        raise RunError(one_line(masked(str(error))), _done(host)) from error


def _converge(request: Request, host: Host, check_mode: bool) -> dict[str, Any]:
    found, verified = plan(request, observe(request, host)), None
    if not check_mode and (found.is_verified or found.changes):
        if request.is_present:
            _install(request, found.install, host)
            verified = verify(request, host)
            found = plan(request, observe(request, host), verified)
        _apply(request, found, verified, host)
        left = plan(request, observe(request, host), verified).changes
        if left:
            raise ChangeError(
                request.message(
                    f"the repository {request.name} is not as requested after the change: {', '.join(left)}"
                )
            )
        result = _done(host)
    else:
        result = _result((*found.old, *found.files), [*found.install, *_others(found)])
    keys = verified.fingerprints if verified else tuple(key.fingerprint for key in _keys(request, host))
    return {**result, "fingerprints": list(keys)}


def _done(host: Host) -> dict[str, Any]:
    return _result(host.done, host.others)


def _result(steps: Sequence[FileStep], others: Sequence[str]) -> dict[str, Any]:
    """The module's result, where these steps were made."""
    return {
        "changed": bool(steps or others),
        "written": [step.path for step in steps if step.after is not None],
        "removed": [step.path for step in steps if step.after is None],
        "others": list(others),
        "diff": diff_of(steps),
    }


def _others(found: Plan) -> tuple[str, ...]:
    """What changes besides the files that the diff shows."""
    shown = {step.path for step in (*found.old, *found.files)}
    return tuple(name for name in found.changes if name not in shown)


# Observe


def observe(request: Request, host: Host) -> Observed:
    """Read what the plan needs of the host."""
    files, own = host.files, [request.source_file, request.key_file, request.preferences_file, *request.old_files]
    return Observed(
        files={path: read_file(files, path) for path in own if path},
        entries=dict(_entries(request, files)),
        keys=_keys(request, host),
        trusted=dict(_trusted(request, host)),
        rpm_keys=() if request.uses_apt else _rpm_keys(host),
        packages=tuple(_packages(request, files)),
        missing=tuple(_missing(request, files)),
        lists=tuple(f"{_cache(request)}/{name}" for name in files.names(_cache(request)) if is_list_of(request, name)),
        owner=(os.geteuid(), os.getegid()),
    )


def _keys(request: Request, host: Host) -> tuple[Key, ...]:
    file = read_file(host.files, request.key_file) if request.is_present else None
    return host.keyring.keys(host.files.real(request.key_file)) if file is not None and file.is_regular else ()


def _entries(request: Request, files: HostFiles) -> Iterator[tuple[str, File]]:
    """The other files that may have entries; a link is left alone, as its target belongs to others."""
    patterns = request.entry_files if request.is_present else ()
    for path in dict.fromkeys(path for pattern in patterns for path in files.matching(pattern)):
        file = read_file(files, path) if path != request.source_file else None
        if file is not None and file.is_regular:
            yield path, file


def _trusted(request: Request, host: Host) -> Iterator[tuple[str, tuple[Key, ...]]]:
    if not (request.uses_apt and request.revoked and request.is_present):
        return
    for path in dict.fromkeys(
        path for pattern in (*_TRUSTED, *_TRUSTED_PARTS) for path in host.files.matching(pattern)
    ):
        file = read_file(host.files, path)
        if file is not None and file.is_regular and not os.path.basename(path).startswith(_OF_DISTRIBUTION):
            yield path, host.keyring.keys(host.files.real(path))


def _rpm_keys(host: Host) -> tuple[str, ...]:
    """rpm stores trusted keys as packages, whose version is the end of the fingerprint."""
    listed = host.run([find_executable("rpm"), "--query", "--queryformat", "%{VERSION}\\n", "gpg-pubkey"])
    return tuple(dict.fromkeys(line for line in listed.text.split("\n") if _RPM_KEY.fullmatch(line)))


def _packages(request: Request, files: HostFiles) -> Iterator[str]:
    for name in request.old_packages if request.uses_apt else ():
        if files.exists(f"/var/lib/dpkg/info/{name}.list"):
            yield name


def _missing(request: Request, files: HostFiles) -> Iterator[str]:
    if not request.is_present:
        return
    bundle = "/etc/ssl/certs/ca-certificates.crt" if request.uses_apt else "/etc/pki/tls/certs/ca-bundle.crt"
    if not files.exists(bundle):
        yield "ca-certificates"
    if not files.exists("/usr/bin/gpg"):
        yield "gpg" if request.uses_apt else "gnupg2"


def _cache(request: Request) -> str:
    return "/var/lib/apt/lists" if request.uses_apt else "/var/cache/dnf"


# Verify


def _install(request: Request, names: Sequence[str], host: Host) -> None:
    """Install what reading and verifying the key needs."""
    if not names:
        return
    what = request.message(f"cannot install {', '.join(names)}, which verifying the repository {request.name} needs")
    if request.uses_apt:
        # Where it fails, so does the installation, or the lists that are there suffice.
        for _attempt in range(_LOCK_ATTEMPTS):
            if not replies.is_locked(host.run(["apt-get", "update"])):
                break
            time.sleep(_LOCK_PAUSE)
        argv = ["apt-get", "--option=DPkg::Lock::Timeout=60", "--yes", "install", *names]
    else:
        argv = ["dnf", "--assumeyes", "install", *names]
    host.work(what, argv, lambda: [name for name in names if name not in [*_missing(request, host.files)]])


def verify(request: Request, host: Host) -> Verified:
    """The accepted keys, after the repository was read with them alone; raises ChangeError, with the host unchanged."""
    content = _fetch_key(request, host) if request.key is None else request.key.encode()
    fetched = os.path.join(host.scratch, "fetched")
    with open(fetched, "wb") as stream:
        stream.write(content)
    found = host.keyring.keys(fetched)
    trusted = accepted(request, found, content)
    refuse(request, found, trusted)
    verified = Verified(trusted, host.keyring.exported(fetched, trusted).rstrip(b"\n") + b"\n")
    _verify_repository(request, verified, host)
    return verified


def _fetch_key(request: Request, host: Host) -> bytes:
    for attempt in range(1, request.attempts + 1):
        fetched = host.fetch(request.key_url)
        if fetched.content is not None:
            return fetched.content
        is_final = request.key_url.startswith("file:") or re.search("certificate", fetched.message, re.IGNORECASE)
        if attempt == request.attempts or is_final or fetched.status not in _RETRIED:
            break
        time.sleep(_PAUSES[attempt - 1])
    raise ChangeError(
        request.message(
            f"cannot download the key of the repository {request.name} from {request.key_url} ({attempt} attempts): "
            f"{fetched.message}; check the network or the mirror, or set {request.key_url_option}; nothing was changed"
        )
    )


def _fetched(module: AnsibleModule, url: str) -> Fetched:
    """Fetch as M(ansible.builtin.get_url) does: through the proxies of the environment, with checked certificates."""
    response, about = fetch_url(module, url, timeout=_FETCH_SECONDS, force=True)
    status = about.get("status")
    if response is None or status not in (None, 200):
        return Fetched(status, str(about.get("msg") or "no reason given"), None)
    content = response.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        return Fetched(status, f"it has more than {MOST_BYTES >> 20} MiB, which is not a key", None)
    return Fetched(status, "", content)


def _verify_repository(request: Request, verified: Verified, host: Host) -> None:
    """Read the repository with an entry and a key apart from the host's own."""
    directory = os.path.join(host.scratch, "repository")
    os.mkdir(directory)
    source, key = os.path.join(directory, os.path.basename(request.source_file)), os.path.join(directory, "key.asc")
    atomic_write(key, verified.text, MODE)
    atomic_write(source, source_text(request, key).encode(), MODE)
    # apt reads both as a user of its own.
    for path in (host.scratch, directory):
        os.chmod(path, 0o755)
    argv = _verifying(request, source)
    for attempt in range(1, request.attempts + 1):
        result = host.run(argv)
        if result.rc == 0:
            return
        _remove_partial_lists(request, host.files)
        message = replies.error_message(result)
        if replies.is_about_signature(replies.text_of(result)):
            raise ChangeError(
                request.message(
                    f"the repository {request.name} at {request.url} is not signed with the key that is accepted, "
                    f"{', '.join(verified.fingerprints)}: {message}; when the vendor has announced a new key, set its "
                    f"fingerprint in {request.fingerprints_option}; nothing was changed"
                )
            )
        if attempt == request.attempts or not replies.is_retryable(result):
            break
        time.sleep(_PAUSES[attempt - 1])
    raise ChangeError(
        request.message(
            f"the repository {request.name} at {request.url} cannot be used ({attempt} attempts): {message}; check the "
            f"network or the mirror, or set {request.url_option}; nothing was changed"
        )
    )


def _verifying(request: Request, source: str) -> list[str]:
    """Only this one entry is read, and only its lists are fetched, into their usual place."""
    if request.uses_apt:
        only = (f"Dir::Etc::sourcelist={source}", "Dir::Etc::sourceparts=/dev/null", "APT::Get::List-Cleanup=0")
        return ["apt-get", "update", "--error-on=any", *(f"--option={one}" for one in only)]
    # It imports the key from the file that was checked.
    options = (f"reposdir={os.path.dirname(source)}", f"{request.id}.skip_if_unavailable=false")
    return [
        "dnf",
        "makecache",
        "--assumeyes",
        "--refresh",
        *(f"--setopt={one}" for one in options),
        f"--repo={request.id}",
    ]


def _remove_partial_lists(request: Request, files: HostFiles) -> None:
    """apt keeps fetched files that it rejects."""
    directory = f"{_cache(request)}/partial"
    for name in files.names(directory) if request.uses_apt else ():
        if is_list_of(request, name):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(files.real(f"{directory}/{name}"))


# Apply


def _apply(request: Request, found: Plan, verified: Verified | None, host: Host) -> None:
    """Carry out the steps; each is in `done` or `others` of the host then."""
    for step in found.old:
        _write(step, host)
    if found.purge:
        what = request.message(f"cannot remove {', '.join(found.purge)}, which would restore an old entry")
        argv = ["apt-get", "--option=DPkg::Lock::Timeout=60", "--yes", "purge", *found.purge]
        host.work(what, argv, lambda: [name for name in found.purge if name not in [*_packages(request, host.files)]])
    for path, kept in (found.revoked or {}).items():
        before = read_bytes(host.files.real(path))
        is_armored = path.endswith(".asc")
        after = host.keyring.exported(host.files.real(path), kept, is_armored) if kept else None
        _write(FileStep(path, before, after), host)
    for step in found.files:
        if step.path == request.key_file and step.after is not None:
            _open_directory(host.files.real(os.path.dirname(step.path)))
        _write(step, host)
    _change_rpm(request, found, host)
    for path in found.lists:
        real = host.files.real(path)
        shutil.rmtree(real) if os.path.isdir(real) and not os.path.islink(real) else os.unlink(real)
        host.others.append(path)


def _change_rpm(request: Request, found: Plan, host: Host) -> None:
    """Remove keys from rpm, and make it trust the keys of the installed file."""
    rpm, before = find_executable("rpm"), _rpm_keys(host) if found.erased_keys or found.imported_keys else ()
    if found.erased_keys:
        what = request.message(f"cannot remove the keys {', '.join(found.erased_keys)} from rpm")
        argv = [rpm, "--erase", "--allmatches", *(f"gpg-pubkey-{version}" for version in found.erased_keys)]
        host.work(what, argv, lambda: [f"gpg-pubkey-{one}" for one in before if one not in _rpm_keys(host)])
    if found.imported_keys:
        what = request.message(f"cannot have rpm trust the key of the repository {request.name}")
        argv = [rpm, "--import", host.files.real(request.key_file)]
        host.work(what, argv, lambda: [f"gpg-pubkey-{one}" for one in _rpm_keys(host) if one not in before])


def _write(step: FileStep, host: Host) -> None:
    take(step, host.files)
    host.done.append(step)


def _open_directory(path: str) -> None:
    """apt reads keys as a user of its own, whatever the umask was."""
    os.makedirs(path, exist_ok=True)
    os.chmod(path, 0o755)
