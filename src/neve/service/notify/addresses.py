"""Which network addresses messages may be sent to. Called by `connection` with the answer of the resolver.

An address that carries an IPv4 address (mapped, compatible, translated, 6to4, NAT64, ISATAP) is judged by both. The ranges are
listed here, as Python's own `is_global` changes between releases and knows no metadata servers.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from neve.errors import NotificationError

Address = IPv4Address | IPv6Address
_Network = IPv4Network | IPv6Network

HINT = "Set `notifications.allow-private-addresses` in the settings if messages should be sent there."

_LOCAL = ("loopback", "private")
"""What a host name in the list of allowed hosts may resolve to. Other special addresses must be listed themselves."""

_RANGES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("metadata", ("169.254.169.254/32", "168.63.129.16/32", "100.100.100.200/32", "192.0.0.192/32", "fd00:ec2::/32")),
    ("metadata", ("fd20:ce::254/128", "169.254.170.2/32", "169.254.170.23/32")),
    ("loopback", ("127.0.0.0/8", "::1/128")),
    ("private", ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7", "fec0::/10")),
    ("link-local", ("169.254.0.0/16", "fe80::/10")),
    ("multicast", ("224.0.0.0/4", "ff00::/8")),
    ("unspecified", ("0.0.0.0/8", "::/128")),
    ("reserved", ("192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24")),
    ("reserved", ("240.0.0.0/4", "2001::/23", "2001:db8::/32", "3fff::/20")),
)
_SPECIAL: tuple[tuple[str, _Network], ...] = tuple(
    (kind, ipaddress.ip_network(text)) for kind, texts in _RANGES for text in texts
)
_UNICAST = IPv6Network("2000::/3")
_EMBEDDING: tuple[tuple[IPv6Network, int, bool], ...] = (
    (IPv6Network("::ffff:0:0/96"), 0, True),
    (IPv6Network("64:ff9b::/96"), 0, True),
    (IPv6Network("2002::/16"), 80, True),
    (IPv6Network("::ffff:0:0:0/96"), 0, False),
    (IPv6Network("::/96"), 0, False),
)
"""IPv6 networks that carry IPv4 addresses, how many bits follow these, and whether the networks are still in use."""
_ISATAP = frozenset({0x5EFE, 0x0200_5EFE})
_NUMBER = re.compile(r"\d+|0x[0-9a-f]*", re.ASCII | re.IGNORECASE)


def special_kind(address: Address) -> str | None:
    """Why an address is not a public one: `loopback`, `private`, `metadata`...; None for a public address."""
    kind = next((kind for kind, network in _SPECIAL if address.version == network.version and address in network), None)
    if kind or isinstance(address, IPv4Address):
        return kind
    if address.scope_id:
        return "link-local"
    inner, is_in_use = _embedded(address)
    kind = special_kind(inner) if inner is not None else None
    return kind or (None if is_in_use or address in _UNICAST else "reserved")


def checked_addresses(host: str, addresses: Collection[str], allowed: Collection[str]) -> tuple[str, ...]:
    """The resolved addresses, if messages may be sent to every one of them.

    Raises NotificationError otherwise: a name with one public and one private address could lead to either.
    """
    if not addresses:
        raise NotificationError(f"Cannot send to {host}: the name has no address")
    for text in addresses:
        kind = _kind_of(text)
        if kind and not _is_allowed(host, text, kind, allowed):
            raise NotificationError(f"Cannot send to {host}: it has a {kind} address", hint=HINT)
    return tuple(addresses)


def is_listed(host: str, allowed: Collection[str]) -> bool:
    """Whether the settings allow the host by its name or address, in any case and with or without a final dot."""
    return plain_name(host) in {plain_name(name) for name in allowed}


def plain_name(host: str) -> str:
    """A host in the spelling in which names are compared."""
    return host.strip("[]").rstrip(".").lower()


def is_odd_number(host: str) -> bool:
    """Whether a host is an IPv4 address in another notation than four decimal numbers, such as `0x7f.1` or `2130706433`."""
    if ":" in host or not _NUMBER.fullmatch(host.rstrip(".").rpartition(".")[2]):
        return False
    try:
        IPv4Address(host)
    except ValueError:
        return True
    return False


def _kind_of(text: str) -> str | None:
    try:
        return special_kind(ipaddress.ip_address(text))
    except ValueError:
        return "reserved"


def _is_allowed(host: str, address: str, kind: str, allowed: Collection[str]) -> bool:
    is_literal = plain_name(host) == plain_name(address)
    return is_listed(host, allowed) and (kind in _LOCAL or is_literal)


def _embedded(address: IPv6Address) -> tuple[IPv4Address | None, bool]:
    """The IPv4 address that an address carries, and whether it is one of a network in use that carries such addresses."""
    value = int(address)
    for network, after, is_in_use in _EMBEDDING:
        if address in network:
            return IPv4Address((value >> after) & 0xFFFF_FFFF), is_in_use
    if (value >> 32) & 0xFFFF_FFFF in _ISATAP:
        return IPv4Address(value & 0xFFFF_FFFF), False
    return None, False
