"""Which addresses messages may be sent to, in every spelling of an address."""

from __future__ import annotations

import ipaddress
import re

import pytest

from neve.errors import NotificationError
from neve.service.notify.addresses import checked_addresses, is_listed, is_odd_number, special_kind

SPECIAL = {
    "127.0.0.1": "loopback",
    "127.8.9.1": "loopback",
    "::1": "loopback",
    "10.1.2.3": "private",
    "172.16.0.1": "private",
    "172.31.255.255": "private",
    "192.168.1.1": "private",
    "100.64.0.1": "private",
    "fd12::1": "private",
    "fec0::1": "private",
    "169.254.1.1": "link-local",
    "fe80::1": "link-local",
    "fe80::1%eth0": "link-local",
    "169.254.169.254": "metadata",
    "169.254.170.2": "metadata",
    "100.100.100.200": "metadata",
    "168.63.129.16": "metadata",
    "192.0.0.192": "metadata",
    "fd00:ec2::254": "metadata",
    "fd20:ce::254": "metadata",
    "0.0.0.0": "unspecified",  # noqa: S104
    "0.1.2.3": "unspecified",
    "::": "unspecified",
    "224.0.0.1": "multicast",
    "ff02::1": "multicast",
    "255.255.255.255": "reserved",
    "192.0.2.1": "reserved",
    "198.18.0.1": "reserved",
    "2001:db8::1": "reserved",
    "2001::1": "reserved",
    "4000::1": "reserved",
    # IPv4 addresses inside of IPv6 addresses
    "::ffff:127.0.0.1": "loopback",
    "::ffff:169.254.169.254": "metadata",
    "::ffff:10.0.0.1": "private",
    "::127.0.0.1": "loopback",
    "::ffff:0:127.0.0.1": "loopback",
    "64:ff9b::10.0.0.1": "private",
    "64:ff9b::169.254.169.254": "metadata",
    "64:ff9b:1::8.8.8.8": "reserved",
    "2002:7f00:1::1": "loopback",
    "2002:c0a8:101::": "private",
    "2a00:1450::5efe:10.0.0.1": "private",
    "2a00:1450::200:5efe:127.0.0.1": "loopback",
    "::8.8.8.8": "reserved",
}
PUBLIC = ("8.8.8.8", "172.15.0.1", "172.32.0.1", "100.128.0.1", "2a00:1450:4001::200e", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8")


@pytest.mark.parametrize(("address", "kind"), SPECIAL.items())
def test_a_special_address_is_recognized(address: str, kind: str) -> None:
    assert special_kind(ipaddress.ip_address(address)) == kind


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_accepted(address: str) -> None:
    assert special_kind(ipaddress.ip_address(address)) is None
    assert checked_addresses("hooks.test", [address], ()) == (address,)


@pytest.mark.parametrize(("address", "kind"), SPECIAL.items())
def test_a_name_with_a_special_address_is_refused(address: str, kind: str) -> None:
    with pytest.raises(NotificationError, match=rf"^Cannot send to hooks\.test: it has a {kind} address$") as caught:
        checked_addresses("hooks.test", [address], ())
    assert "notifications.allow-private-addresses" in str(caught.value.hint)


@pytest.mark.parametrize("addresses", [["8.8.8.8", "10.0.0.1"], ["10.0.0.1", "8.8.8.8"], ["8.8.8.8", "::1"]])
def test_one_special_address_among_public_ones_refuses_the_name(addresses: list[str]) -> None:
    with pytest.raises(NotificationError, match=r"it has a (private|loopback) address"):
        checked_addresses("hooks.test", addresses, ())


def test_a_name_without_addresses_and_an_answer_that_is_no_address_are_refused() -> None:
    with pytest.raises(NotificationError, match="the name has no address"):
        checked_addresses("hooks.test", [], ())
    with pytest.raises(NotificationError, match="it has a reserved address"):
        checked_addresses("hooks.test", ["localhost"], ())


@pytest.mark.parametrize("listed", ["hooks.test", "HOOKS.test", "hooks.test."])
def test_a_listed_name_may_be_private_or_on_this_machine(listed: str) -> None:
    assert checked_addresses("Hooks.test", ["10.0.0.1", "127.0.0.1"], [listed]) == ("10.0.0.1", "127.0.0.1")


@pytest.mark.parametrize("address", ["169.254.169.254", "169.254.1.1", "::ffff:169.254.169.254", "0.1.2.3", "224.0.0.1"])
def test_a_listed_name_may_not_lead_to_other_special_addresses(address: str) -> None:
    with pytest.raises(NotificationError, match="Cannot send to hooks"):
        checked_addresses("hooks.test", [address], ["hooks.test"])


def test_a_listed_address_may_be_any_but_only_when_it_is_written_as_such() -> None:
    assert checked_addresses("169.254.1.1", ["169.254.1.1"], ["169.254.1.1"]) == ("169.254.1.1",)
    with pytest.raises(NotificationError, match="link-local"):
        checked_addresses("hooks.test", ["169.254.1.1"], ["169.254.1.1"])


def test_another_name_in_the_same_domain_is_not_listed() -> None:
    assert not is_listed("evil.hooks.test", ["hooks.test"])
    assert not is_listed("hooks.test.evil", ["hooks.test"])
    assert is_listed("::1", ["[::1]"])


@pytest.mark.parametrize("host", ["127.1", "2130706433", "0x7f.0.0.1", "0x7f000001", "0177.0.0.1", "127.0.0.1.", "1.2.3"])
def test_an_address_in_another_notation_is_odd(host: str) -> None:
    assert is_odd_number(host)


@pytest.mark.parametrize("host", ["127.0.0.1", "hooks.test", "1e100.net", "::1", "::ffff:1.2.3.4", "a.0x7f.test"])
def test_names_and_plain_addresses_are_not_odd(host: str) -> None:
    assert not is_odd_number(host)
    assert not re.fullmatch(r"\d+", host)
