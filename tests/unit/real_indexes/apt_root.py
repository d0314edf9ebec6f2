# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A private root of apt over an excerpt of a real index: the machine's own packages and sources are never read."""

from __future__ import annotations

import copy
import lzma
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from ansible_collections.gpu.fleet.plugins.module_utils._common.runner import CommandResult
from ansible_collections.gpu.fleet.plugins.module_utils._packages import apt
from ansible_collections.gpu.fleet.plugins.module_utils._packages.plan import PackageError, PackagePlan, PackageRequest

HERE = Path(__file__).resolve().parent
_INSTALLED = re.compile(r"^Inst (\S+)(?: \[[^\]]*\])? \((\S+)", re.MULTILINE)
_CONFIG = """\
Dir "{root}";
Dir::State "{root}/state";
Dir::State::lists "{root}/state/lists";
Dir::State::status "{host}/status";
Dir::Cache "{root}/cache";
# Several hosts use the lists at once.
Dir::Cache::pkgcache "{host}/pkgcache.bin";
Dir::Cache::srcpkgcache "";
Dir::Etc "{root}/etc";
Dir::Etc::PreferencesParts "{host}/preferences.d";
Dir::Log "{root}/log";
APT::Architecture "amd64";
APT::Architectures {{ "amd64"; }};
Acquire::Languages "none";
APT::Sandbox::User "root";
"""


class AptRoot:
    """A host with no packages: apt-get, apt-cache and dpkg-query see the excerpt of its index."""

    def __init__(self, root: Path, stanzas: Sequence[str]) -> None:
        self.root = root
        self.stanzas = list(stanzas)
        self._by_key = {(field_of(stanza, "Package"), field_of(stanza, "Version")): stanza for stanza in stanzas}
        for name in (
            "state/lists/partial",
            "cache/archives/partial",
            "dpkg",
            "etc/apt.conf.d",
            "etc/sources.list.d",
            "repository",
            "log",
        ):
            (root / name).mkdir(parents=True)
        self._use(root / "dpkg")
        (root / "etc/sources.list").write_text(f"deb [trusted=yes] file:{root}/repository ./\n")
        # apt wants a file in each stanza; none is ever downloaded.
        digest = f"SHA256: {0:064d}"
        packages = (
            f"{stanza}\nFilename: ./{number}.deb\nSize: 1\n{digest}\n" for number, stanza in enumerate(self.stanzas)
        )
        (root / "repository/Packages").write_text("\n".join(packages))
        updated = self.run(["apt-get", "update"])
        assert updated.rc == 0, updated.error_text

    def _use(self, dpkg: Path) -> None:
        self.dpkg = dpkg
        self.config = dpkg / "apt.conf"
        self.preferences = dpkg / "preferences.d"
        self.preferences.mkdir(exist_ok=True)
        self.config.write_text(_CONFIG.format(root=self.root, host=dpkg))
        self.set_installed({})

    def host(self, dpkg: Path) -> AptRoot:
        """Another host with the same index and packages of its own, which are in the empty directory `dpkg`."""
        other = copy.copy(self)
        other._use(dpkg)
        return other

    @property
    def environment(self) -> dict[str, str]:
        """What makes apt and dpkg use this host."""
        return {"APT_CONFIG": str(self.config), "DPKG_ADMINDIR": str(self.dpkg)}

    def run(self, argv: Sequence[str]) -> CommandResult:
        """Run a command of apt or dpkg in this root; the signature of package_transaction's runner."""
        environment = {**self.environment, "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"}
        done = subprocess.run(argv, env=environment, capture_output=True, check=False)
        return CommandResult(tuple(argv), done.returncode, done.stdout, done.stderr, 0.0)

    def simulate(self, *names: str) -> dict[str, str]:
        """What apt would install for these packages: versions by name."""
        done = self.run(["apt-get", "--simulate", "--no-install-recommends", "install", *names])
        assert done.rc == 0, done.error_text + done.text
        return dict(_INSTALLED.findall(done.text))

    def transaction(
        self, install: Sequence[str], remove: Sequence[str], preferences: str
    ) -> tuple[PackagePlan | str, dict[str, str], dict[str, str]]:
        """What the role predicts with its preferences, or the error; what apt installs and removes once they are there.

        An error of the prediction is held to apt: it cannot install the packages either without removing others.
        """
        argv = ["apt-get", "--simulate", "--no-install-recommends", "--allow-downgrades", "install", *install]
        planned = self.dpkg / "planned.d"
        planned.mkdir(exist_ok=True)
        (planned / "driver").write_text(preferences)
        record = self.preferences / "driver"
        before = record.read_text() if record.exists() else ""
        request = PackageRequest(tuple(install), tuple(remove), release_holds=tuple(remove), preferences=str(planned))
        try:
            found: PackagePlan | str = apt.plan(request, self.run)
        except PackageError as error:
            found = str(error)
        more = (
            [f"{name}-" for name in remove]
            if isinstance(found, str)
            else [*found.along, *(f"{name}-" for name in found.remove)]
        )
        record.write_text(preferences)
        done = self.run([*argv, *more])
        record.write_text(before)
        assert done.rc == 0 or isinstance(found, str), done.error_text
        return found, *apt.parse_simulation(done.text)

    def install(self, *names: str) -> dict[str, str]:
        """Make the packages installed, with all that apt installs for them; their versions by name."""
        self.set_installed({})
        self.set_installed(self.simulate(*names) if names else {})
        return self.installed

    def install_older(self, names: Sequence[str], replaced: Mapping[str, str]) -> dict[str, str]:
        """As install, but what the archive had before: in the stanzas each key of `replaced` becomes its value."""
        self.install(*names)
        stanzas = "\n\n".join(self._stanzas(self.installed))
        for text, before in replaced.items():
            stanzas = stanzas.replace(text, before)
        self._write(stanzas.split("\n\n") if stanzas else [])
        return self.installed

    def set_installed(self, versions: Mapping[str, str]) -> None:
        """Make exactly these versions installed."""
        self._write(self._stanzas(versions))

    def stanza(self, name: str, version: str) -> str:
        """What the index has of a package."""
        return self._by_key[name, version]

    def _stanzas(self, versions: Mapping[str, str]) -> list[str]:
        return [self._by_key[item] for item in versions.items()]

    def _write(self, stanzas: Sequence[str]) -> None:
        self.installed = {field_of(stanza, "Package"): field_of(stanza, "Version") for stanza in stanzas}
        entries = (
            re.sub(r"^(Package: .*)$", r"\1\nStatus: install ok installed", stanza, count=1, flags=re.MULTILINE)
            for stanza in stanzas
        )
        (self.dpkg / "status").write_text(
            "".join(f"{text}\nMaintainer: -\nDescription: -\n\n" for text in entries), encoding="utf-8"
        )


def stanzas_of(release: str) -> list[str]:
    """The packages in the excerpt of a release."""
    with lzma.open(HERE / f"{release}.Packages.xz", "rt", encoding="utf-8") as index:
        return index.read().strip().split("\n\n")


def field_of(stanza: str, name: str) -> str:
    """A field of a stanza, empty where it is not there."""
    found = re.search(rf"^{name}: (.*)$", stanza, re.MULTILINE)
    return found[1] if found else ""
