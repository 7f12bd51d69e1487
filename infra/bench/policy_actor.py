"""What the policy actor costs: exchanges a second and CPU of each, with 1 to 256 verifiers.

    python infra/bench/policy_actor.py             the actor itself, messages serialised both ways
    python infra/bench/policy_actor.py --serve     the same through a replica of Ray Serve

Each verifier reports the load of two drafters and tallies of `--cohorts` cohorts, two mechanisms, 8
positions, new ones each time; time passes as if each exchanged once a second, so sums are published
as often as in service. CPU is of the process that answers, all its threads.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import islice

from actors.policy.messages import tally_messages
from actors.policy.options import PolicyOptions
from actors.policy.service import PolicyService
from pilotfish.v1 import control_pb2 as pb
from policies.estimate import Scored
from policies.tally import Tally

MECHANISMS = ("suffix", "eagle3")
COUNTS = (1, 16, 256)


@dataclass(frozen=True, slots=True)
class Line:
    """One measurement. report, snapshot: bytes, the snapshot as a verifier that starts gets it."""

    verifiers: int
    exchanges: int
    seconds: float
    cpu_s: float
    report: int
    snapshot: int

    def __str__(self) -> str:
        rate, each = self.exchanges / self.seconds, 1e6 * self.cpu_s / self.exchanges
        share = 100.0 * self.verifiers * each / 1e6
        return (
            f"| {self.verifiers} | {self.exchanges} | {rate:,.0f} | {each:,.0f} | {share:.2f} | "
            f"{self.report:,} | {self.snapshot:,} |"
        )


HEADER = (
    "| verifiers | exchanges | exchanges/s | CPU µs an exchange | % of a core at one a second each "
    "| report, bytes | whole snapshot, bytes |\n| ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
)


def reports(verifiers: int, cohorts: int) -> Iterator[bytes]:
    """Each verifier in turn, for ever, always with something new."""
    tally = Tally()
    names = [f"cohort-{number}" for number in range(cohorts)]
    for step, name in enumerate(names * 40):
        for mechanism in MECHANISMS:
            tally.note((name, mechanism), [Scored(8, 8, step % 9)] * 4, step)
    tallies = tally_messages(tally.taken().totals)
    links = [pb.LinkStatus(drafter=f"drafter-{m}", mechanism=m, up=True) for m in MECHANISMS]
    sequence = 0
    while True:
        sequence += 1
        for number in range(verifiers):
            yield pb.VerifierStatus(
                verifier=f"verifier-{number:04}",
                running=8,
                total_blocks=4096,
                links=links,
                tallies=tallies,
                tally_sequence=sequence,
            ).SerializeToString()


def endpoint() -> pb.DrafterEndpoint:
    return pb.DrafterEndpoint(drafter="drafter", address="10.0.0.1:5000", mechanism="suffix")


def in_process(verifiers: int, cohorts: int, exchanges: int) -> Line:
    """The actor's own work: parsing, adding, publishing, serialising."""
    now = [0.0]
    policy = PolicyService(PolicyOptions(depth=8, lease_s=1e9), clock=lambda: now[0])
    policy.renew(endpoint())
    heard = dict.fromkeys(range(verifiers), (0, 0))
    sent = list(islice(reports(verifiers, cohorts), exchanges))  # their work, not the actor's
    began_s, began_cpu = time.perf_counter(), time.process_time()
    for number, data in enumerate(sent):
        which = number % verifiers
        newer = policy.exchange(pb.VerifierStatus.FromString(data), *heard[which])
        if newer is not None:
            newer.SerializeToString()
            heard[which] = newer.term, newer.version
        now[0] += 1.0 / verifiers
    cpu_s = time.process_time() - began_cpu
    seconds = time.perf_counter() - began_s
    snapshot = policy.snapshot()
    assert snapshot is not None
    return Line(verifiers, exchanges, seconds, cpu_s, len(sent[-1]), snapshot.ByteSize())


async def through_serve(handle: object, verifiers: int, cohorts: int, exchanges: int) -> Line:
    """As many calls under way as there are verifiers, 64 at most."""
    exchange, status = handle.exchange, handle.status  # type: ignore[attr-defined]
    pid = (await handle.placement.remote())["pid"]  # type: ignore[attr-defined]
    heard = dict.fromkeys(range(verifiers), (0, 0))
    sent = list(islice(reports(verifiers, cohorts), exchanges))
    left = iter(enumerate(sent))

    async def verifier() -> None:
        for number, data in left:
            which = number % verifiers
            answer = await exchange.remote(data, *heard[which])
            if answer is not None:
                newer = pb.PolicySnapshot.FromString(answer)
                heard[which] = newer.term, newer.version

    began_s, began_cpu = time.perf_counter(), cpu_of(pid)
    await asyncio.gather(*(verifier() for _ in range(min(verifiers, 64))))
    seconds, cpu_s = time.perf_counter() - began_s, cpu_of(pid) - began_cpu
    snapshot = pb.Status.FromString(await status.remote()).snapshot
    return Line(verifiers, exchanges, seconds, cpu_s, len(sent[-1]), snapshot.ByteSize())


def cpu_of(pid: int) -> float:
    """Seconds of CPU so far."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def serve(counts: Sequence[int], cohorts: int, exchanges: int) -> None:
    from cluster.serving_local import LocalRay, environment

    with environment():
        ray = LocalRay(num_cpus=4)
        try:
            from ray import serve as api

            from cluster.deployments.policy import Policy

            api.start(proxy_location="Disabled", logging_config={"log_level": "WARNING"})
            for count in counts:
                options = {"max_ongoing_requests": 1024, "ray_actor_options": {"num_cpus": 0.1}}
                bound = api.deployment(Policy).options(**options).bind(PolicyOptions(depth=8))
                handle = api.run(bound, name=f"policy-{count}", route_prefix=None)
                print(asyncio.run(through_serve(handle, count, cohorts, exchanges)), flush=True)
                api.delete(f"policy-{count}")
        finally:
            ray.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--exchanges", type=int, default=20_000)
    parser.add_argument("--cohorts", type=int, default=3)
    parser.add_argument("--serve", action="store_true")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, load {load:.1f}; Python "
        f"{platform.python_version()}, protobuf {version('protobuf')}, ray {version('ray')}"
    )
    print(HEADER)
    if options.serve:
        serve(COUNTS, options.cohorts, options.exchanges)
        return
    for count in COUNTS:
        print(in_process(count, options.cohorts, options.exchanges), flush=True)


if __name__ == "__main__":
    main()
