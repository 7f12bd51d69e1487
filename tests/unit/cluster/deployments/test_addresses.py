import pytest

from cluster.deployments.addresses import DataAddress, data_address


def test_one_node_keeps_the_data_plane_on_loopback() -> None:
    assert data_address(None, "10.0.0.7", 1) == DataAddress("127.0.0.1", "127.0.0.1")


def test_several_nodes_use_the_nodes_own_address_and_nothing_wider() -> None:
    assert data_address(None, "10.0.0.7", 2) == DataAddress("10.0.0.7", "10.0.0.7")


@pytest.mark.parametrize("wildcard", ["0.0.0.0", "::"])
def test_a_wildcard_is_bound_but_never_advertised(wildcard: str) -> None:
    assert data_address(wildcard, "10.0.0.7", 1) == DataAddress(wildcard, "10.0.0.7")


def test_a_given_host_is_taken_as_it_is() -> None:
    assert data_address("192.168.1.2", "10.0.0.7", 3).at(5) == "192.168.1.2:5"


def test_an_ipv6_address_is_bracketed_for_those_who_dial() -> None:
    assert DataAddress("::1", "::1").at(5) == "[::1]:5"
