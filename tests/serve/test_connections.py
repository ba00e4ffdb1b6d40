from __future__ import annotations

import pytest

from deepwire.serve.connections import Connections, client_of
from deepwire.serve.request import Limits


def test_a_client_and_all_together_have_so_many_at_most() -> None:
    connections = Connections(Limits(connections=5, client_connections=3))
    assert [connections.admit("a") for _ in range(4)] == [True, True, True, False]
    assert [connections.admit(client) for client in "bcd"] == [True, True, False]
    connections.forget("a")
    assert [connections.admit(client) for client in "da"] == [True, False]


@pytest.mark.parametrize(
    ("address", "client"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
        ("", ""),
    ],
)
def test_who_is_behind_an_address(address: str, client: str) -> None:
    assert client_of(address) == client
