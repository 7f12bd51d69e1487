from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.sampling.params import SamplingParams
from cluster.gateway.errors import RequestFailed
from cluster.gateway.generation import Assembler, generate
from cluster.gateway.types import Chunk, Delta, GenerateSpec, Stats
from tests.unit.cluster.gateway.builders import (
    EOS,
    ScriptedBackend,
    make_bpe_tokenizer,
    make_chunks,
    make_codec,
    make_scores,
    make_spec,
    split_at,
    successors,
)

CODEC = make_codec()
BPE = make_bpe_tokenizer()


def run(spec: GenerateSpec, chunks: list[Chunk], codec=CODEC) -> list[Delta]:
    assembler = Assembler(codec, spec)
    deltas = []
    for chunk in chunks:
        deltas.append(assembler.push(chunk))
        if deltas[-1].finish is not None:
            break
    return deltas


def text_of(deltas: list[Delta]) -> str:
    return "".join(delta.text for delta in deltas)


def ids_of(deltas: list[Delta]) -> list[int]:
    return [token for delta in deltas for token in delta.token_ids]


def stats_of(deltas: list[Delta]) -> Stats:
    stats = deltas[-1].stats
    assert stats is not None
    return stats


@pytest.mark.parametrize("depth", range(9))
@pytest.mark.parametrize("position", range(12))
def test_a_stop_string_trims_everything_alike_whatever_the_depth(depth: int, position: int) -> None:
    outputs = successors(16)
    stop = chr(97 + outputs[position])
    chunks = make_chunks(outputs, depth, logprobs=True)
    deltas = run(make_spec(stop=(stop,)), chunks)
    kept = outputs[: position + 1]
    last = deltas[-1]
    assert text_of(deltas) == "".join(chr(97 + t) for t in kept[:-1])
    assert ids_of(deltas) == kept
    assert [s.chosen.token for d in deltas for s in d.logprobs] == kept
    assert (last.finish, last.stop_reason) == ("stop", stop)
    assert (last.prompt_tokens, last.completion_tokens) == (1, len(kept))
    stats = stats_of(deltas)
    rounds = math.ceil(position / (depth + 1)) if depth else 0
    assert stats.rounds == rounds
    assert stats.drafted == rounds * depth
    # Every kept token after the first is an accepted draft, or a round's last one.
    assert stats.accepted <= position <= stats.accepted + (stats.rounds if depth else position)
    assert stats.accepted == sum(d.accepted for d in deltas) == stats.remote_accepted


@given(
    st.text("abcdefgh 🎉é你", max_size=24),
    st.lists(st.text("abcdefgh 🎉é你", min_size=1, max_size=3), max_size=3, unique=True),
    st.sets(st.integers(1, 60)),
    st.booleans(),
    st.integers(0, 5),
)
def test_the_result_does_not_depend_on_how_tokens_come_in_blocks(
    text: str, stops: list[str], cuts: set[int], include: bool, min_tokens: int
) -> None:
    codec = make_codec(BPE)
    ids = [*BPE.encode(text).ids, 70]
    spec = make_spec(
        (5,),
        stop=tuple(stops),
        include_stop_str_in_output=include,
        sampling=SamplingParams(max_tokens=99, min_tokens=min_tokens),
    )

    def result(blocks: list[list[int]]) -> tuple[object, ...]:
        chunks = [
            Chunk(tuple(b), finish="length" if i == len(blocks) - 1 else None)
            for i, b in enumerate(blocks)
        ]
        deltas = run(spec, chunks, codec)
        return (
            text_of(deltas),
            ids_of(deltas),
            deltas[-1].finish,
            deltas[-1].stop_reason,
            deltas[-1].completion_tokens,
        )

    assert result(split_at(ids, sorted(cuts))) == result([[token] for token in ids])


def test_token_texts_add_up_to_the_text_without_a_stop() -> None:
    deltas = run(make_spec(), make_chunks(successors(9), 4))
    assert "".join(t for d in deltas for t in d.token_texts) == text_of(deltas) == "bcdefghij"
    assert all(len(d.token_texts) == len(d.token_ids) for d in deltas)


def test_token_texts_of_the_last_delta_lack_what_the_stop_string_cut() -> None:
    deltas = run(make_spec(stop=("de",)), make_chunks(successors(9), 8))
    assert [d.token_texts for d in deltas] == [("b",), ("c", "", "")]


@pytest.mark.parametrize(
    ("stop", "depth", "expected"),
    [
        (("d",), 8, ("bc", [1, 2, 3], "stop", "d")),  # before the cap and the EOS of the block
        ((), 8, ("bcdef", [1, 2, 3, 4, 5, EOS], "stop", None)),
        (("zz",), 8, ("bcdef", [1, 2, 3, 4, 5, EOS], "stop", None)),
    ],
)
def test_a_stop_string_comes_before_the_end_of_its_block(
    stop: tuple[str, ...], depth: int, expected: tuple[object, ...]
) -> None:
    chunks = make_chunks([*successors(5), EOS], depth, finish="stop")
    deltas = run(make_spec(stop=stop), chunks)
    last = deltas[-1]
    assert (text_of(deltas), ids_of(deltas), last.finish, last.stop_reason) == expected


def test_held_text_is_given_back_when_the_output_ends() -> None:
    deltas = run(make_spec(stop=("fgX",)), make_chunks(successors(6), 2))
    assert [d.text for d in deltas] == ["b", "cde", "fg"]
    assert deltas[-1].finish == "length"


def test_a_stop_token_is_counted_and_its_text_is_not_shown() -> None:
    chunks = make_chunks(successors(4), 3, finish="stop", stop_token=4)
    hidden = run(make_spec(), chunks)
    assert (text_of(hidden), ids_of(hidden)) == ("bcd", [1, 2, 3, 4])
    assert (hidden[-1].stop_reason, hidden[-1].completion_tokens) == (4, 4)
    assert text_of(run(make_spec(include_stop_str_in_output=True), chunks)) == "bcde"


def test_a_stop_string_counts_from_the_token_after_min_tokens() -> None:
    chunks = make_chunks([1, 2, 1, 2, 1, 2], 8)
    for free, kept in ((0, 2), (1, 2), (2, 4), (3, 4), (5, 6)):
        deltas = run(make_spec(stop=("c",), min_tokens=free), chunks)
        assert ids_of(deltas) == [1, 2, 1, 2, 1, 2][:kept]
        assert text_of(deltas) == "bcbcbc"[: kept - 1]


def test_a_stop_string_may_be_shown() -> None:
    deltas = run(
        make_spec(stop=("de",), include_stop_str_in_output=True), make_chunks([1, 2, 3, 4, 5])
    )
    assert (text_of(deltas), ids_of(deltas)) == ("bcde", [1, 2, 3, 4])


def test_a_trimmed_round_counts_no_more_accepted_than_was_kept() -> None:
    chunk = Chunk((1, 2, 3, 4, 5, 6), drafted=5, accepted=5, remote=True, finish="length")
    (delta,) = run(make_spec(stop=("d",)), [chunk])
    stats = stats_of([delta])
    assert (delta.token_ids, delta.accepted, stats.accepted, stats.drafted) == ((1, 2, 3), 3, 3, 5)
    assert len(delta.token_ids) <= delta.accepted + 1


def test_rounds_without_a_draft_are_counted_by_reason_and_prefill_is_no_round() -> None:
    stats = stats_of(run(make_spec(), make_chunks(successors(5), 0)))
    assert (stats.rounds, stats.reasons) == (0, {"client": 4})
    assert (stats.queue_s, stats.prefill_s) == (0.25, 0.5)


def test_an_output_cut_inside_a_character_shows_the_rest_as_a_whole_decode() -> None:
    codec = make_codec(BPE)
    ids = BPE.encode("ok 🦈").ids[:-1]
    deltas = run(make_spec((5,)), make_chunks(ids, 3), codec)
    assert text_of(deltas) == BPE.decode(ids)
    assert text_of(deltas).endswith("\ufffd")


def test_an_end_without_a_token_flushes_what_is_held() -> None:
    spec = make_spec(stop=("bX",))
    deltas = run(spec, [Chunk((1,)), Chunk((), finish="length")])
    assert [(d.text, d.token_ids) for d in deltas] == [("", (1,)), ("b", ())]


def test_logprobs_stay_beside_their_tokens() -> None:
    chunk = Chunk((1, 2, 3), tuple(map(make_scores, (1, 2, 3))), finish="length")
    (delta,) = run(make_spec(stop=("c",)), [chunk])
    assert [s.chosen.token for s in delta.logprobs] == list(delta.token_ids) == [1, 2]


async def test_a_stop_string_aborts_the_backend_and_a_natural_end_does_not() -> None:
    backend = ScriptedBackend()
    async for _ in generate(backend, CODEC, make_spec(stop=("d",), request_id="stopped")):
        pass
    async for _ in generate(backend, CODEC, make_spec(request_id="ended")):
        pass
    assert backend.aborted == ["stopped"]
    assert not backend.running


async def test_closing_the_deltas_aborts_the_backend() -> None:
    backend = ScriptedBackend()
    deltas = generate(backend, CODEC, make_spec())
    await anext(deltas)
    assert backend.running == {"request"}
    await deltas.aclose()
    assert (backend.running, backend.aborted) == (set(), ["request"])


async def test_a_stream_that_ends_without_a_finish_is_an_error() -> None:
    backend = ScriptedBackend(lambda spec: [Chunk((1,))])
    with pytest.raises(RequestFailed):
        async for _ in generate(backend, CODEC, make_spec()):
            pass
