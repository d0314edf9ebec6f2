# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts that have the names of variables, where Ansible makes facts variables."""

from __future__ import annotations

import pytest
from ansible_collections.gpu.fleet.plugins.plugin_utils._injected_facts import _options_of_ansible, facts_like_variables
from ansible_collections.gpu.fleet.plugins.plugin_utils._planning.data import public_names

NAMES, OPTIONS = public_names().names, _options_of_ansible()


def refused(*facts: str, known: tuple[str, ...] = ()) -> str:
    return facts_like_variables({"ansible_facts": dict.fromkeys(facts), **dict.fromkeys(known)}, NAMES, OPTIONS)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_fact_named_as_a_public_variable_is_a_lie(name: str) -> None:
    assert f"facts of this host are named {name}, as variables of gpu.fleet are called" in refused("distribution", name)


@pytest.mark.parametrize("option", ["sftp_executable", "remote_tmp", "control_path", "become_exe", "sudo_chdir"])
def test_a_fact_that_sets_an_option_of_a_connection_is_a_lie(option: str) -> None:
    assert f"ansible_{option}, by which Ansible connects" in refused(option, known=(f"ansible_{option}",))
    # Of the name alone, without its prefix, no variable of Ansible comes.
    assert refused(option) == ""


@pytest.mark.parametrize("name", ["inventory_hostname", "inventory_hostname_short", "omit", "lookup"])
def test_a_fact_named_as_a_variable_of_every_template_is_a_lie(name: str) -> None:
    assert f"facts of this host are named {name}, as variables of Ansible are called" in refused("distribution", name)


def test_private_names_are_lies_and_long_lists_are_cut() -> None:
    assert "named __docker_plan, as" in refused("__docker_plan")
    assert " and 35 more, as variables" in refused(*(f"__{number:02}" for number in range(40)))


def test_real_facts_are_no_lies() -> None:
    """Names of `ansible.builtin.setup`, of our own modules and of other collections."""
    facts = (
        *("distribution", "os_family", "user_id", "user_dir", "python", "hostname", "local", "env", "ssh_host_key_rsa"),
        *(
            "discovered_interpreter_python",
            "packages",
            "services",
            "mounts",
            "docker0",
            "module_setup",
            "gather_subset",
        ),
        *(
            "nvidia_smi",
            "cuda",
            "gpu_fleet_managed",
            "host_name",
            "default_ipv4",
            "system_vendor",
            "virtualization_role",
        ),
    )
    assert refused(*facts, known=tuple(f"ansible_{name}" for name in facts)) == ""
