"""Which network addresses a node may reach: those that are public, and those that are allowed.

A flow may hold addresses that came from anywhere. One that leads to the worker's own machine or
network must not be reached by accident, however it is written.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from functools import cached_property

from perdure.diagnostics import declare, safe_repr
from perdure.errors import InvalidInput

EVERYTHING = "*"
"""Allows all addresses."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# The special-purpose registries of IANA. Listed here, because what Python takes for public
# differs from version to version.
_NOT_PUBLIC_4 = [
    ipaddress.IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",
        "100.64.0.0/10",  # shared by the customers of a provider
        "127.0.0.0/8",
        "169.254.0.0/16",  # link-local: metadata of cloud machines
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",  # documentation, as are 198.51.100 and 203.0.113
        "192.88.99.0/24",  # relays of 6to4
        "192.168.0.0/16",
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    )
]
_PUBLIC_6 = ipaddress.IPv6Network("2000::/3")
_NOT_PUBLIC_6 = [
    ipaddress.IPv6Network(network)
    for network in (
        "2001::/23",  # protocols, among them Teredo
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4: an IPv4 address in disguise
        "3fff::/20",  # documentation
    )
]
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_ISATAP = 0x5EFE

NOT_ALLOWABLE = declare(
    "http.not_allowable",
    "{found} cannot be allowed",
    "Give an address, a network such as 10.0.0.0/8, a host name, or '*'",
)


class Allowed:
    """The addresses and names that may be reached though they are not public."""

    def __init__(self, entries: Iterable[str] = ()) -> None:
        self._entries = tuple(_checked(entry) for entry in entries)

    def permits(self, host: str, address: Address) -> bool:
        """Whether this host may be reached at this address, which it resolved to."""
        plain = embedded(address) or address
        if is_public(address) or EVERYTHING in self._entries or host.lower() in self._names:
            return True
        return any(plain in network or address in network for network in self._networks)

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(each for each in self._entries if isinstance(each, str))

    @cached_property
    def _networks(self) -> list[_Network]:
        return [each for each in self._entries if not isinstance(each, str)]


def is_public(address: Address) -> bool:
    """Whether the address belongs to the whole internet, also where it hides another one."""
    inside = embedded(address)
    if inside is not None:
        return is_public(inside)
    if isinstance(address, ipaddress.IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_4)
    if address.scope_id is not None or address not in _PUBLIC_6:
        return False
    return not any(address in network for network in _NOT_PUBLIC_6)


def embedded(address: Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that packets to this IPv6 address end at, if it is of that sort."""
    if isinstance(address, ipaddress.IPv4Address):
        return None
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    number = int(address)
    # The bit that tells universal identifiers from local ones does not matter.
    is_isatap = (number >> 32) & 0xFDFF_FFFF == _ISATAP
    if address in _NAT64 or is_isatap:
        return ipaddress.IPv4Address(number & 0xFFFF_FFFF)
    return None


def _checked(entry: str) -> str | _Network:
    text = str(entry).strip().lower()
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        pass
    if not text or any(sign in text for sign in "/:@ ,"):
        raise InvalidInput(NOT_ALLOWABLE.fault(("allow",), name="allow", found=safe_repr(entry)))
    return text.rstrip(".")
