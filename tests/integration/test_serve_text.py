"""The main path: every door gives the same text, drafted or not."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from openai import OpenAI

from tests.integration import browser
from tests.integration.conftest import Deploy, Deployed, oracle
from tests.integration.processes import eventually

pytestmark = pytest.mark.cluster

PROGRAM = browser.find()

PROMPT = "abcabcabcabdabcabcabe"


@pytest.fixture(scope="module")
def app(deploy: Deploy, tiny_model: str) -> Deployed:
    return deploy(speculative_config=oracle(tiny_model))


@pytest.fixture(scope="module")
def writer(deploy: Deploy, alphabet_model: str) -> Deployed:
    """Its remote drafter is soon right about everything."""
    return deploy(
        model=alphabet_model,
        speculative_config={"method": "suffix", "num_speculative_tokens": 4},
    )


@pytest.fixture(scope="module")
def plain(deploy: Deploy) -> Deployed:
    return deploy(speculative_config=None)


def openai(app: Deployed) -> OpenAI:
    return OpenAI(base_url=f"{app.http_url}/v1", api_key="none", max_retries=0)


def test_the_openai_client_streams_a_chat_with_usage_and_the_sdk_the_same_text(
    app: Deployed,
) -> None:
    client = openai(app)
    model = client.models.list().data[0].id
    stream = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": PROMPT}],
        max_tokens=40,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    usage = chunks[-1].usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (len(PROMPT), 40)
    with (
        app.client() as sdk,
        sdk.stream(
            messages=[{"role": "user", "content": PROMPT}], max_tokens=40, temperature=0
        ) as deltas,
    ):
        assert "".join(delta.text for delta in deltas) == text
    assert len(text) == 40


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_drafted_text_is_the_text_of_standard_decode(
    app: Deployed, plain: Deployed, temperature: float
) -> None:
    with app.client() as drafted, plain.client() as standard:
        for seed in range(3):
            options = {"max_tokens": 60, "temperature": temperature, "seed": seed}
            with_drafts = drafted.generate(PROMPT, **options)
            bounded = drafted.generate(PROMPT, speculative_n_max=0, **options)
            without = standard.generate(PROMPT, **options)
            assert with_drafts.token_ids == without.token_ids == bounded.token_ids
            assert bounded.speculation.drafted == 0


def test_blocks_over_the_wire_are_accepted_and_counted(writer: Deployed) -> None:
    with writer.client() as client:
        done = client.generate("abcdefghijklmnopabcd", max_tokens=400, temperature=0)
    alphabet = "abcdefghijklmnop"
    assert done.text == "".join(alphabet[(4 + i) % 16] for i in range(400))
    assert done.speculation.accepted == done.speculation.remote_accepted > 100
    assert done.speculation.accepted <= done.speculation.drafted


@pytest.mark.skipif(PROGRAM is None, reason=f"no browser: none of {', '.join(browser.NAMES)}")
def test_a_browser_shows_the_live_figures_and_has_nothing_to_complain_of(
    writer: Deployed, tmp_path: Path
) -> None:
    with writer.client() as client:
        client.generate("abcdefghijklmnopabcd", max_tokens=100, temperature=0)
    state = httpx.get(f"{writer.http_url}/live/state").json()
    (cohort,), (drafter,) = state["cohorts"], state["drafters"]
    assert cohort["drafted"]
    assert PROGRAM is not None
    with browser.started(PROGRAM, tmp_path) as page:
        page.open(f"{writer.http_url}/live")
        eventually(lambda: page.text("#state") == ["live"], 10.0)
        shown = "\n".join(page.text("#cohorts td"))
        words, meanings = page.text("#words td:first-child"), page.text("#words td + td")
        assert page.text("#cohorts td.name") == ["default"]
        assert f"{cohort['accepted']:,} of {cohort['drafted']:,}" in shown
        assert cohort["decisions"]
        for decision in cohort["decisions"]:
            assert decision["reason"] in shown
            assert meanings[words.index(decision["reason"])] == state["words"][decision["reason"]]
        assert page.text("#drafters td.name") == [drafter["drafter"]]
        assert page.text("#model") == [state["model"]]
        assert page.complaints == []
        assert {urlsplit(url).netloc for url in page.asked} == {urlsplit(writer.http_url).netloc}
        assert page.value("getComputedStyle(document.querySelector('#state')).fontWeight") == "600"


def test_without_a_drafter_the_reason_is_said(plain: Deployed, deploy: Deploy) -> None:
    nobody = deploy(drafter={"num_replicas": 0, "num_cpus": 0.1})
    with nobody.client() as client:
        done = client.generate(PROMPT, max_tokens=8, temperature=0)
        assert done.speculation.reasons == ("no-drafter",)
        assert client.status().fallback.reason == "no-drafter"


def test_a_colocated_drafter_gives_the_same_text(
    deploy: Deploy, plain: Deployed, tiny_model: str
) -> None:
    app = deploy(speculative_config=oracle(tiny_model) | {"placement": "colocated"})
    with app.client() as colocated, plain.client() as standard:
        drafted = colocated.generate(PROMPT, max_tokens=60, temperature=0)
        assert (
            drafted.token_ids == standard.generate(PROMPT, max_tokens=60, temperature=0).token_ids
        )
        assert drafted.speculation.accepted > 0
        assert drafted.speculation.remote_accepted == 0


def test_status_shows_pids_frames_and_links(app: Deployed) -> None:
    with app.client() as client:
        client.generate(PROMPT, max_tokens=20, temperature=0)
        status = client.status()
    (drafter,) = status.drafters
    (verifier,) = status.verifiers
    (link,) = verifier.links
    assert drafter.mechanism == "oracle"
    assert (link.up, link.pid) == (True, drafter.pid)
    assert link.frames_sent > 0
    assert link.frames_received > 0
    assert verifier.pid != drafter.pid


def test_bad_input_is_a_typed_error_and_disturbs_nobody(app: Deployed) -> None:
    def post(body: bytes) -> tuple[int, dict[str, dict[str, str]]]:
        request = urllib.request.Request(
            f"{app.http_url}/v1/completions", body, {"content-type": "application/json"}
        )
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request)
        return refused.value.code, json.loads(refused.value.read())

    assert post(b"{")[0] == 400
    code, answer = post(json.dumps({"prompt": PROMPT, "temperature": -1}).encode())
    assert (code, answer["error"]["param"]) == (400, "temperature")
    code, answer = post(json.dumps({"prompt": PROMPT, "nonsense": 1}).encode())
    assert code == 400
    assert "nonsense" in answer["error"]["message"]
    with app.client() as client:
        assert client.generate(PROMPT, max_tokens=2, temperature=0).text
