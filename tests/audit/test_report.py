"""The report of an answer: one file, small, that draws itself in a real browser and runs nothing that tokens say."""

import dataclasses
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, expect

from cutaway import LLM, SamplingParams
from cutaway.audit.explain.explanation import Explanation, explain
from cutaway.audit.explain.report import report_html, rounded, write_report
from cutaway.audit.limits import MachineLimits
from cutaway.audit.request_ledger import meter_of
from cutaway.errors import CutawayError, InvalidRequestError
from support.browser import browser as real_browser
from support.long import LONG
from support.patience import SECONDS

MOST_BYTES = 5 << 20
KEYS = ("ArrowRight", "ArrowRight", "ArrowLeft", "End", "ArrowRight", "Home")
HOSTILE = "</script><script>document.title='hacked'</script><img src=x onerror=\"document.title='hacked'\">&lt;"

expect.set_options(timeout=SECONDS * 1000)


@pytest.fixture(scope="module")
def llm(smollm2_path: Path) -> Iterator[LLM]:
    with LLM(smollm2_path, threads=2, max_model_len=1024) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def found(llm: LLM) -> Explanation:
    prompt = llm.tokenizer.encode_chat([{"role": "user", "content": "Tell me of the sea."}])
    return explain(llm, prompt, SamplingParams(temperature=0.8, top_p=0.9, seed=5, max_tokens=8))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with real_browser() as started:
        yield started


@contextmanager
def opened(browser: Browser, path: Path, scheme: str = "light", anchor: str = "") -> Iterator[Page]:
    """The file as a page. At the end no script has failed, nothing was refused, and nothing was asked for."""
    context = browser.new_context(color_scheme=scheme)  # type: ignore[arg-type]
    context.set_default_timeout(SECONDS * 1000)
    complaints: list[str] = []
    asked: list[str] = []

    def hear(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            complaints.append(message.text)

    context.on("console", hear)
    context.on("weberror", lambda error: complaints.append(str(error.error)))
    context.on("request", lambda request: asked.append(request.url))
    page = context.new_page()
    try:
        page.goto(path.as_uri() + anchor)
        yield page
        assert page.title() == "Cutaway: an answer, opened"
        assert complaints == []
        assert asked == [path.as_uri()]
    finally:
        context.close()


@pytest.fixture
def report(tmp_path: Path, found: Explanation) -> Path:
    path = tmp_path / "report.html"
    assert write_report(path, found) == path.stat().st_size
    assert [each.name for each in tmp_path.iterdir()] == ["report.html"]
    return path


def test_it_shows_each_token_that_is_chosen(browser: Browser, report: Path, found: Explanation) -> None:
    with opened(browser, report) as page:
        tokens = page.locator("#strip button")
        expect(tokens).to_have_count(8)
        assert tokens.all_inner_texts() == [each.piece for each in found.tokens]
        expect(page.locator("#prompt .tok")).to_have_count(len(found.prompt))
        for number in (0, 5):
            tokens.nth(number).click()
            token = found.tokens[number]
            expect(tokens.nth(number)).to_have_attribute("aria-selected", "true")
            expect(page.locator("#strip [aria-selected=true]")).to_have_count(1)
            expect(page.locator("#h-token")).to_contain_text(f"position {token.position}")
            # Funnel: a shape for the model and for each step.
            expect(page.locator("#funnel path")).to_have_count(1 + len(token.choice.steps))
            top_p = next(step for step in token.choice.steps if step.name == "top_p")
            expect(page.locator("#funnel")).to_contain_text(f"{top_p.kept:,} left")
            won = page.locator("#candidates tr.won .piece")
            assert won.inner_text() == token.piece
            # Lens: every layer, the last on top, with the rank that the data has.
            rows = page.locator("#lens tbody tr")
            expect(rows).to_have_count(31)
            cells = rows.first.locator("td").all_inner_texts()
            assert cells[:2] == ["29", f"{token.lens[-1].rank:,}"]
            # Attention: the strongest position first.
            place, p = token.looked.average[0]
            bar = page.locator("#looks .bar").first
            expect(bar.locator(".piece")).to_have_attribute("title", f"position {place}")
            expect(bar).to_contain_text(f"{100 * p:.1f} %" if p >= 0.1 else f"{100 * p:.2f} %")
        expect(page.locator("#map g")).to_have_count(8)
        expect(page.locator("#decisions tbody tr")).to_have_count(len(found.decisions))


def test_steps_pages_and_reasons_over_time(browser: Browser, report: Path, found: Explanation) -> None:
    """Each step has a bar for its time, and one for the pages that were held, with the numbers that the data has."""
    with opened(browser, report) as page:
        said = page.locator("#timeline rect title").all_text_contents()
        for each in found.steps:
            time, *pages = [text for text in said if text.startswith(f"step {each.number}:")]
            assert f"{1e3 * each.seconds:.2f} ms" in time
            assert any(f"{each.blocks_held} held, {each.blocks_cached} cached" in text for text in pages)
        reasons = page.locator("#decisions tbody tr").all_inner_texts()
        for row, decision in zip(reasons, found.decisions, strict=True):
            assert decision.reason in row
        marks = page.locator("#timeline path title").all_text_contents()
        assert len(marks) >= 1
        assert all(any(f"{d.action}: {d.reason}" in mark for d in found.decisions) for mark in marks)


def test_a_layer_s_and_a_head_s_look(browser: Browser, report: Path, found: Explanation) -> None:
    with opened(browser, report) as page:
        page.locator("#layer").select_option("7")
        page.locator("#head").select_option("4")
        looked = found.tokens[0].looked
        shown = page.locator("#looks .bar")
        expect(shown).to_have_count(int((looked.positions[7, 4] >= 0).sum()))
        expect(shown.first.locator(".piece")).to_have_attribute("title", f"position {looked.positions[7, 4, 0]}")
        share = round(255 * float(looked.probabilities[7, 4, 0])) / 255
        expect(shown.first).to_contain_text(f"{100 * share:.1f} %")
        cell = page.locator("#heads rect").nth(12 * 9 + 3)
        cell.click()
        assert (page.locator("#layer").input_value(), page.locator("#head").input_value()) == ("12", "3")


def test_with_the_keyboard_alone(browser: Browser, report: Path, found: Explanation) -> None:
    with opened(browser, report) as page:
        page.locator("#strip button[aria-selected=true]").focus()
        for key, number in zip(KEYS, (1, 2, 1, 7, 7, 0), strict=True):
            page.keyboard.press(key)
            expect(page.locator("#h-token")).to_contain_text(f"position {found.tokens[number].position}")
            expect(page.locator("#strip button").nth(number)).to_be_focused()
        assert page.locator("#strip button[tabindex='0']").count() == 1  # one stop for the tab key


def test_a_link_to_a_token(browser: Browser, report: Path, found: Explanation) -> None:
    position = found.tokens[3].position
    with opened(browser, report, anchor=f"#{position}") as page:
        expect(page.locator("#h-token")).to_contain_text(f"position {position}")


def test_light_and_dark(browser: Browser, report: Path) -> None:
    def back(page: Page) -> str:
        found: str = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return found

    with opened(browser, report, "light") as page:
        light = back(page)
        page.locator("#theme").click()
        dark = back(page)
    assert light != dark
    with opened(browser, report, "dark") as page:
        assert back(page) == dark
        page.locator("#theme").click()
        assert back(page) == light


def test_what_tokens_say_is_no_markup(browser: Browser, tmp_path: Path, found: Explanation) -> None:
    pieces = dict.fromkeys(found.pieces, HOSTILE)
    path = tmp_path / "hostile.html"
    write_report(path, dataclasses.replace(found, pieces=pieces, model=HOSTILE))
    with opened(browser, path) as page:
        assert page.locator("#strip button").first.inner_text() == HOSTILE
        assert page.locator("img").count() == 0
        expect(page.locator("#facts b")).to_have_text(HOSTILE)


def test_the_ledger_is_shown_where_it_was_measured(
    browser: Browser, tmp_path: Path, found: Explanation, llm: LLM, limits: MachineLimits
) -> None:
    plain = tmp_path / "plain.html"
    write_report(plain, found)
    with opened(browser, plain) as page:
        expect(page.locator("#ledger-section")).to_be_hidden()
    params = SamplingParams(temperature=0, max_tokens=3)
    measured = explain(llm, [1, 300, 301, 302], params, meter=meter_of(llm, limits))
    assert measured.ledger is not None
    assert (measured.ledger.steps, measured.ledger.tokens) == (3, 4 + 2)
    path = tmp_path / "ledger.html"
    write_report(path, dataclasses.replace(measured, steps=(), decisions=()))
    with opened(browser, path) as page:
        expect(page.locator("#ledgers p")).to_contain_text(f"3 steps, 6 rows: {1e3 * measured.ledger.seconds:.1f} ms")
        expect(page.locator("#ledgers tbody tr")).to_have_count(len(measured.ledger.rows))
        expect(page.locator("#time-section")).to_be_hidden()


def repeated(found: Explanation, count: int) -> Explanation:
    """As if the answer had so many tokens, of which each is one of those that there are."""
    first = found.tokens[0].position
    tokens = tuple(
        dataclasses.replace(found.tokens[place % len(found.tokens)], position=first + place) for place in range(count)
    )
    return dataclasses.replace(found, tokens=tokens, steps=found.steps[-1:] * count)


def test_200_tokens_stay_below_5_mb(tmp_path: Path, found: Explanation) -> None:
    assert write_report(tmp_path / "long.html", repeated(found, 200)) < MOST_BYTES


@pytest.mark.skipif(not LONG, reason="200 tokens take half a minute: CUTAWAY_LONG_TESTS=1")
def test_200_tokens_of_a_long_prompt(browser: Browser, tmp_path: Path, llm: LLM) -> None:
    prompt = [1, *(300 + i % 4000 for i in range(700))]
    found = explain(llm, prompt, SamplingParams(temperature=1, seed=5, max_tokens=200, ignore_eos=True))
    assert write_report(tmp_path / "long.html", found) < MOST_BYTES
    with opened(browser, tmp_path / "long.html") as page:
        expect(page.locator("#strip button")).to_have_count(200)
        page.locator("#strip button").nth(199).click()
        expect(page.locator("#h-token")).to_contain_text("position 900")


def test_it_is_whole_or_not_there(tmp_path: Path, found: Explanation) -> None:
    with pytest.raises(CutawayError, match="can't be written"):
        write_report(tmp_path / "nowhere" / "report.html", found)
    (tmp_path / "taken").mkdir()
    with pytest.raises(CutawayError, match="can't be written"):
        write_report(tmp_path / "taken", found)
    assert [each.name for each in tmp_path.iterdir()] == ["taken"]


def test_an_answer_without_tokens_has_no_report(found: Explanation) -> None:
    with pytest.raises(InvalidRequestError, match="no tokens"):
        report_html(dataclasses.replace(found, tokens=()))


def test_the_data_is_json_and_nothing_is_named_outside(found: Explanation) -> None:
    text = report_html(found)
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert json.loads(data)["sequence"] == [each.id for each in found.sequence]
    named = set(re.findall(r"https?://[^\"' ]*", text))
    assert named == {"http://www.w3.org/2000/svg"}


def test_numbers_are_short() -> None:
    assert rounded(0.123456) == 0.1235
    assert rounded(float("-inf")) == 0.0
    assert rounded(1.23456e-9) == 1.235e-9
