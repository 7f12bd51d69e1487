"""What can be known to be wrong before anything starts: said at once, with the flag's name.

The engine checks the same things where it loads the model, a minute later and on whatever machine
that is. Only what surely fails there is refused here; weights from a hub are not looked at.
"""

from __future__ import annotations

import json
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from actors.engine.errors import ModelLoadError
from actors.engine.state import state_specification
from cluster.config import AppArgs, GatewayArgs
from cluster.serving_wait import ServingError
from cluster.tls import TlsError, TlsFiles

CONNECT_TIMEOUT_S = 5.0
_BYTES = {"auto": 2, "bfloat16": 2, "float32": 4, "float64": 8}  # the least "auto" can become
_WILDCARDS = frozenset({"0.0.0.0", "::"})


def check_doors(args: AppArgs, host: str, port: int) -> None:
    """Raises ServingError when a server cannot listen where it is told to, or its certificate
    cannot be used."""
    gateway = args.gateway
    check_port(host, port, "--port")
    if gateway.grpc_port:
        same_host = host == gateway.grpc_host or {host, gateway.grpc_host} & _WILDCARDS
        if port == gateway.grpc_port and same_host:
            raise ServingError(f"--grpc-port: {port} is the HTTP port (--port); choose another")
        check_port(gateway.grpc_host, gateway.grpc_port, "--grpc-port")
    _check_certificate(gateway)


def check_port(host: str, port: int, flag: str) -> None:
    """Raises ServingError when nothing can listen there."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As servers do: a connection that has just ended must not look like a busy port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            reason = error.strerror or str(error)
            raise ServingError(
                f"cannot listen on {host}:{port} ({reason}); choose another with {flag}"
            ) from None


def check_cluster(address: str) -> None:
    """Raises ServingError when nobody answers at the address of a Ray cluster: Ray itself would go
    on trying for as long as it is let."""
    if address == "auto" or "://" in address:
        return
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise ServingError(f"--address: {address!r} is neither host:port nor auto")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_TIMEOUT_S).close()
    except OSError as error:
        reason = error.strerror or str(error)
        raise ServingError(f"--address: no Ray answers at {address} ({reason})") from None


def check_gpus(wanted: float, there: int) -> None:
    """Raises ServingError when the application asks for more GPUs than there are."""
    if wanted > there:
        raise ServingError(
            f"--verifier-gpus, --drafter-gpus: {wanted:g} GPUs are asked for in all, and this "
            f"machine has {there}"
        )


def check_model(args: AppArgs, model: Path | str) -> None:
    """Raises ServingError for a folder that cannot serve what is asked of it. model: resolved."""
    if not isinstance(model, Path):
        return
    check_weights(model)
    config = _config(model)
    own = config.get("max_position_embeddings")
    if not isinstance(own, int):
        return
    if args.max_model_len is not None and args.max_model_len > own:
        raise ServingError(
            f"--max-model-len: {args.max_model_len} is more than the model's {own} positions"
        )
    _check_cache(args, config, args.max_model_len or own)


def check_weights(folder: Path) -> None:
    """Raises ServingError when the weights are not there, or not all of them."""
    files = sorted(folder.glob("*.safetensors"))
    if not files and not any(folder.glob("*.gguf")):
        raise ServingError(f"{folder}: neither *.safetensors nor *.gguf weights")
    from safetensors import SafetensorError, safe_open

    for file in files:
        try:
            with safe_open(file, framework="numpy"):
                pass
        except (SafetensorError, OSError) as error:
            raise ServingError(
                f"{file} cannot be read, as if a download had been cut off: {error}"
            ) from None
    missing = [name for name in _shards(folder) if not (folder / name).is_file()]
    if missing:
        raise ServingError(
            f"{folder}: {len(missing)} files of its weights are missing, {missing[0]} among them"
        )


def _shards(folder: Path) -> list[str]:
    """The files that the index of a sharded checkpoint names."""
    try:
        index = json.loads((folder / "model.safetensors.index.json").read_text("utf-8"))
        return sorted(set(index["weight_map"].values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []


def _config(folder: Path) -> dict[str, Any]:
    """The text model's part of config.json, as it stands there: transformers would know the
    defaults of what it leaves out, and bring torch along."""
    try:
        config = json.loads((folder / "config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    text = config.get("text_config", config) if isinstance(config, dict) else {}
    return text if isinstance(text, dict) else {}


def _check_cache(args: AppArgs, config: dict[str, Any], context: int) -> None:
    """One request of the whole context must fit into the KV cache that was asked for."""
    given = args.kv_cache_memory_bytes
    if given is None or "num_key_value_heads" not in config:
        return
    try:
        layers = state_specification(SimpleNamespace(**config))
    except (ModelLoadError, AttributeError, TypeError, ValueError):
        return  # the engine's own words say more
    blocks = -(-context // args.block_size)
    row = sum(layer.row_elements for layer in layers) * _BYTES[args.dtype]
    least = blocks * args.block_size * row // args.tensor_parallel_size  # of each rank
    if given < least:
        raise ServingError(
            f"--kv-cache-memory-bytes: one request of {context} tokens needs {least} bytes, and "
            f"{given} are given; raise it or lower --max-model-len"
        )


def _check_certificate(gateway: GatewayArgs) -> None:
    if gateway.tls_certificate is None or gateway.tls_key is None:
        return
    try:
        TlsFiles(gateway.tls_certificate, gateway.tls_key).check()
    except TlsError as error:
        raise ServingError(f"--tls-certificate, --tls-key: {error}") from None
