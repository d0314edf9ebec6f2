# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All public variables of the collection, and a user's that are misspelled ones. Private to this collection. Pure.

A variable that no role reads is ignored in silence: `gpu_fleet_targts` changes all hosts instead of a group. So a name
with a prefix that only this collection uses has to be one of its own, and the bare name of such a role is none.
`docker_` and `cuda_` are common words, which other roles use as well: of those, and of all other names, only one that
differs from ours by a letter or two counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from .._fleet.acceptance import PREFIX as ACCEPT_PREFIX
from .._fleet.acceptance import VARIABLES as ACCEPT_VARIABLES
from .._fleet.nvlink_domains import VARIABLE as NVLINK_DOMAIN
from .._fleet.remedies import PREFIX as REMEDIATE_PREFIX
from .._fleet.remedies import VARIABLES as REMEDIATE_VARIABLES
from .._fleet.rolling_run import PREFIX, VARIABLES
from .variable_forms import read_truth, shown

STRICT = "gpu_fleet_strict_variables"
OF_PLAYBOOKS = (
    NVLINK_DOMAIN,
    *(PREFIX + name for name in VARIABLES),
    *(REMEDIATE_PREFIX + name for name in REMEDIATE_VARIABLES),
    *(ACCEPT_PREFIX + name for name in ACCEPT_VARIABLES),
    *(
        f"gpu_fleet_{name}"
        for name in (
            "accept_injected_facts",
            "decommission_confirm",
            "evidence",
            "evidence_directory",
            "evidence_fetch_to",
            "expected_gpus",
            "hosts_without_gpu",
            "rack",
            "rack_power_budget_kw",
            "refuse_injected_facts",
            "report_dir",
            "result_file",
            "roles",
            "strict_variables",
            "targets",
        )
    ),
    *(
        f"gpu_fleet_pull_{name}"
        for name in (
            "collections",
            "deploy_key",
            "directory",
            "fetch_timeout_s",
            "host_key_fingerprints",
            "interval_s",
            "inventory",
            "keyring",
            # Refused by pull.yml, with what replaces it.
            "packages",
            "playbook",
            "python",
            "random_delay_s",
            "repository",
            "requirements",
            "system_packages",
            "vault_password_file",
            "verify_commit",
            "version",
        )
    ),
    *(f"run_container_{name}" for name in ("archive", "engine", "gpus", "image")),
)
"""Variables that playbooks read, or several roles."""
GIVEN = (
    *("gpu_health_result", "gpu_workload_result", "nvidia_container_toolkit_seen"),
    *("gpu_state_change", "remediate_case", "upgrade_failure"),
)
"""What roles and playbooks give: results, and what hooks and commands may use."""
_MEANT = {
    "gpu_containers": "gpu_containers_declared",
    "gpu_fleet": "gpu_fleet_roles",
    "gpu_health": "gpu_health_tests",
    "gpu_workload": "gpu_workload_tests",
    "nvidia_driver": "nvidia_driver_version",
    "run_container": "run_container_image",
    "slurm_gres": "slurm_gres_node",
    "windows_gpu": "windows_gpu_driver",
}
"""What the bare name of a role is most likely meant for, where that is not the role's state."""
_LETTERS = 2
_MOST_NAMES, _LONGEST_NAME = 10, 80


class PublicNames:
    """The public variables: of the roles' argument specifications, of playbooks, and what they give.

    secret: those that may have a password, which only a task with no_log returns.
    """

    def __init__(self, of_roles: Mapping[str, Iterable[str]], secret: Iterable[str] = ()) -> None:
        self.secret = frozenset(secret)
        self.names = frozenset({*OF_PLAYBOOKS, *GIVEN, *(name for names in of_roles.values() for name in names)})
        # By length, each with its letters: a site has thousands of variables on each host, most of them unlike ours.
        self._by_length: dict[int, list[tuple[str, frozenset[str]]]] = {}
        for name in sorted(self.names):
            self._by_length.setdefault(len(name), []).append((name, frozenset(name)))
        self.prefixes = ("gpu_fleet_", "run_container_", *(f"{role}_" for role in sorted(of_roles) if "_" in role))

    def refusals(self, given: Iterable[str], strict: object = True) -> tuple[str, ...]:
        """What is wrong with the names of a host's variables; `strict` is the variable that turns this off."""
        truth = read_truth(strict)
        if not isinstance(truth, bool):
            return (f"{STRICT} is {shown(strict)}; it takes true or false",)
        unknown = self.unknown(given) if truth else {}
        if not unknown:
            return ()
        listed = [f"{name[:_LONGEST_NAME]}{self._hint(name, nearest)}" for name, nearest in unknown.items()]
        more = f" and {len(listed) - _MOST_NAMES} more" if len(listed) > _MOST_NAMES else ""
        refusal = (
            f"gpu.fleet has no variable {', '.join(listed[:_MOST_NAMES])}{more}; correct or remove it, or set {STRICT} "
            "to false if something else reads it"
        )
        return (refusal,)

    def unknown(self, given: Iterable[str]) -> dict[str, str]:
        """The names that are meant for this collection and are not of it, with the nearest one that is."""
        found = {}
        # Names that begin with an underscore are private, and `ansible_` is Ansible's.
        for name in sorted({*given} - self.names):
            if not name.startswith(("_", "ansible_")):
                near = self._meant(name) or self._near(name)
                if near or name.startswith(self.prefixes):
                    found[name] = near or next(iter(get_close_matches(name, sorted(self.names), 1)), "")
        return found

    def _hint(self, name: str, nearest: str) -> str:
        """The name that the refusal suggests."""
        others = f", or another one that begins with {name}_" if self._meant(name) else ""
        return f" (for {nearest}{others}?)" if nearest else ""

    def _meant(self, name: str) -> str:
        """What was meant by the bare name of a role that has two words or more; empty for all other names."""
        return _MEANT.get(name, f"{name}_state") if f"{name}_" in self.prefixes else ""

    def _near(self, name: str) -> str:
        """The public variable with the fewest different letters, where there are no more than two; empty otherwise."""
        letters = frozenset(name)
        candidates = (
            known
            for length in range(len(name) - _LETTERS, len(name) + _LETTERS + 1)
            for known, others in self._by_length.get(length, ())
            if len(letters ^ others) <= 2 * _LETTERS
        )
        distance, nearest = min(((_distance(name, known), known) for known in candidates), default=(_LETTERS + 1, ""))
        return nearest if distance <= _LETTERS else ""


def _distance(one: str, other: str) -> int:
    """How many letters are missing, too many, others, or swapped with the next one; of too many, no exact number."""
    before: list[int] = []
    last: list[int] = [*range(len(other) + 1)]
    for row, letter in enumerate(one, 1):
        current = [row]
        for column, opposite in enumerate(other, 1):
            steps = [last[column] + 1, current[-1] + 1, last[column - 1] + (letter != opposite)]
            if row > 1 and column > 1 and letter == other[column - 2] and one[row - 2] == opposite:
                steps.append(before[column - 2] + 1)
            current.append(min(steps))
        if min(*last, *current) > _LETTERS:
            return _LETTERS + 1
        before, last = last, current
    return last[-1]
