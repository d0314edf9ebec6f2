# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""signed_repository on a host that is a directory, with scripted gpg, apt, dnf, rpm and server."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpu.fleet.plugins.module_utils._common.host_files import HostFiles
from ansible_collections.gpu.fleet.plugins.module_utils._common.runner import CommandResult
from ansible_collections.gpu.fleet.plugins.module_utils._repository import replies, run
from ansible_collections.gpu.fleet.plugins.module_utils._repository.keys import Key, accepted, parse_keys
from ansible_collections.gpu.fleet.plugins.module_utils._repository.request import (
    Request,
    is_list_of,
    parse_request,
    without_entries,
)
from ansible_collections.gpu.fleet.plugins.modules import signed_repository
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.registry import PLANNERS
from ansible_collections.gpu.fleet.plugins.plugin_utils._roles.nvidia_driver import installation

from tests.unit.conftest import ROOT
from tests.unit.containers.test_docker_plan import ROCKY, stage
from tests.unit.module_runs import run_module
from tests.unit.repository.test_repository_variables import (
    DEBIAN12,
    OURS,
    ROCKY9,
    UBUNTU24,
    VARIABLES,
    defined,
    facts_of,
)

FIRST, SECOND, OTHER, REVOKED = (digit * 40 for digit in "123A")
URL = "https://mirror.example.com/tools/"
LISTS = "/var/lib/apt/lists/mirror.example.com_tools_"
APT = {
    "name": "tools",
    "role": "example",
    "id": "tools",
    "title": "Tools",
    "url": URL,
    "key_url": f"{URL}key.asc",
    "fingerprints": [FIRST],
    "source_file": "/etc/apt/sources.list.d/tools.sources",
    "key_file": "/etc/apt/keyrings/tools.asc",
    "preferences_file": "/etc/apt/preferences.d/tools",
    "old_line": r"^[^#\n]*//mirror\.example\.com/tools",
    "entry_files": ["/etc/apt/sources.list", "/etc/apt/sources.list.d/*.list", "/etc/apt/sources.list.d/*.sources"],
}
DNF = {
    **APT,
    "source_file": "/etc/yum.repos.d/tools.repo",
    "key_file": "/etc/pki/rpm-gpg/RPM-GPG-KEY-tools",
    "preferences_file": "",
    "entry_files": ["/etc/yum.repos.d/*.repo"],
}
_ENTRY = """\
# Tools; managed by gpu.fleet.example
Types: deb
URIs: https://mirror.example.com/tools/
Suites: /
Signed-By: /etc/apt/keyrings/tools.asc
"""
_SECTION = """\
# Tools; managed by gpu.fleet.example
[tools]
name=Tools
baseurl=https://mirror.example.com/tools/
enabled=1
gpgcheck=1
repo_gpgcheck=0
# A file that was checked: dnf imports by itself whatever it finds here.
gpgkey=file:///etc/pki/rpm-gpg/RPM-GPG-KEY-tools
includepkgs=dkms
excludepkgs=mft* kernel-mft*
priority=10
"""


def key_file(*keys: str) -> str:
    """A file with keys: fingerprints, with r or e behind the colon where the key is over."""
    return "".join(f"KEY {key}\n" for key in keys)


def _shown(text: str) -> str:
    found = [line.split()[1].partition(":") for line in text.splitlines() if line.startswith("KEY ")]
    return "".join(f"pub:{over or '-'}:4096:1:X:::\nfpr:::::::::{key}:\n" for key, _colon, over in found)


@dataclass
class Server:
    """A host, what its programs do, and what a server has: a key file, or a status."""

    root: Path
    monkeypatch: pytest.MonkeyPatch
    key: str | int = key_file(FIRST)
    replies: list[str] = field(default_factory=list)
    """What the package manager prints about the repository, one after the other; it succeeds after them."""
    rpm_keys: list[str] = field(default_factory=list)
    commands: list[list[str]] = field(default_factory=list)
    fetched: int = 0
    slept: list[float] = field(default_factory=list)

    def file(self, path: str) -> Path:
        """A file of the host."""
        return self.root / path.lstrip("/")

    def write(self, path: str, text: str, mode: int = 0o644) -> None:
        """Write a file of the host."""
        self.file(path).parent.mkdir(parents=True, exist_ok=True)
        self.file(path).write_text(text)
        self.file(path).chmod(mode)

    def run_all(self, commands: Sequence[Sequence[str]], _timeout: float) -> tuple[CommandResult, ...]:
        """Run mock programs."""
        return tuple(self._run(list(argv)) for argv in commands)

    def _run(self, argv: list[str]) -> CommandResult:
        self.commands.append(argv)
        rc, out = 0, ""
        program = Path(argv[0]).name
        if program == "gpg":
            home = Path(argv[argv.index("--homedir") + 1])
            assert home.is_dir() and home.stat().st_mode & 0o077 == 0
            if "--show-keys" in argv:
                out = _shown(Path(argv[-1]).read_text())
            elif "--import" in argv:
                (home / "ring").write_text(Path(argv[-1]).read_text())
            else:
                lines = (home / "ring").read_text().splitlines()
                out = "".join(f"{line}\n" for line in lines if line[4:44] in argv)
        elif program == "rpm" and "--query" in argv:
            out, rc = "".join(f"{key}\n" for key in self.rpm_keys), int(not self.rpm_keys)
        elif program == "rpm" and "--import" in argv:
            self.rpm_keys += [line[36:44].lower() for line in Path(argv[-1]).read_text().splitlines()]
        elif program == "rpm":
            self.rpm_keys.remove(argv[-1].removeprefix("gpg-pubkey-"))
        elif ("update" in argv and len(argv) > 2) or "makecache" in argv:
            if self.replies:
                return CommandResult(tuple(argv), 100, b"", self.replies.pop(0).encode(), 0.1)
            lists = f"{LISTS}_Packages" if program == "apt-get" else "/var/cache/dnf/tools-0123/repomd.xml"
            self.write(lists, "")
        elif "purge" in argv:
            self.file(f"/var/lib/dpkg/info/{argv[-1]}.list").unlink()
        elif "install" in argv:
            self.write("/usr/bin/gpg", "")
            self.write("/etc/ssl/certs/ca-certificates.crt", "")
        return CommandResult(tuple(argv), rc, out.encode(), b"", 0.1)

    def fetch(self, _module: Any, _url: str, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Ansible's fetch_url."""
        assert options == {"timeout": 30, "force": True}
        self.fetched += 1
        if isinstance(self.key, str):
            return io.BytesIO(self.key.encode()), {"status": 200, "msg": "OK"}
        return None, {"status": self.key, "msg": f"HTTP Error {self.key}: it is so"}

    def __call__(
        self, repository: Mapping[str, Any] | None = None, check: bool = False, **options: Any
    ) -> dict[str, Any]:
        """One run of the module."""
        arguments = {"host": "gpu7", "repository": dict(repository or APT), **options}
        return run_module(signed_repository, self.monkeypatch, arguments, check)

    def contents(self) -> dict[str, str]:
        """The files of the host, but for lists of packages."""
        files = (path for path in self.root.rglob("*") if path.is_file() and "var" not in path.parts)
        return {f"/{path.relative_to(self.root)}": path.read_text() for path in files}


@pytest.fixture(name="server")
def _server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server(tmp_path / "host", monkeypatch)
    server.write("/etc/os-release", "ID=debian\n")
    server.write("/usr/bin/gpg", "")
    server.write("/etc/ssl/certs/ca-certificates.crt", "")
    server.write("/etc/pki/tls/certs/ca-bundle.crt", "")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(signed_repository, "HOST", HostFiles(str(server.root)))
    monkeypatch.setattr(run, "run_all", server.run_all)
    monkeypatch.setattr(run, "fetch_url", server.fetch)
    monkeypatch.setattr("time.sleep", server.slept.append)
    return server


@pytest.fixture(name="dnf")
def _dnf(server: Server) -> Server:
    server.write("/etc/os-release", "ID=rocky\nID_LIKE='rhel fedora'\n")
    return server


def test_a_bare_host_gets_key_and_entry_and_has_no_work_then(server: Server) -> None:
    server.file("/usr/bin/gpg").unlink()
    predicted = server(check=True)
    assert (predicted["changed"], server.fetched, "tools" in str(server.contents())) == (True, 0, False)
    os.umask(0o077)
    result = server()
    os.umask(0o022)
    assert result["changed"] and result["fingerprints"] == [FIRST]
    own = [str(APT[name]) for name in ("key_file", "source_file")]
    assert result["written"] == predicted["written"] == own
    assert result["others"] == predicted["others"] == ["gpg"]
    assert server.file(own[0]).read_text() == key_file(FIRST)
    assert server.file(own[1]).read_text() == _ENTRY
    assert [server.file(path).stat().st_mode & 0o777 for path in own] == [0o644, 0o644]
    assert server.file("/etc/apt/keyrings").stat().st_mode & 0o777 == 0o755
    assert [diff["after"] for diff in result["diff"]][-1] == [diff["after"] for diff in predicted["diff"]][-1] == _ENTRY
    assert f"(the key {FIRST})" in predicted["diff"][0]["after"]
    before = (server.fetched, server.contents())
    for check in (True, False):
        again = server(check=check)
        assert (again["changed"], again["fingerprints"], again["diff"]) == (False, [FIRST], [])
    assert (server.fetched, server.contents()) == before
    assert not [*(server.root.parent / "tmp").iterdir()]


def test_the_repository_is_verified_with_an_entry_of_its_own_while_the_host_is_unchanged(server: Server) -> None:
    server.replies = ["E: 'x' is not signed. NO_PUBKEY 1"]
    before = server.contents()
    result = server()
    assert result["failed"] and not result["changed"] and server.contents() == before
    (argv,) = [argv for argv in server.commands if argv[0] == "apt-get"]
    assert argv[:3] == ["apt-get", "update", "--error-on=any"]
    assert argv[4:] == ["--option=Dir::Etc::sourceparts=/dev/null", "--option=APT::Get::List-Cleanup=0"]
    assert argv[3].endswith("/repository/tools.sources") and str(server.root) not in argv[3]
    assert result["msg"] == (
        f"gpu7: the repository tools at {URL} is not signed with the key that is accepted, {FIRST}: 'x' is not signed. "
        "NO_PUBKEY 1; when the vendor has announced a new key, set its fingerprint in fingerprints; nothing was changed"
    )


def test_where_the_lists_are_gone_they_are_read_again_and_nothing_is_changed(server: Server) -> None:
    server()
    server.file(f"{LISTS}_Packages").unlink()
    assert not server()["changed"]
    assert (server.fetched, server.file(f"{LISTS}_Packages").exists()) == (2, True)


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (
            key_file(OTHER),
            f"is not trusted: {URL}key.asc has {OTHER}; accepted: {FIRST}; when the vendor has announced",
        ),
        ("<html>", f"is not trusted: {URL}key.asc has no key at all; accepted: {FIRST};"),
        (key_file(f"{FIRST}:r"), f"the key {FIRST} of the repository tools is revoked or has expired; find the"),
        (key_file(f"{FIRST}:e"), f"the key {FIRST} of the repository tools is revoked or has expired; find the"),
        (404, f"cannot download the key of the repository tools from {URL}key.asc (1 attempts): HTTP Error 404: it is"),
        (503, f"cannot download the key of the repository tools from {URL}key.asc (3 attempts): HTTP Error 503: it is"),
    ],
)
def test_what_is_not_as_expected_is_refused_in_one_line(server: Server, key: str | int, message: str) -> None:
    server.key, before = key, server.contents()
    result = server({**APT, "attempts": 3})
    assert result["failed"] and not result["changed"] and server.contents() == before
    assert message in result["msg"] and result["msg"].startswith("gpu7: ") and "\n" not in result["msg"]
    assert result["msg"].endswith("nothing was changed")
    assert server.slept == ([2, 4] if key == 503 else [])


@pytest.mark.parametrize(
    ("printed", "slept"),
    [("E: Failed to fetch https://x 503", [2, 4, 8]), ("E: Failed to fetch x 404 Not Found", [])],
)
def test_only_a_server_that_may_come_back_is_asked_again(server: Server, printed: str, slept: list[float]) -> None:
    server.replies = [printed] * 9
    partial = "/var/lib/apt/lists/partial/mirror.example.com_tools__InRelease"
    server.write(partial, "")
    result = server()
    assert f"cannot be used ({len(slept) + 1} attempts): {printed[3:]}; check the network" in result["msg"]
    assert (server.slept, server.file(partial).exists()) == (slept, False)


def test_of_a_file_with_several_keys_the_accepted_ones_are_kept(server: Server) -> None:
    server.key = key_file(OTHER, SECOND, FIRST)
    two = {**APT, "fingerprints": [FIRST, SECOND]}
    assert server(two)["fingerprints"] == [SECOND, FIRST]
    assert server.file(str(APT["key_file"])).read_text() == key_file(SECOND, FIRST)
    # One of them is not accepted any more.
    assert server(APT)["written"] == [APT["key_file"]]
    assert server.file(str(APT["key_file"])).read_text() == key_file(FIRST)


def test_while_the_vendor_changes_its_key_one_of_both_suffices(server: Server) -> None:
    both = {**APT, "fingerprints": [FIRST, SECOND]}
    assert server(both)["fingerprints"] == [FIRST]
    assert not server(both, check=True)["changed"] and not server(both)["changed"]
    server.key = key_file(FIRST, SECOND)
    assert server(both)["fingerprints"] == [FIRST, SECOND]


@pytest.mark.parametrize("changed", ["text", "mode", "link", "second key"])
def test_a_file_that_others_changed_is_replaced(server: Server, changed: str, tmp_path: Path) -> None:
    server()
    key, source = server.file(str(APT["key_file"])), server.file(str(APT["source_file"]))
    target = tmp_path / "target"
    target.write_text("of others")
    if changed == "text":
        source.write_text("Enabled: no\n")
    elif changed == "mode":
        key.chmod(0o666)
    elif changed == "link":
        key.unlink()
        key.symlink_to(target)
    else:
        key.write_text(key_file(FIRST, OTHER))
    assert server(check=True)["changed"] and server()["changed"] and not server()["changed"]
    assert (key.read_text(), key.stat().st_mode & 0o777, key.is_symlink()) == (key_file(FIRST), 0o644, False)
    assert (source.read_text(), target.read_text()) == (_ENTRY, "of others")


def test_a_key_whose_fingerprint_nobody_has_published_is_known_by_its_checksum_in_each_run(server: Server) -> None:
    text = key_file(FIRST)
    known = {**APT, "fingerprints": [], "key_sha256": hashlib.sha256(text.encode()).hexdigest()}
    server.key = f"Version: GnuPG v2.0.22 (GNU/Linux)\n{text}"
    assert server(known)["fingerprints"] == [FIRST]
    assert not server(known)["changed"] and server.fetched == 2
    server.key = key_file(OTHER)
    assert "accepted: the one with the sha256 " in server(known)["msg"]


def test_entries_of_others_go_and_the_rest_of_their_files_stays(server: Server) -> None:
    other = "/etc/apt/sources.list.d/mixed.list"
    server.write("/etc/apt/sources.list.d/alone.list", f"deb {URL} /\n")
    server.write(other, f"deb https://x /\ndeb [trusted=yes] {URL} /\n", 0o640)
    server.write("/etc/apt/sources.list.d/kept.sources", f"# {URL}\nTypes: deb\nURIs: https://x\n")
    result = server()
    assert result["removed"] == ["/etc/apt/sources.list.d/alone.list"] and other in result["written"]
    assert (server.file(other).read_text(), server.file(other).stat().st_mode & 0o777) == ("deb https://x /\n", 0o640)


def test_what_would_bring_an_old_entry_back_goes(server: Server) -> None:
    pin = "/etc/apt/preferences.d/pin-600"
    server.write("/var/lib/dpkg/info/keyring.list", "")
    server.write(pin, "Pin: x\n")
    given = {**APT, "old_packages": ["keyring", "none"], "old_files": [pin, "/etc/none"]}
    result = server(given)
    assert (result["others"], result["removed"]) == (["keyring"], [pin])
    assert ["apt-get", "--option=DPkg::Lock::Timeout=60", "--yes", "purge", "keyring"] in server.commands


def test_a_revoked_key_is_trusted_nowhere(server: Server) -> None:
    alone, both, own = (
        f"/etc/apt/trusted.gpg.d/{name}" for name in ("alone.asc", "both.gpg", "debian-archive-keyring.gpg")
    )
    server.write(alone, key_file(REVOKED))
    server.write(both, key_file(REVOKED, OTHER), 0o600)
    server.write(own, key_file(REVOKED))
    predicted = server(revoked=[REVOKED], check=True)
    assert {alone, both} <= {*predicted["others"]} and server.file(alone).exists()
    result = server(revoked=[REVOKED])
    assert (result["removed"], both in result["written"]) == ([alone], True)
    assert (server.file(both).read_text(), server.file(both).stat().st_mode & 0o777) == (key_file(OTHER), 0o644)
    assert server.file(own).exists() and not server(revoked=[REVOKED])["changed"]


def test_preferences_are_a_file_of_apt_and_lines_of_dnf(server: Server) -> None:
    given = {"exclude": ["mft*", "kernel-mft*"], "priority": 600}
    server({**APT, **given})
    origin = 'Pin: origin "mirror.example.com"\nPin-Priority:'
    assert server.file(str(APT["preferences_file"])).read_text() == (
        f"# Tools; managed by gpu.fleet.example\n\nPackage: mft*\n{origin} -1\n\nPackage: kernel-mft*\n{origin} -1\n"
        f"\nPackage: *\n{origin} 600\n"
    )
    assert server()["removed"] == [APT["preferences_file"]]


def test_dnf_gets_a_checked_file_and_rpm_the_key(dnf: Server) -> None:
    dnf.rpm_keys = [REVOKED[-8:].lower()]
    given = {**DNF, "include": ["dkms"], "exclude": ["mft*", "kernel-mft*"], "priority": 10, "repo_gpgcheck": False}
    result = dnf(given, revoked=[REVOKED])
    assert result["others"] == ["gpg-pubkey-aaaaaaaa", "gpg-pubkey-11111111"] and dnf.rpm_keys == ["11111111"]
    assert dnf.file(str(DNF["source_file"])).read_text() == _SECTION
    (argv,) = [argv for argv in dnf.commands if argv[0] == "dnf"]
    assert argv[:4] == ["dnf", "makecache", "--assumeyes", "--refresh"]
    assert argv[5:] == ["--setopt=tools.skip_if_unavailable=false", "--repo=tools"]
    assert not dnf(given, revoked=[REVOKED])["changed"]
    dnf.rpm_keys = []
    assert dnf(given, check=True)["others"] == dnf(given)["others"] == ["gpg-pubkey-11111111"]
    removed = dnf(given, state="absent")
    assert removed["removed"] == [DNF["source_file"], DNF["key_file"]] and not dnf.rpm_keys
    assert not dnf.file("/var/cache/dnf/tools-0123").exists()


def test_nothing_is_left_of_a_repository_that_is_removed(server: Server) -> None:
    server.write("/var/lib/apt/lists/mirror.example.com_toolsmith_Packages", "")
    server({**APT, "exclude": ["mft*"]})
    predicted, fetched = server(state="absent", check=True), server.fetched
    result = server(state="absent")
    assert {name: result[name] for name in ("changed", "removed", "others")} == {
        "changed": True,
        "removed": [APT[f"{name}_file"] for name in ("source", "key", "preferences")],
        "others": [f"{LISTS}_Packages"],
    }
    assert predicted["removed"] == result["removed"] and server.fetched == fetched
    assert [*server.file("/var/lib/apt/lists").iterdir()] == [
        server.file("/var/lib/apt/lists/mirror.example.com_toolsmith_Packages")
    ]
    assert not server(state="absent")["changed"]


def test_a_password_of_a_mirror_is_not_shown(server: Server) -> None:
    url = URL.replace("//", "//ops:hunter2@")
    given = {**APT, "url": url, "key_url": f"{url}key.asc"}
    server.key = 404
    assert "https://***@mirror.example.com/tools/key.asc" in server(given)["msg"]
    server.key = key_file(FIRST)
    server.replies = [f"E: Failed to fetch {url} 404"]
    results = [server(given), server(given, check=True), server(given)]
    assert "hunter2" not in json.dumps(results)
    assert f"URIs: {url}\n" in server.file(str(APT["source_file"])).read_text()
    # apt's lists have neither user nor password in their name.
    assert not server(given)["changed"] and results[2]["changed"]


def test_a_failure_after_a_change_reports_what_was_changed(server: Server) -> None:
    server.write("/etc/apt/sources.list.d/alone.list", f"deb {URL} /\n")
    server.write("/etc/apt/keyrings", "no directory")
    result = server()
    assert (result["failed"], result["changed"]) == (True, True)
    assert result["removed"] == ["/etc/apt/sources.list.d/alone.list"]
    assert result["msg"].startswith("gpu7: the files of the repository tools: ")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"title": "a\nTrusted: yes"}, "repository.title: "),
        ({"url": "https://x/\nTrusted: yes"}, "repository.url: it is not a URL"),
        ({"url": "ftp://x/"}, "repository.url: 'ftp://x/' is not a URL"),
        ({"id": "a b"}, "repository.id: "),
        ({"exclude": ["a\nPin: x"]}, "repository.exclude: "),
        ({"fingerprints": ["3BF863CC"]}, "repository.fingerprints: '3BF863CC' is not a fingerprint"),
        ({"fingerprints": []}, "repository.fingerprints: it has to name"),
        ({"source_file": "x.sources"}, "repository.source_file: 'x.sources' is not an absolute path"),
        ({"old_packages": ["--force"]}, "repository.old_packages: "),
        ({"old_line": "("}, "repository.old_line: it is not a regular expression"),
        ({"key_url": ""}, "repository.key_url: "),
    ],
)
def test_what_would_be_another_line_or_option_is_refused(server: Server, given: dict[str, Any], message: str) -> None:
    result = server({**APT, **given})
    assert result["failed"] and message in result["msg"] and server.commands == []


def _request(url: str, uses_apt: bool = True) -> Request:
    options = signed_repository.ARGUMENT_SPEC["repository"]["options"]
    filled = {name: option.get("default") for name, option in options.items()}
    repository = {**filled, **(APT if uses_apt else DNF), "url": url}
    return parse_request({"state": "present", "host": "", "revoked": [], "repository": repository}, uses_apt)


def _epel() -> dict[str, Any]:
    tables = yaml.safe_load((ROOT / "roles" / "nvidia_driver" / "vars" / "main.yml").read_text())
    request: Any = SimpleNamespace(epel_fingerprint="", epel_url="", epel_key_url="")
    host: Any = SimpleNamespace(release="9", architecture="x86_64")
    return installation.epel(request, host, tables)


def _of_role(host: tuple[str, str, str], name: str, **given: Any) -> dict[str, Any]:
    variables = {**VARIABLES, "nvidia_repository_repositories": [name], f"nvidia_repository_{name}": given}
    found: Any = PLANNERS["nvidia_repository"].stages["definitions"](variables, facts_of(host), {})
    repository: dict[str, Any] = found["definitions"][name]
    return repository


GIVEN = {"url": "https://m.example/", "key": "KEY", "exclude": ["mft*"], "priority": 600, "gpgcheck": True}


@pytest.mark.parametrize(
    ("uses_apt", "repository"),
    [
        (True, _of_role(DEBIAN12, "cuda")),
        (True, _of_role(DEBIAN12, "container_toolkit", **GIVEN)),
        (True, _of_role(UBUNTU24, "graphics_drivers")),
        (False, _of_role(ROCKY9, "cuda", **GIVEN, repo_gpgcheck=False)),
        (False, _of_role(("Rocky", "10.0", "x86_64"), "cuda")),
        (True, stage("secrets")["repository"]),
        (False, stage("secrets", ROCKY)["repository"]),
        (False, _epel()),
    ],
    ids=["cuda", "a mirror", "PPA", "dnf", "a checksum", "Docker", "Docker with dnf", "EPEL"],
)
def test_what_the_roles_define_is_what_the_module_takes(uses_apt: bool, repository: dict[str, Any]) -> None:
    validated = ArgumentSpecValidator(signed_repository.ARGUMENT_SPEC).validate({"repository": repository})
    assert validated.error_messages == []
    request = parse_request(validated.validated_parameters, uses_apt)
    assert request.name and request.url_option.startswith(("nvidia_", "docker_"))


def test_of_a_recorded_repository_the_role_hands_on_what_its_removal_needs() -> None:
    data = {"needed_by": [], "url": "https://***@m.example/x/", "id": "cuda-x", "fingerprints": [FIRST, "damaged"]}
    records = {"nvidia_repository.cuda": {"inputs": "", "drift": [], "data": data}}
    variables = {**VARIABLES, "nvidia_repository_state": "absent"}
    plans: Any = PLANNERS["nvidia_repository"].stages["plan"](
        variables, {**facts_of(DEBIAN12), "gpu_fleet_managed": records}, {}
    )
    removed = plans[0].tasks["removed"]
    assert (removed["url"], removed["id"], removed["fingerprints"]) == ("https://m.example/x/", "cuda-x", [FIRST])
    validated = ArgumentSpecValidator(signed_repository.ARGUMENT_SPEC).validate(
        {"repository": removed, "state": "absent"}
    )
    assert validated.error_messages == []
    assert not parse_request(validated.validated_parameters, True).is_present


@pytest.mark.parametrize(
    ("url", "name"),
    [
        (URL, "mirror.example.com_tools_dists_x_InRelease"),
        ("https://x.example/a_b/c%20d/", "x.example_a%5fb_c%2520d_InRelease"),
        ("file:///srv/repo", "_srv_repo_._Packages"),
        ("https://ops:secret@x.example:8443/", "x.example:8443_InRelease"),
    ],
)
def test_the_lists_of_a_repository_are_known_by_their_names(url: str, name: str) -> None:
    assert is_list_of(_request(url), name)
    assert not is_list_of(_request(url), f"other{name}")


def test_a_repository_without_a_record_of_its_url_has_no_lists() -> None:
    assert not is_list_of(replace(_request(URL), url=""), "mirror_Packages")
    assert not is_list_of(replace(_request(URL, False), id=""), "-0123")
    assert is_list_of(_request(URL, False), "tools-filenames.solvx")


OLD_FILES = {
    "one entry": ("a.list", f"deb [signed-by=/k] {OURS} /\n", None),
    "commented": ("a.list", f"# deb {OURS} /\ndeb {OURS} /\n", None),
    "another entry": ("a.list", f"deb https://x /\ndeb-src {OURS} /\n", "deb https://x /\n"),
    "China": ("a.list", "deb https://developer.download.nvidia.cn/compute/cuda/repos/ubuntu2404/x86_64 /\n", None),
    "one paragraph": ("a.sources", f"Types: deb\nURIs: {OURS}\nSuites: /\n", None),
    "two paragraphs": (
        "a.sources",
        f"# mine\nTypes: deb\nURIs: https://x\n \t\nTypes: deb\nURIs: {OURS}\n",
        "# mine\nTypes: deb\nURIs: https://x\n",
    ),
    "first paragraph": (
        "a.sources",
        f"Types: deb\nURIs: {OURS}\n\nTypes: deb\nURIs: https://x\n",
        "Types: deb\nURIs: https://x\n",
    ),
    "one section": ("a.repo", f"# x\n[cuda]\nbaseurl={OURS}\n", None),
    "two sections": ("a.repo", f"[a]\nbaseurl=https://x\n\n[cuda]\nbaseurl = {OURS}\n", "[a]\nbaseurl=https://x\n"),
    "first section": ("a.repo", f"[cuda]\nbaseurl={OURS}\n[a]\nbaseurl=https://x\n", "[a]\nbaseurl=https://x\n"),
    "key only": ("a.repo", f"[a]\nbaseurl=https://x\n#gpgkey={OURS}k\n", f"[a]\nbaseurl=https://x\n#gpgkey={OURS}k\n"),
}


@pytest.mark.parametrize("name", OLD_FILES)
def test_old_entries_are_taken_out_of_a_file(name: str) -> None:
    file, text, kept = OLD_FILES[name]
    assert without_entries(f"/etc/x/{file}", text, defined(DEBIAN12)["old_line"]) == kept


# Output of `gpg --with-colons --show-keys` of 2.2 and 2.4.
SHOWN = """\
pub:-:2048:1:DCECA82A5BCE00EC:1795244118:::-:::scSC::::::23::0:
fpr:::::::::548366ED2E5A647CE1A973D6DCECA82A5BCE00EC:
uid:-::::1795244118::22D4AEDBCE09BAD9CF55EA63E9D45FBBF09C2BA6::Vendor <x@example.com>::::::::::0:
sub:-:2048:1:0000000000000001:1795244118::::::e::::::23:
fpr:::::::::0000000000000000000000000000000000000001:
pub:r:4096:1:F60F4B3D7FA2AF80:1466716032:::-:::scSC::::::23::0:
rvk:::1::::::AE09FE4BBD223A84B2CCFCE3F60F4B3D7FA2AF81:80:
fpr:::::::::AE09FE4BBD223A84B2CCFCE3F60F4B3D7FA2AF80:
"""


def test_only_primary_keys_are_read_with_their_validity() -> None:
    found = parse_keys(SHOWN)
    assert found == (
        Key("-", "548366ED2E5A647CE1A973D6DCECA82A5BCE00EC"),
        Key("r", "AE09FE4BBD223A84B2CCFCE3F60F4B3D7FA2AF80"),
    )
    assert accepted(_request(URL), found, b"") == ()
    known = replace(_request(URL), fingerprints=("548366ED2E5A647CE1A973D6DCECA82A5BCE00EC",))
    assert accepted(known, found, b"") == known.fingerprints


ARMOR = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n{}\nmQINBGI=\n-----END PGP PUBLIC KEY BLOCK-----\n"
KEY_FILE = ARMOR.format("Version: GnuPG v2.0.22 (GNU/Linux)\n")
KEY_SHA256 = hashlib.sha256(ARMOR.format("").encode()).hexdigest()


@pytest.mark.parametrize(
    ("text", "sha256", "is_known"),
    [(KEY_FILE, KEY_SHA256, True), (KEY_FILE + " ", KEY_SHA256, False), ("", KEY_SHA256, False), (KEY_FILE, "", False)],
    ids=["the key", "another file", "no file", "no checksum"],
)
def test_a_checksum_is_of_the_key_without_the_program_that_exported_it(text: str, sha256: str, is_known: bool) -> None:
    request = replace(_request(URL), fingerprints=(), key_sha256=sha256)
    assert bool(accepted(request, parse_keys(SHOWN), text.encode())) is is_known


NO_PUBKEY = "The following signatures couldn't be verified because the public key is not available: NO_PUBKEY D4F51E12"
NOT_FOUND = "repomd.xml GPG signature verification error: Signing key not found"
DNF_ERRORS = "Errors during downloading metadata for repository 'cuda-rhel9-x86_64':"
# Output of apt and dnf; whether it is about a signature, and whether a retry may help.
REPLIES = {
    "apt, other key": (f"W: GPG error: https://x/ InRelease: {NO_PUBKEY}\nE: 'https://x/' is not signed.", True, True),
    "apt, down": ("E: Failed to fetch https://x/ubuntu2404/InRelease  503  Service Unavailable", False, True),
    "apt, missing": ("E: 'https://x' does not have a Release file.\nErr: 404  Not Found", False, False),
    "apt, locked": ("E: Could not get lock /var/lib/apt/lists/lock. It is held by process 5 (apt-get)", False, True),
    "dnf, other key": (f"Error: Failed to download metadata for repo 'x': {NOT_FOUND}", True, True),
    "dnf, down": (f"{DNF_ERRORS}\n  - Status code: 503 for https://x/repomd.xml (IP: 10.0.0.1)", False, True),
    "dnf, missing": ("  - Status code: 404 for https://x/repomd.xml (IP: 10.0.0.1)", False, False),
    "dnf, its key": (f"Importing GPG key 0x274AB5E2:\nError: {NOT_FOUND}", True, True),
    "certificate": ("E: Certificate verification failed: The certificate is NOT trusted.", False, False),
}


# The error message for the user.
ERROR_MESSAGES = {
    "apt, other key": f"GPG error: https://x/ InRelease: {NO_PUBKEY}",
    "apt, down": "Failed to fetch https://x/ubuntu2404/InRelease  503  Service Unavailable",
    "apt, missing": "'https://x' does not have a Release file.",
    "apt, locked": "Could not get lock /var/lib/apt/lists/lock. It is held by process 5 (apt-get)",
    "dnf, other key": f"Failed to download metadata for repo 'x': {NOT_FOUND}",
    "dnf, down": "Status code: 503 for https://x/repomd.xml (IP: 10.0.0.1)",
    "dnf, missing": "Status code: 404 for https://x/repomd.xml (IP: 10.0.0.1)",
    "dnf, its key": NOT_FOUND,
    "certificate": "Certificate verification failed: The certificate is NOT trusted.",
}


@pytest.mark.parametrize("name", REPLIES)
def test_replies_are_reported_apart(name: str) -> None:
    text, signature, retryable = REPLIES[name]
    result = CommandResult(("apt-get",), 100, b"", text.encode(), 0.1)
    assert replies.is_about_signature(replies.text_of(result)) is signature
    assert replies.is_retryable(result) is retryable
    assert replies.error_message(result) == ERROR_MESSAGES[name]


def test_a_program_that_prints_nothing_is_reported_by_its_end() -> None:
    hangs = CommandResult(("apt-get",), None, b"", b"", 900.0, timed_out=True)
    assert (replies.is_retryable(hangs), replies.error_message(hangs)) == (False, "it did not end within 900 s")
    assert replies.error_message(CommandResult(("apt-get",), 100, b"", b"", 0.1)) == "no reason given"
