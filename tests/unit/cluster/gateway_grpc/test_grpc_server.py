"""Laws of the public server: what it refuses and how, TLS, API key, health, reflection, ports."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from cluster.gateway.grpc_server import GrpcSettings, GrpcStartError
from cluster.gateway.settings import GatewaySettings
from cluster.tls import TlsError, TlsFiles
from pilotfish import (
    AsyncClient,
    AuthenticationError,
    InvalidRequestError,
    NotFoundError,
    PilotfishError,
    UnavailableError,
)
from pilotfish.v1 import control_pb2
from pilotfish.v1 import inference_pb2 as pb
from pilotfish.v1.inference_pb2_grpc import InferenceStub
from tests.unit.cluster.gateway_grpc.certificates import make_certificate
from tests.unit.cluster.gateway_grpc.fakes import (
    Script,
    expected,
    make_gateway,
)


def make_request(**fields: Any) -> pb.GenerateRequest:
    return pb.GenerateRequest(**{"prompt": "ab", **fields})


def biased(*tokens: int) -> pb.GenerateRequest:
    request = make_request()
    for token in tokens:
        request.logit_bias.add(token=token, bias=1.0)
    return request


def chat(role: str, *contents: str) -> pb.GenerateRequest:
    request = pb.GenerateRequest()
    request.chat.SetInParent()
    for content in contents:
        request.chat.messages.add(role=role, content=content)
    return request


BAD: list[tuple[Callable[[], pb.GenerateRequest], str]] = [
    (lambda: make_request(prompt=""), "prompt"),
    (lambda: make_request(prompt="a" * 600), "prompt"),
    (lambda: pb.GenerateRequest(), "prompt"),
    (lambda: pb.GenerateRequest(tokens=pb.TokenPrompt()), "tokens"),
    (lambda: pb.GenerateRequest(tokens=pb.TokenPrompt(ids=[17])), "tokens"),
    (lambda: pb.GenerateRequest(tokens=pb.TokenPrompt(ids=[2**32 - 1])), "tokens"),
    (lambda: chat("user"), "messages"),
    (lambda: chat("shark", "a"), "messages[0].role"),
    (lambda: make_request(temperature=-1.0), "temperature"),
    (lambda: make_request(temperature=float("nan")), "temperature"),
    (lambda: make_request(top_p=0.0), "top_p"),
    (lambda: make_request(min_p=2.0), "min_p"),
    (lambda: make_request(repetition_penalty=0.0), "repetition_penalty"),
    (lambda: make_request(presence_penalty=3.0), "presence_penalty"),
    (lambda: make_request(frequency_penalty=float("inf")), "frequency_penalty"),
    (lambda: make_request(max_tokens=0), "max_tokens"),
    (lambda: make_request(max_tokens=1_000_000), "max_tokens"),
    (lambda: make_request(max_tokens=4, min_tokens=5), "min_tokens"),
    (lambda: make_request(stop=["x"] * 10_000), "stop"),
    (lambda: make_request(stop=[""]), "stop"),
    (lambda: make_request(stop_token_ids=[17]), "stop_token_ids"),
    (lambda: make_request(logprobs=1000), "logprobs"),
    (lambda: make_request(request_id="a b"), "request_id"),
    (lambda: make_request(cohort="*"), "cohort"),
    (lambda: make_request(speculative=pb.Speculative(n_max=1000)), "speculative.n_max"),
    (lambda: biased(17), "logit_bias"),
    (lambda: biased(1, 1), "logit_bias"),
]


async def test_bad_values_are_refused_by_name_and_disturb_nothing() -> None:
    async with make_gateway(Script()) as gateway:
        async with grpc.aio.insecure_channel(gateway.target) as channel:
            stub = InferenceStub(channel)
            for make, param in BAD:
                for call in (stub.Generate(make()), stub.GenerateStream(make()).read()):
                    with pytest.raises(grpc.aio.AioRpcError) as caught:
                        await call
                    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT, param
                    assert dict(caught.value.trailing_metadata())["pilotfish-param"] == param
            assert gateway.stand.verifiers[0].submits == []
            answer = await stub.Generate(make_request(seed=4, max_tokens=5))
            assert list(answer.token_ids) == expected(4, 5)
        assert gateway.stand.router.held.total() == 0


async def test_what_the_wire_cannot_carry_is_refused_before_it_is_sent() -> None:
    async with AsyncClient("127.0.0.1:1") as client:
        for options, param in (
            ({"seed": 2**64}, "seed"),
            ({"seed": -1}, "seed"),
            ({"max_tokens": -1}, "max_tokens"),
            ({"temperature": "hot"}, "temperature"),
            ({"stop": ["\ud800"]}, "stop"),
        ):
            with pytest.raises(InvalidRequestError) as caught:
                await client.generate("a", **options)  # type: ignore[arg-type]
            assert caught.value.param == param
        with pytest.raises(InvalidRequestError) as caught:
            await client.generate("\ud800")
        assert caught.value.param == "prompt"


async def test_an_unknown_model_is_not_found() -> None:
    async with make_gateway(Script()) as gateway, AsyncClient(gateway.target) as client:
        for call in (
            client.generate("a", model="shark"),
            client.stream("a", model="shark").read(),
            client.tokenize("a", model="shark"),
        ):
            with pytest.raises(NotFoundError) as caught:
                await call
            assert caught.value.param == "model"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\xff\xff\xff\xff", "is no pilotfish.v1.GenerateRequest"),
        (b"\x12\x02\xff\xfe", "prompt is not valid UTF-8"),
        (make_request().SerializeToString() + b"\xf8\x3f\x01", "field 1023"),
        (b"\x12\x01a\xb2\x01\x03\xf8\x3f\x01", "Speculative, field 1023"),
    ],
    ids=["garbage", "invalid-utf8", "unknown-field", "unknown-nested-field"],
)
async def test_a_wrong_shaped_message_is_an_invalid_argument(data: bytes, words: str) -> None:
    async with make_gateway(Script()) as gateway:
        async with grpc.aio.insecure_channel(gateway.target) as channel:
            for method in ("Generate", "GenerateStream"):
                path = f"/pilotfish.v1.Inference/{method}"
                call: Any = (
                    channel.unary_unary(path)(data)
                    if method == "Generate"
                    else channel.unary_stream(path)(data).read()
                )
                with pytest.raises(grpc.aio.AioRpcError, match=words) as caught:
                    await call
                assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        async with AsyncClient(gateway.target) as client:
            assert (await client.generate("a", seed=1, max_tokens=2)).token_ids == (1, 8)


async def test_a_message_over_the_limit_is_refused_and_the_connection_lives() -> None:
    settings = GrpcSettings(max_message_bytes=4096)
    async with (
        make_gateway(Script(), grpc_settings=settings) as gateway,
        AsyncClient(gateway.target, retries=0) as client,
    ):
        with pytest.raises(PilotfishError) as caught:
            await client.generate("a" * 5000)
        assert caught.value.code == "RESOURCE_EXHAUSTED"
        assert (await client.generate("a", seed=1, max_tokens=2)).token_ids == (1, 8)


async def test_an_unexpected_error_shows_nothing_of_its_inside() -> None:
    async def broken() -> control_pb2.Status:
        raise RuntimeError("secret path")

    async with (
        make_gateway(Script(), status=broken) as gateway,
        AsyncClient(gateway.target) as client,
    ):
        with pytest.raises(PilotfishError) as caught:
            await client.status()
        assert (caught.value.code, "secret" in str(caught.value)) == ("INTERNAL", False)


async def test_status_tells_what_the_source_says() -> None:
    async def source() -> control_pb2.Status:
        status = control_pb2.Status()
        status.snapshot.term, status.snapshot.version = 7, 2
        status.snapshot.fallback.depth = 4
        status.snapshot.drafters.add(drafter="d0", mechanism="ngram", pid=9)
        status.verifiers.add(verifier="v0", pid=8).links.add(drafter="d0", up=True, frames_sent=5)
        return status

    async with (
        make_gateway(Script(), status=source) as gateway,
        AsyncClient(gateway.target) as client,
    ):
        status = await client.status()
    assert (status.term, status.version, status.fallback.depth) == (7, 2, 4)
    assert status.drafters[0].mechanism == "ngram"
    assert (status.verifiers[0].links[0].up, status.verifiers[0].links[0].frames_sent) == (True, 5)


async def test_a_configured_api_key_is_wanted_everywhere_but_for_health(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(os.environ, "TEST_KEY", "s3cret")
    settings = GatewaySettings(served_model_name="tiny", api_key_env="TEST_KEY")
    async with make_gateway(Script(), settings=settings) as gateway:
        for key in (None, "s3cre", "s3cret2", "S3CRET"):
            async with AsyncClient(gateway.target, api_key=key) as client:
                for call in (
                    client.generate("a"),
                    client.stream("a").read(),
                    client.models(),
                    client.tokenize("a"),
                    client.status(),
                ):
                    with pytest.raises(AuthenticationError):
                        await call
        assert gateway.stand.verifiers[0].submits == []
        async with AsyncClient(gateway.target, api_key="s3cret") as client:
            assert (await client.generate("a", seed=1, max_tokens=2)).token_ids == (1, 8)
        assert await health_of(gateway.target) == health_pb2.HealthCheckResponse.SERVING


async def test_tls_answers_those_who_trust_it_and_no_plain_text(tmp_path: Path) -> None:
    files = make_certificate(tmp_path)
    settings = GrpcSettings(tls=files)
    async with make_gateway(Script(), grpc_settings=settings) as gateway:
        async with AsyncClient(gateway.target, tls=files.certificate) as client:
            assert (await client.generate("a", seed=1, max_tokens=2)).token_ids == (1, 8)
        stranger = make_certificate(tmp_path, "stranger")
        for tls in (False, True, stranger.certificate):
            async with AsyncClient(gateway.target, tls=tls, retries=0, timeout=5) as client:
                with pytest.raises(UnavailableError):
                    await client.generate("a")


async def test_a_renewed_certificate_is_used_without_a_restart(tmp_path: Path) -> None:
    files = make_certificate(tmp_path)
    async with make_gateway(Script(), grpc_settings=GrpcSettings(tls=files)) as gateway:
        renewed = make_certificate(tmp_path, "renewed")
        os.replace(renewed.key, files.key)
        os.replace(renewed.certificate, files.certificate)
        async with AsyncClient(gateway.target, tls=files.certificate) as client:
            assert (await client.generate("a", seed=1, max_tokens=2)).token_ids == (1, 8)
        Path(files.key).write_text("half a fi")
        async with AsyncClient(gateway.target, tls=files.certificate) as client:
            assert (await client.generate("a", seed=1, max_tokens=2)).token_ids == (1, 8)


def test_unusable_tls_files_are_refused_by_name(tmp_path: Path) -> None:
    files, other = make_certificate(tmp_path), make_certificate(tmp_path, "other")
    with pytest.raises(TlsError, match=r"nowhere\.pem"):
        TlsFiles(str(tmp_path / "nowhere.pem"), files.key).load()
    with pytest.raises(TlsError, match=r"server\.pem and .*other\.key"):
        TlsFiles(files.certificate, other.key).load()
    Path(files.key).write_text("no key")
    with pytest.raises(TlsError, match=r"server\.key"):
        files.load()


async def test_a_busy_port_is_a_clear_error() -> None:
    async with make_gateway(Script()) as gateway:
        settings = GrpcSettings(port=gateway.server.port)
        with pytest.raises(GrpcStartError, match=f"127.0.0.1:{gateway.server.port}.*in use"):
            async with make_gateway(Script(), grpc_settings=settings):
                pass
        async with AsyncClient(gateway.target) as client:
            assert (await client.generate("a", seed=1, max_tokens=2)).token_ids == (1, 8)


async def test_an_address_of_another_machine_is_a_clear_error() -> None:
    with pytest.raises(GrpcStartError, match=r"192\.0\.2\.1:0"):
        async with make_gateway(Script(), grpc_settings=GrpcSettings(host="192.0.2.1")):
            pass


async def test_the_default_binds_loopback_alone() -> None:
    settings = GrpcSettings()
    assert settings.host == "127.0.0.1"
    async with make_gateway(Script()) as gateway:
        socket.create_connection(("127.0.0.1", gateway.server.port), timeout=5).close()
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.2", gateway.server.port), timeout=5)


async def test_health_follows_the_verifiers() -> None:
    settings = GrpcSettings(health_period_s=0.05)
    async with make_gateway(Script(), patience_s=0.2, grpc_settings=settings) as gateway:
        serving = health_pb2.HealthCheckResponse.SERVING
        assert await health_of(gateway.target) == serving
        assert await health_of(gateway.target, "pilotfish.v1.Inference") == serving
        async with grpc.aio.insecure_channel(gateway.target) as channel:
            watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
            assert (await watch.read()).status == serving
            gateway.stand.router.addresses.clear()
            gateway.stand.verifiers[0].kill()
            async with asyncio.timeout(5):
                assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING


async def test_reflection_lists_the_public_services() -> None:
    async with (
        make_gateway(Script()) as gateway,
        grpc.aio.insecure_channel(gateway.target) as channel,
    ):
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        call = stub.ServerReflectionInfo(
            iter([reflection_pb2.ServerReflectionRequest(list_services="")])
        )
        answer = await call.read()
    names = {service.name for service in answer.list_services_response.service}
    assert {
        "pilotfish.v1.Inference",
        "pilotfish.v1.Control",
        "grpc.health.v1.Health",
    } <= names


async def test_stopping_lets_running_calls_finish_and_takes_no_new_ones() -> None:
    """R05: a drain finishes streams; a call landing in the stop window is told UNAVAILABLE."""
    script = Script(hold_at=4)
    async with make_gateway(script) as gateway, AsyncClient(gateway.target, retries=0) as client:
        stream = client.stream("a", seed=3, max_tokens=8)
        await anext(stream)
        stopping = asyncio.create_task(gateway.server.stop(10.0))
        await refused(gateway.target)
        script.release.set()
        assert (await stream.read()).token_ids == tuple(expected(3, 8))
        await stopping


async def test_stopping_without_time_left_is_unavailable_and_aborts() -> None:
    async with make_gateway(Script(hold_at=4)) as gateway:
        async with AsyncClient(gateway.target, retries=0) as client:
            stream = client.stream("a", seed=3, max_tokens=8)
            await anext(stream)
            await gateway.server.stop(0.0)
            with pytest.raises(UnavailableError):
                await stream.read()
        verifier = gateway.stand.verifiers[0]
        await verifier.until(lambda: not verifier.running)
        assert len(gateway.service.in_flight) == 0


async def refused(target: str) -> None:
    """Until new calls are answered with UNAVAILABLE, and with nothing else."""
    async with asyncio.timeout(5), AsyncClient(target, retries=0) as late:
        while True:
            try:
                await late.models()
            except UnavailableError:
                return


async def health_of(target: str, service: str = "") -> int:
    async with grpc.aio.insecure_channel(target) as channel:
        request = health_pb2.HealthCheckRequest(service=service)
        return int((await health_pb2_grpc.HealthStub(channel).Check(request)).status)
