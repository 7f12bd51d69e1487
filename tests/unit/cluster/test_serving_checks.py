"""What is wrong from the start is said before anything starts, with the flag's name."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from cluster.config import AppArgs, GatewayArgs
from cluster.serving import free_port, start
from cluster.serving_checks import check_cluster, check_doors, check_gpus, check_model
from cluster.serving_wait import ServingError
from tests.models import make_rand, save_tiny


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(save_tiny(make_rand(max_position_embeddings=256), tmp_path_factory.mktemp("tiny")))


def copy(folder: Path, to: Path, **changes: Any) -> Path:
    """A model's folder with fields of its config changed; None drops one."""
    for file in folder.iterdir():
        os.link(file, to / file.name)
    config = json.loads((folder / "config.json").read_text()) | changes
    (to / "config.json").unlink()
    (to / "config.json").write_text(json.dumps({k: v for k, v in config.items() if v is not None}))
    return to


def test_one_port_for_two_doors_is_refused() -> None:
    port = free_port()
    args = AppArgs(gateway=GatewayArgs(grpc_port=port))
    for host in ("127.0.0.1", "0.0.0.0"):
        with pytest.raises(ServingError, match="--grpc-port"):
            check_doors(args, host, port)
    check_doors(args, "127.0.0.1", free_port())


def test_a_certificate_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    gone = str(tmp_path / "gone.pem")
    args = AppArgs(gateway=GatewayArgs(tls_certificate=gone, tls_key=gone))
    with pytest.raises(ServingError, match=r"--tls-certificate.*gone\.pem"):
        check_doors(args, "127.0.0.1", free_port())


def test_a_cluster_that_nobody_answers_at_is_refused_at_once() -> None:
    with pytest.raises(ServingError, match="--address: no Ray answers"):
        check_cluster(f"127.0.0.1:{free_port()}")
    for address in ("nonsense", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:99999"):
        with pytest.raises(ServingError, match="neither host:port nor auto"):
            check_cluster(address)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        check_cluster(f"127.0.0.1:{listening.getsockname()[1]}")
    check_cluster("auto")


def test_more_gpus_than_there_are_name_their_flags() -> None:
    with pytest.raises(ServingError, match=r"--verifier-gpus.* 1\.5 GPUs .* has 1"):
        check_gpus(1.5, 1)
    check_gpus(1.0, 1)
    check_gpus(0.0, 0)


def test_a_longer_context_than_the_models_is_refused(folder: Path) -> None:
    with pytest.raises(ServingError, match=r"--max-model-len: 257 .* 256"):
        check_model(AppArgs(max_model_len=257), folder)
    check_model(AppArgs(max_model_len=256), folder)


def test_a_kv_cache_too_small_for_one_request_names_the_least(folder: Path) -> None:
    args = AppArgs(kv_cache_memory_bytes=1024, dtype="float32")
    with pytest.raises(ServingError, match=r"--kv-cache-memory-bytes: .* needs \d+ bytes") as said:
        check_model(args, folder)
    least = int(str(said.value).split(" needs ")[1].split()[0])
    check_model(args.model_copy(update={"kv_cache_memory_bytes": least}), folder)
    with pytest.raises(ServingError):
        check_model(args.model_copy(update={"kv_cache_memory_bytes": least - 1}), folder)


def test_the_least_kv_cache_is_never_more_than_the_engine_wants(folder: Path) -> None:
    """What passes here may fail there, and not the other way round."""
    from actors.engine.loading import load_model, resolve_dtype
    from actors.engine.sizing import row_bytes
    from actors.engine.state import state_specification

    for name in ("auto", "bfloat16", "float32", "float64"):
        dtype = resolve_dtype(name, "cpu")
        spec = state_specification(load_model(str(folder), None, dtype, "cpu").config)
        exact = row_bytes(spec, dtype, 0) * 256
        args = AppArgs(dtype=name, kv_cache_memory_bytes=exact)  # type: ignore[arg-type]
        check_model(args, folder)


@pytest.mark.parametrize(
    "changes",
    [{"max_position_embeddings": None}, {"num_hidden_layers": None}, {"hidden_size": "x"}],
)
def test_a_config_that_leaves_things_out_is_the_engines_business(
    folder: Path, tmp_path: Path, changes: dict[str, Any]
) -> None:
    check_model(AppArgs(kv_cache_memory_bytes=1 << 30), copy(folder, tmp_path, **changes))


def test_weights_cut_off_on_their_way_are_refused(folder: Path, tmp_path: Path) -> None:
    copy(folder, tmp_path)
    (weights,) = tmp_path.glob("*.safetensors")
    whole = weights.read_bytes()
    weights.unlink()
    for cut in (whole[:4], whole[:100], whole[:-1]):
        weights.write_bytes(cut)
        with pytest.raises(ServingError, match=weights.name):
            check_model(AppArgs(), tmp_path)


def test_a_shard_that_is_missing_is_named(folder: Path, tmp_path: Path) -> None:
    copy(folder, tmp_path)
    index = {"weight_map": {"a": "model.safetensors", "b": "model-2.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ServingError, match=r"model-2\.safetensors"):
        check_model(AppArgs(), tmp_path)


def test_no_weights_at_all_are_refused(folder: Path, tmp_path: Path) -> None:
    copy(folder, tmp_path)
    for weights in tmp_path.glob("*.safetensors"):
        weights.unlink()
    with pytest.raises(ServingError, match=r"neither \*\.safetensors nor \*\.gguf"):
        check_model(AppArgs(), tmp_path)


def test_a_name_of_a_hub_is_not_looked_at() -> None:
    check_model(AppArgs(max_model_len=1 << 30), "owner/name")


def test_a_start_that_cannot_succeed_starts_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cluster.serving._on_ray", lambda *_: pytest.fail("started"))
    args = AppArgs(model=str(folder), max_model_len=10_000)
    with pytest.raises(ServingError, match="--max-model-len"):
        start(args, port=0)
