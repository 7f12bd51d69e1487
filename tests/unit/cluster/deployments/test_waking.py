import asyncio

from cluster.deployments.waking import Waker


class Pools:
    """Calls that wait, by pool, until `up` is set."""

    def __init__(self) -> None:
        self.waiting: list[str] = []
        self.given_up: list[str] = []
        self.up = asyncio.Event()

    async def call(self, pool: str) -> None:
        self.waiting.append(pool)
        try:
            await self.up.wait()
        except asyncio.CancelledError:
            self.given_up.append(pool)
            raise


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_pool_that_goes_on_being_wanted_is_called_once() -> None:
    pools = Pools()
    waker = Waker(pools.call)
    for _ in range(3):
        waker.want(["Drafter"])
        await turns()
    assert pools.waiting == ["Drafter"]


async def test_a_pool_that_is_no_longer_wanted_is_not_waited_for() -> None:
    pools = Pools()
    waker = Waker(pools.call)
    waker.want(["a", "b"])
    await turns()
    waker.want(["b"])
    await turns()
    assert pools.given_up == ["a"]
    waker.want(["a", "b"])
    await turns()
    assert sorted(pools.waiting) == ["a", "a", "b"]


async def test_a_pool_that_came_and_went_is_called_again() -> None:
    pools = Pools()
    waker = Waker(pools.call)
    pools.up.set()
    waker.want(["a"])
    await turns()
    waker.want(["a"])
    await turns()
    assert pools.waiting == ["a", "a"]


async def test_a_call_that_fails_is_not_repeated_at_once() -> None:
    calls: list[str] = []

    async def fails(pool: str) -> None:
        calls.append(pool)
        raise RuntimeError("no such deployment")

    waker = Waker(fails)
    for _ in range(3):
        waker.want(["a"])
        await turns()
    assert calls == ["a"]
    waker.want([])
