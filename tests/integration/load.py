"""Requests without a pause, so that what happens to a server happens to a busy one."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event

from pilotfish import Client

PROMPT = "abcabcabcabdabcabcabe"
Text = tuple[int, ...]


def text(client: Client, seed: int, tokens: int, n_max: int | None = None) -> Text:
    """Sampled. n_max 0: by standard decode."""
    return client.generate(
        PROMPT, max_tokens=tokens, temperature=1.0, seed=seed, speculative_n_max=n_max
    ).token_ids


@contextmanager
def writing(client: Client, seeds: range, tokens: int) -> Iterator[list[Future[set[Text]]]]:
    """A client a seed, each asking for the same text over and over until the block ends."""
    done = Event()

    def again(seed: int) -> set[Text]:
        texts = {text(client, seed, tokens)}
        while not done.is_set():
            texts.add(text(client, seed, tokens))
        return texts

    with ThreadPoolExecutor(len(seeds)) as pool:
        running = [pool.submit(again, seed) for seed in seeds]
        try:
            yield running
        finally:
            done.set()
