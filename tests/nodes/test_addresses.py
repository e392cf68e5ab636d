"""Which addresses may be reached."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from perdure.errors import InvalidInput
from perdure.nodes.network import Allowed, embedded, is_public

PUBLIC = [
    "8.8.8.8",
    "93.184.216.34",
    "172.15.255.255",
    "172.32.0.1",
    "100.63.255.255",
    "100.128.0.1",
    "223.255.255.255",
    "2606:4700::1111",
    "2a00:1450:4001::200e",
    "::ffff:8.8.8.8",
    "64:ff9b::8.8.8.8",
]
NOT_PUBLIC = [
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "100.64.0.1",
    "127.0.0.1",
    "127.255.255.254",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.1",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:0:127.0.0.1",
    "64:ff9b::127.0.0.1",
    "64:ff9b::169.254.169.254",
    "64:ff9b:1::8.8.8.8",
    "100::1",
    "2001::1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2001:db8::1",
    "2002:7f00:1::1",
    "2002:808:808::1",
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fd12:3456::1",
    "fe80::1",
    "fe80::1%eth0",
    "2606:4700::1111%eth0",
    "fec0::1",
    "ff02::1",
    "2606:4700::5efe:127.0.0.1",
    "2606:4700::200:5efe:10.0.0.1",
]


class TestIsPublic:
    @pytest.mark.parametrize("text", PUBLIC)
    def test_lets_the_internet_through(self, text):
        assert is_public(ip_address(text))

    @pytest.mark.parametrize("text", NOT_PUBLIC)
    def test_refuses_everything_else(self, text):
        assert not is_public(ip_address(text))


class TestAllowed:
    @pytest.mark.parametrize(
        "entry, host, address",
        [
            ("127.0.0.1", "x", "127.0.0.1"),
            ("127.0.0.0/8", "x", "127.1.2.3"),
            ("127.0.0.1/32", "x", "::ffff:127.0.0.1"),
            ("10.1.2.3/8", "x", "10.200.0.1"),
            ("::1", "x", "::1"),
            ("fd00::/8", "x", "fd12::1"),
            ("internal.example", "INTERNAL.example", "10.0.0.1"),
            ("Internal.Example.", "internal.example", "10.0.0.1"),
            ("*", "x", "169.254.169.254"),
        ],
    )
    def test_permits_what_is_named(self, entry, host, address):
        assert Allowed([entry]).permits(host, ip_address(address))

    @pytest.mark.parametrize(
        "entry, host, address",
        [
            ("127.0.0.1", "x", "127.0.0.2"),
            ("127.0.0.1", "127.0.0.1.evil.example", "10.0.0.1"),
            ("internal.example", "x.internal.example", "10.0.0.1"),
            ("internal.example", "internal.example.evil", "10.0.0.1"),
            ("10.0.0.0/8", "x", "::1"),
        ],
    )
    def test_permits_nothing_else(self, entry, host, address):
        assert not Allowed([entry]).permits(host, ip_address(address))

    def test_permits_what_is_public_without_being_asked(self):
        assert Allowed().permits("example.org", ip_address("93.184.216.34"))

    @pytest.mark.parametrize("entry", ["", "  ", "http://x", "10.0.0.0/99", "a b", "x:80", "a@b"])
    def test_refuses_entries_that_mean_nothing(self, entry):
        with pytest.raises(InvalidInput, match="cannot be allowed"):
            Allowed([entry])


def test_an_address_inside_another_is_found():
    assert embedded(ip_address("64:ff9b::10.0.0.1")) == ip_address("10.0.0.1")
    assert embedded(ip_address("2606:4700::1111")) is None
