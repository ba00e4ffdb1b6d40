from __future__ import annotations

import pytest

from deepwire.serve.connections import GRACE, Connections, client_of
from deepwire.serve.request import Limits


class Connection:
    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def connections() -> Connections:
    return Connections(Limits(connections=5, client_connections=3))


def admitted(connections: Connections, client: str, count: int) -> list[Connection]:
    found = [Connection() for _ in range(count)]
    for one in found:
        assert connections.admit(one, client, 0)
        connections.waits(one, client, True, 0)
    return found


def test_the_client_with_too_many_loses_the_one_that_waits_longest(connections: Connections) -> None:
    other = admitted(connections, "b", 1)
    own = admitted(connections, "a", 3)
    connections.waits(own[0], "a", False, 0)  # has a request now
    assert connections.admit(Connection(), "a", GRACE)
    assert [one.closed for one in (*other, *own)] == [False, False, True, False]
    connections.waits(own[0], "a", True, GRACE)  # and waits again, as the last
    assert connections.admit(Connection(), "a", GRACE)
    assert [one.closed for one in own] == [False, True, True]
    assert not connections.admit(Connection(), "a", 1.9 * GRACE)
    assert connections.admit(Connection(), "a", 2 * GRACE)
    assert [one.closed for one in own] == [True, True, True]


def test_where_all_together_are_too_many_the_client_with_most_makes_room(connections: Connections) -> None:
    many, few = admitted(connections, "a", 3), admitted(connections, "b", 2)
    assert connections.admit(Connection(), "c", GRACE)
    assert [one.closed for one in (*many, *few)] == [True, False, False, False, False]


def test_connections_that_have_just_come_may_have_sent_a_request(connections: Connections) -> None:
    admitted(connections, "a", 3)
    assert not connections.admit(Connection(), "a", 0.9 * GRACE)
    connections.waits(Connection(), "a", True, 0)  # one that was not taken cannot be closed for another
    admitted(connections, "b", 2)
    assert not connections.admit(Connection(), "c", 0.9 * GRACE)
    assert connections.admit(Connection(), "c", GRACE)


def test_connections_with_work_are_never_closed_for_another(connections: Connections) -> None:
    busy = [*admitted(connections, "a", 3), *admitted(connections, "b", 2)]
    for one, client in zip(busy, "aaabb", strict=True):
        connections.waits(one, client, False, 1)
    refused = Connection()
    assert not connections.admit(refused, "c", 10)
    connections.waits(refused, "c", True, 10)
    assert not connections.admit(Connection(), "c", 20)
    connections.forget(busy[0], "a")
    connections.forget(busy[0], "a")
    assert connections.admit(Connection(), "c", 20)
    assert not connections.admit(Connection(), "c", 20)
    assert not any(one.closed for one in (*busy, refused))


def test_nothing_is_kept_of_who_has_gone(connections: Connections) -> None:
    for round_ in range(100):
        client = f"10.0.0.{round_}"
        for one in admitted(connections, client, 2):
            connections.forget(one, client)
    assert not connections._clients
    assert not connections._waiting
    assert connections.busy == 0


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
