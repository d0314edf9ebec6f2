# Copyright: (c) 2026, gpu.fleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Driver version of a host: an installed version that matches stays; version parts are compared as numbers."""

from __future__ import annotations

import pytest
from ansible.errors import AnsibleFilterError
from ansible_collections.gpu.fleet.plugins.filter.driver_version import driver_version

_REPOSITORY = [
    "570.172.08-0ubuntu1",
    "580.95.05-0ubuntu1",
    "580.159.04-0ubuntu1",
    "3:580.105.08-1.el9",
    "610.57.04-1",
    "2:595.71.05~rc1-1",
    "nonsense",
]


@pytest.mark.parametrize(
    ("desired", "expected"),
    [
        ("newest", "610.57.04"),
        ("580", "580.159.04"),  # not .95, which is greater as a string
        ("580.95.05", "580.95.05"),
        ("580.105.08", "580.105.08"),
        ("595", "595.71.05"),
        ("58", ""),
        ("580.1", ""),
        ("535", ""),
    ],
)
def test_the_newest_that_fits(desired: str, expected: str) -> None:
    assert driver_version(_REPOSITORY, desired) == expected


@pytest.mark.parametrize(
    ("desired", "installed", "expected"),
    [
        ("newest", "580.95.05-0ubuntu1", "580.95.05"),
        ("580", "580.95.05-0ubuntu1", "580.95.05"),
        ("580", "570.172.08-0ubuntu1", "580.159.04"),
        ("580.95.05", "580.159.04-0ubuntu1", "580.95.05"),  # a downgrade
        ("580", "580.82.07-1", "580.82.07"),  # no longer in the repository, still valid
    ],
)
def test_an_installed_version_stays_while_it_fits(desired: str, installed: str, expected: str) -> None:
    assert driver_version(_REPOSITORY, desired, installed) == expected


@pytest.mark.parametrize(
    ("desired", "installed", "expected"),
    [
        ("580", "580.95.05-0ubuntu1", "580.159.04"),
        ("580", "580.200.01-1", "580.200.01"),  # newer than the repository's versions
        ("newest", "580.95.05-0ubuntu1", "610.57.04"),
    ],
)
def test_an_upgrade_takes_the_newest_that_fits(desired: str, installed: str, expected: str) -> None:
    assert driver_version(_REPOSITORY, desired, installed, upgrade=True) == expected


def test_a_text_is_no_list_of_versions() -> None:
    with pytest.raises(AnsibleFilterError, match="takes a list of versions"):
        driver_version("580.95.05-1")
