"""Where data-plane servers bind, and the address others reach them at."""

from __future__ import annotations

from dataclasses import dataclass

LOOPBACK = "127.0.0.1"
_WILDCARDS = frozenset({"0.0.0.0", "::", "[::]"})


@dataclass(frozen=True, slots=True)
class DataAddress:
    """bind: for the server's socket. advertise: for everybody else."""

    bind: str
    advertise: str

    def at(self, port: int) -> str:
        """host:port as others dial it."""
        return host_port(self.advertise, port)


def host_port(host: str, port: int) -> str:
    """host:port, IPv6 in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def data_address(data_host: str | None, node_ip: str, num_nodes: int) -> DataAddress:
    """Loopback while the cluster is one node, the node's own address on several; a wildcard in
    `data_host` binds everything and advertises the node's address."""
    if data_host is None:
        host = LOOPBACK if num_nodes <= 1 else node_ip
        return DataAddress(host, host)
    if data_host in _WILDCARDS:
        return DataAddress(data_host, node_ip)
    return DataAddress(data_host, data_host)


def this_node(data_host: str | None) -> DataAddress:
    """`data_address` of the Ray node this process runs on."""
    import ray

    alive = sum(1 for node in ray.nodes() if node["Alive"])
    return data_address(data_host, ray.util.get_node_ip_address(), alive)
