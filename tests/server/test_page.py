"""The chat page in a real browser: it streams and stops, shows the odds of tokens, and runs nothing that it is told."""

import http.client
import json
import math
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Route, expect

from cutaway import LLM
from support.browser import browser as real_browser
from support.gate import Gate, gated
from support.http_server import RunningServer, running, until
from support.patience import SECONDS

QUESTION = "Name three rivers of Europe."
PAGE = {"temperature": 0.7, "top_p": 0.9}
FIXED = {"seed": "5", "max_tokens": "12"}
HOSTILE = "<img src=x onerror=\"document.title='hacked'\"></script><script>document.title='hacked'</script>&lt;b&gt;"

expect.set_options(timeout=SECONDS * 1000)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for all."""
    with real_browser() as started:
        yield started


@contextmanager
def opened(browser: Browser, url: str, **options: Any) -> Iterator[Page]:
    """A page in a window of its own. At the end no script has failed, and none was refused by the policy."""
    context = browser.new_context(**options)
    context.set_default_timeout(SECONDS * 1000)
    complaints: list[str] = []

    def hear(message: ConsoleMessage) -> None:
        # That a request was refused is told there, too, and is meant.
        if message.type in ("error", "warning") and not message.text.startswith("Failed to load resource"):
            complaints.append(message.text)

    context.on("console", hear)
    context.on("weberror", lambda error: complaints.append(str(error.error)))
    context.on("dialog", lambda dialog: complaints.append(dialog.message))
    page = context.new_page()
    try:
        page.goto(url)
        yield page
        assert page.title() in ("Cutaway", "Cutaway: map of blocks")
        assert complaints == []
    finally:
        context.close()


@pytest.fixture
def page(browser: Browser, server: RunningServer) -> Iterator[Page]:
    """The chat page of the server that anybody may use."""
    with opened(browser, server.url) as found:
        expect(found.locator("#model")).to_have_value("smollm2")
        yield found


def ask(page: Page, question: str = QUESTION, **fields: str) -> None:
    """Fill the fields, and send."""
    for name, value in fields.items():
        page.fill(f"#{name}", value)
    page.fill("#question", question)
    page.keyboard.press("Enter")


def answered(page: Page) -> None:
    """Until the last answer has ended, in whichever way."""
    expect(page.locator("article.assistant").last.locator(".said")).not_to_have_attribute("aria-busy", "true")


def shown(page: Page) -> str:
    """The text of the last answer, without the mark of its end."""
    parts = page.locator("article.assistant").last.locator(".token:not(.unwritten)").all_text_contents()
    return "".join(parts)


def over_http(server: RunningServer, question: str = QUESTION, **fields: Any) -> Any:
    """What the API answers to the same, with what stands in the page's fields where nothing is advised."""
    body = {"messages": [{"role": "user", "content": question}], "seed": 5, "max_tokens": 12, **PAGE, **fields}
    reply = server.post("/v1/chat/completions", body)
    assert reply.status == 200
    return reply.json


def test_an_answer_as_it_comes(page: Page, server: RunningServer, llm: LLM) -> None:
    """Token by token, and at the end the very text that the API gives; then a turn that knows the first."""
    want = over_http(server)["choices"][0]["message"]["content"]
    with gated(llm) as gate:
        ask(page, **FIXED)
        seen = []
        for count in (1, 2, 3, 4):
            gate.allow(1)
            expect(page.locator(".token")).to_have_count(count)
            seen.append(shown(page))
        assert page.locator("#stop").is_visible()
        gate.open()
        answered(page)
    assert 0 < len(seen[0]) < len(seen[1]) < len(seen[2]) < len(seen[3]) < len(want)
    assert all(want.startswith(text) for text in seen)
    assert shown(page) == want
    assert page.locator("#send").is_visible()
    figures = page.locator(".figures").inner_text()
    for part in (r"12 tokens", r"\d+\.\d tokens/s", r"first after \d+\.\d\d s", r"cut: no more tokens", r"seed 5$"):
        assert re.search(part, figures), figures
    with page.expect_request("**/v1/chat/completions") as request:
        ask(page, "And one more?")
    assert [each["content"] for each in request.value.post_data_json["messages"]] == [QUESTION, want, "And one more?"]
    answered(page)
    page.click("#new")
    assert page.locator("article").count() == 0


@pytest.mark.parametrize("how", ["button", "Escape", "new chat"])
def test_stopping(page: Page, server: RunningServer, llm: LLM, how: str) -> None:
    """It ends the request in the engine, and keeps what has come."""
    stop: dict[str, Callable[[], None]] = {
        "button": lambda: page.click("#stop"),
        "Escape": lambda: page.keyboard.press("Escape"),
        "new chat": lambda: page.click("#new"),
    }
    with gated(llm) as gate:
        ask(page, max_tokens="500", seed="5")
        gate.step_until(lambda: page.locator(".token").count() >= 2, "two tokens")
        assert len(server.service.works) == 1
        stop[how]()
        gate.step_until(lambda: not server.service.works, "the server has noticed")
        gate.step_until(lambda: not llm._core.generations(), "and the engine")
        steps = gate.steps
    slots = server.get("/slots").json
    assert (slots["sequences"], slots["blocks"]["held"]) == ([], 0)
    assert steps < 490, "it went on to its end"
    if how == "new chat":
        expect(page.locator("article")).to_have_count(0)
    else:
        answered(page)
        assert "stopped" in page.locator(".figures").inner_text()
        assert page.locator(".error").count() == 0
    text = shown(page) if how != "new chat" else ""
    with page.expect_request("**/v1/chat/completions") as request:
        ask(page, "Next", max_tokens="1")
    contents = [each["content"] for each in request.value.post_data_json["messages"]]
    assert contents == ([QUESTION, text, "Next"] if text else ["Next"])
    answered(page)


def odds(page: Page) -> list[tuple[str, str, str, bool]]:
    """The rows that are shown: token, per cent, logprob, whether it was chosen."""
    rows = page.locator("#odds tr").all()
    cells = [row.locator("td").all_text_contents() for row in rows]
    return [(name, percent, logprob, mark == "chosen") for name, _, percent, logprob, mark in cells]


def rows_of(entry: Any) -> list[tuple[str, str, str, bool]]:
    """The same, of an entry of the API."""

    def row(each: Any, chosen: bool) -> tuple[str, str, str, bool]:
        name = json.dumps(each["token"], ensure_ascii=False)
        return name, f"{100 * math.exp(each['logprob']):.2f} %", f"{each['logprob']:.4f}", chosen

    found = [row(each, each["token"] == entry["token"]) for each in entry["top_logprobs"]]
    return found if any(each[3] for each in found) else [*found, row(entry, True)]


def test_the_odds_of_tokens(page: Page, server: RunningServer) -> None:
    """Those of the API, under the pointer and by keys."""
    reply = over_http(server, temperature=1, top_p=1, logprobs=True, top_logprobs=5)
    entries = reply["choices"][0]["logprobs"]["content"]
    ask(page, **FIXED, temperature="1", top_p="1")
    answered(page)
    tokens = page.locator(".token")
    assert tokens.count() == len(entries) == 12
    assert any(rows_of(entry)[-1][3] and len(rows_of(entry)) == 6 for entry in entries), "one is beside the likeliest"
    assert page.locator("#odds").is_hidden()
    for number, entry in enumerate(entries):
        tokens.nth(number).hover()
        assert odds(page) == rows_of(entry)
    page.mouse.move(1, 1)
    expect(page.locator("#odds")).to_be_hidden()
    page.focus("#open-settings")
    page.locator("#question").press("Shift+Tab")
    assert odds(page) == rows_of(entries[0]), "one step before the field is the answer"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert odds(page) == rows_of(entries[2])
    page.keyboard.press("ArrowLeft")
    assert odds(page) == rows_of(entries[1])
    page.keyboard.press("Escape")
    assert page.locator("#odds").is_hidden()
    page.uncheck("#probabilities")
    with page.expect_request("**/v1/chat/completions") as request:
        ask(page)
    assert "logprobs" not in request.value.post_data_json
    answered(page)
    assert tokens.count() == 12, "those of the first answer"
    assert page.locator(".text").last.inner_text()


def test_parameters_reach_the_server(page: Page) -> None:
    """As numbers; a seed to its last digit, which JavaScript's numbers don't have."""
    fields = {"system": "Be brief.", "temperature": "0.25", "top_p": ".9", "top_k": "40", "max_tokens": "3"}
    with page.expect_response("**/v1/chat/completions") as response:
        ask(page, **fields, seed="-9007199254740993")
    answered(page)
    body = response.value.request.post_data
    assert body is not None
    sent = json.loads(body)
    assert sent["messages"][0] == {"role": "system", "content": "Be brief."}
    want = {"temperature": 0.25, "top_p": 0.9, "top_k": 40, "max_tokens": 3, "seed": -9007199254740993}
    assert {name: sent[name] for name in want} == want
    last = json.loads(response.value.text().split("\n\n")[-3].removeprefix("data: "))["cutaway"]
    assert {name: last["parameters"][name] for name in want} == want
    assert last["ignored"] == []
    assert "seed -9007199254740993" in page.locator(".figures").inner_text()
    page.reload()
    with page.expect_request("**/v1/chat/completions") as request:
        ask(page, max_tokens="1", temperature="", top_p="")
    assert not {"temperature", "top_p", "top_k", "seed"} & set(request.value.post_data_json)
    answered(page)


def test_what_stands_in_the_fields(
    page: Page, server: RunningServer, llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Advice is shown, and left to the server; what suits a small model stands there where there is none; what was
    typed stays. An answer's length is bounded where the context has room for more.
    """

    def fields(shown: str) -> list[str]:
        script = f"names => names.map(name => document.getElementById(name).{shown})"
        return page.evaluate(script, ["temperature", "top_p", "top_k", "max_tokens"])

    assert fields("value") == ["0.7", "0.9", "", ""]
    assert fields("placeholder")[:3] == ["1", "1", "all"]
    monkeypatch.setattr(llm, "default_params", {"temperature": 0.2, "top_k": 20})
    monkeypatch.setattr(server.service.model.__class__, "context", 8192)
    page.reload()
    expect(page.locator("#model")).to_have_value("smollm2")
    assert fields("value") == ["", "", "", "1024"]
    assert fields("placeholder")[:3] == ["0.2", "1", "20"]


@pytest.mark.parametrize(
    ("name", "value", "sent"),
    [
        ("temperature", "hot", "hot"),
        ("temperature", "3", 3),
        ("top_p", "0", 0),
        ("seed", "1" + "0" * 20, 10**20),
        ("seed", "007x", "007x"),
        ("max_tokens", "2.5", 2.5),
        ("top_k", "1e400", "1e400"),
        ("max_tokens", "5000", 5000),
    ],
)
def test_errors_are_the_servers(page: Page, server: RunningServer, name: str, value: str, sent: Any) -> None:
    """In its very words; and the question is there again."""
    body = {"messages": [{"role": "user", "content": QUESTION}], name: sent}
    want = server.post("/v1/chat/completions", body).error["message"]
    ask(page, **{name: value})
    answered(page)
    expect(page.locator("[role=alert]")).to_have_text(want)
    assert page.input_value("#question") == QUESTION
    ask(page, **{name: "1", "max_tokens": "1"})
    answered(page)
    assert page.locator(".error").count() == 1


def test_an_error_within_an_answer(page: Page, llm: LLM) -> None:
    with gated(llm) as gate:
        ask(page, **FIXED)
        gate.step_until(lambda: page.locator(".token").count() >= 2, "two tokens")
        gate.raises = MemoryError("of the test")
        gate.allow(1)
        answered(page)
    expect(page.locator("[role=alert]")).to_contain_text("the server has failed at this request (MemoryError)")
    assert page.locator(".token").count() >= 2


def test_no_connection(page: Page) -> None:
    page.route("**/v1/chat/completions", lambda route: route.abort())
    ask(page)
    expect(page.locator("[role=alert]")).to_have_text("The server can't be reached. Is it running?")


def test_a_stream_that_is_cut(page: Page) -> None:
    fulfil(page, [{"content": "Half"}], end="")
    ask(page)
    expect(page.locator("[role=alert]")).to_have_text("The connection has ended before the answer.")
    assert page.locator(".text").inner_text().startswith("Half")


def fulfil(page: Page, deltas: list[dict[str, str]], end: str = "data: [DONE]\n\n", **beside: Any) -> None:
    """Let a chat be answered by these deltas and not by the server."""
    chunks = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None, **beside}]} for delta in deltas]
    body = "".join(f": at work\n\ndata: {json.dumps(chunk)}\n\n" for chunk in chunks) + end

    def answer(route: Route) -> None:
        route.fulfill(status=200, content_type="text/event-stream", body=body)

    page.route("**/v1/chat/completions", answer)


def test_hostile_texts_stay_texts(browser: Browser, llm: LLM) -> None:
    """Of the user, the model, its name, its tokens, an error."""
    with running(llm, served_names=(HOSTILE,)) as server, opened(browser, server.url) as page:
        expect(page.locator("#model")).to_have_value(HOSTILE)
        ask(page, HOSTILE, system=HOSTILE, **FIXED)
        answered(page)
        expect(page.locator("article.user .said")).to_have_text(HOSTILE)
        expect(page.locator("article.assistant h2")).to_have_text(HOSTILE)
        ask(page, HOSTILE, temperature=HOSTILE)
        answered(page)
        assert "onerror" in page.locator("[role=alert]").inner_text()
        token = {"token": HOSTILE, "logprob": -1.0, "bytes": [1]}
        fulfil(page, [{"content": HOSTILE}], logprobs={"content": [{**token, "top_logprobs": [token]}]})
        ask(page, "x")
        answered(page)
        expect(page.locator(".text").last).to_have_text(HOSTILE)
        page.locator(".token").last.hover()
        assert odds(page)[0][0] == json.dumps(HOSTILE)
        page.unroute("**/v1/chat/completions")
        fulfil(page, [{"content": HOSTILE}])
        ask(page, "x")
        answered(page)
        expect(page.locator(".text").last).to_have_text(HOSTILE)
        assert page.locator("body img, body script").count() == 1, "the sign in the head"
        assert page.title() == "Cutaway"


def test_the_policy_is_in_force(browser: Browser, server: RunningServer) -> None:
    """So that what the other tests don't hear could be heard."""
    for deed in (
        "fetch('https://example.org/').catch(() => 0)",
        "document.body.append(Object.assign(document.createElement('img'), {src: 'https://example.org/'}))",
        "document.body.setAttribute('style', 'color: red')",
        "(() => { try { document.body.innerHTML = 'x' } catch {} })()",
        "(() => { try { document.createElement('script').text = '1' } catch {} })()",
    ):
        page = browser.new_page()
        heard: list[str] = []
        page.on("console", lambda message: heard.append(message.text))  # noqa: B023 - ends with this page
        page.goto(server.url)
        page.evaluate(deed)
        until(lambda: page.title() == "Cutaway" and bool(heard), f"{deed} is refused")  # noqa: B023
        assert any("Content Security Policy" in text or "Trusted" in text for text in heard), heard
        page.close()


def test_two_tabs(page: Page, server: RunningServer, llm: LLM) -> None:
    """Each has its own conversation, and both are answered at once."""
    other = page.context.new_page()
    other.goto(server.url)
    questions = {page: QUESTION, other: "Count to five."}
    want = {tab: over_http(server, text)["choices"][0]["message"]["content"] for tab, text in questions.items()}
    with gated(llm) as gate:
        for tab, text in questions.items():
            ask(tab, text, **FIXED)
        gate.step_until(lambda: all(tab.locator(".token").count() >= 2 for tab in questions), "both have begun")
        assert len(server.service.works) == 2
        gate.open()
        for tab in questions:
            answered(tab)
    assert {tab: shown(tab) for tab in questions} == want


@pytest.fixture(scope="module")
def keyed(llm: LLM) -> Iterator[RunningServer]:
    """A server with two keys."""
    with running(llm, api_keys=("first-key", "second-key"), served_names=("smollm2",)) as started:
        yield started


def with_key(page: Page, key: str) -> None:
    """Type it, and leave the field."""
    page.fill("#key", key)
    page.locator("#key").press("Tab")


def test_a_key(browser: Browser, keyed: RunningServer) -> None:
    """The page comes without it and asks for it; it stays in the tab, and is in no address."""
    with opened(browser, keyed.url) as page:
        expect(page.locator("#status")).to_contain_text("there is no API key")
        expect(page.locator("#key")).to_be_focused()
        with_key(page, "wrong")
        expect(page.locator("#status")).to_contain_text("this API key is not one of the server's")
        with_key(page, "schlüssel")
        expect(page.locator("#status")).to_contain_text("characters that no key can have")
        with_key(page, "first-key")
        expect(page.locator("#model")).to_have_value("smollm2")
        expect(page.locator("#status")).to_have_text("")
        ask(page, **FIXED)
        answered(page)
        assert page.locator(".error").count() == 0
        assert page.evaluate("JSON.stringify({...localStorage}) + document.cookie") == "{}"
        assert "first-key" not in page.url
        page.reload()
        expect(page.locator("#model")).to_have_value("smollm2")
        page.fill("#key", "")
        page.locator("#key").press("Tab")
        expect(page.locator("#status")).to_contain_text("there is no API key")
        assert page.evaluate("sessionStorage.length") == 0
        elsewhere = page.context.new_page()
        elsewhere.goto(keyed.url)
        expect(elsewhere.locator("#status")).to_contain_text("there is no API key")


def test_while_the_model_is_loaded(browser: Browser, llm: LLM) -> None:
    may_load = threading.Event()

    def load() -> LLM:
        assert may_load.wait(SECONDS)
        return llm

    server = RunningServer(load, grace=0)
    try:
        with opened(browser, server.url) as page:
            expect(page.locator("#status")).to_contain_text("the model is being loaded")
            may_load.set()
            expect(page.locator("#model")).to_have_value(llm.model.name)
            expect(page.locator("#status")).to_have_text("")
    finally:
        may_load.set()
        server.tell_to_end()
        server.join()


def map_of(page: Page) -> Page:
    """The map, by the link of the chat page."""
    with page.context.expect_page() as info:
        page.click("text=Map of blocks")
    return info.value


def step_while_asked(gate: Gate, llm: LLM, condition: Callable[[], bool], what: str) -> None:
    """Let a step through whenever somebody asks the engine, which answers between two, until it is so."""

    def stepped() -> bool:
        if condition():
            return True
        if llm.engine()._commands.qsize():
            gate.allow(1)
        return False

    until(stepped, what)


def test_the_map(browser: Browser, keyed: RunningServer, llm: LLM) -> None:
    """It shows what /slots says to the same key: own sequences with blocks, of others counts, and no text."""
    secret = "A text that is long enough for several blocks of sixteen tokens, and is on no map: rivers."
    body = json.dumps({"prompt": secret, "max_tokens": 400, "ignore_eos": True, "stream": True})
    other = http.client.HTTPConnection("127.0.0.1", keyed.port, timeout=SECONDS)
    with gated(llm) as gate, opened(browser, keyed.url) as page:
        with_key(page, "first-key")
        expect(page.locator("#model")).to_have_value("smollm2")
        ask(page, secret, max_tokens="400", seed="5")
        until(lambda: len(keyed.service.works) == 1, "it is there")
        headers = {"Authorization": "Bearer second-key", "Content-Type": "application/json"}
        other.request("POST", "/v1/completions", body, headers)
        step_while_asked(gate, llm, lambda: len(keyed.service.works) == 2, "so is another's")
        gate.allow(3)
        plan = map_of(page)  # with the key of the tab that it was opened from
        row = plan.locator("#sequences tr:has(.square)")
        both = lambda: row.count() == 1 and "1 running" in plan.locator("#others").inner_text()  # noqa: E731
        step_while_asked(gate, llm, both, "both are there")
        plan.click("#pause")
        expect(plan.locator("#pause")).to_have_attribute("aria-pressed", "true")
        replies: list[Any] = []
        asking = threading.Thread(
            target=lambda: replies.append(keyed.get("/slots", Authorization="Bearer first-key")), daemon=True
        )
        asking.start()
        step_while_asked(gate, llm, lambda: len(replies) == 1, "it is told over HTTP, too")
        slots = replies[0].json
        (sequence,) = slots["sequences"]
        cells = row.locator("td").all_inner_texts()
        assert cells[:4] == ["1", sequence["id"][:17], "running", str(sequence["prompt_tokens"])]
        assert re.fullmatch(r"\d+ of 400", cells[4])
        assert cells[8].startswith("admitted")
        squares = plan.locator("#grid .square")
        assert squares.count() == slots["blocks"]["total"]
        drawn = {number for number, text in enumerate(squares.all_inner_texts()) if text == "1"}
        assert drawn
        assert drawn <= set(sequence["blocks"]), "there may be more by now"
        ends = [[int(end) for end in part.split("–")] for part in cells[7].split(", ")]
        assert {block for each in ends for block in range(each[0], each[-1] + 1)} == drawn
        assert re.search(r"they hold \d+ blocks", plan.locator("#others").inner_text())
        assert squares.nth(max(drawn)).get_attribute("title") == f"block {max(drawn)}: sequence 1"
        assert "of another key, cached or free" in str(squares.last.get_attribute("title"))
        assert "rivers" not in plan.content()
        if page.locator("#stop").is_visible():  # it may have ended, where looking took many steps
            page.click("#stop")
        gate.open()
        other.close()
        plan.click("#pause")
        expect(plan.locator("#sequences")).to_contain_text("None of yours")
        expect(plan.locator("#others")).to_have_text("")


def test_shared_and_cached_blocks_on_the_map(browser: Browser, server: RunningServer, llm: LLM) -> None:
    """Two answers to one prompt share its blocks; who is alone sees which blocks are cached."""
    llm.reset_prefix_cache()
    prompt = "One two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen " * 2
    body = {"prompt": prompt, "max_tokens": 300, "ignore_eos": True, "n": 2, "stream": True}
    with gated(llm) as gate, opened(browser, f"{server.url}/map") as page:
        with server.connection("/v1/completions", body):
            gate.allow(2)
            both = lambda: page.locator("#sequences .square").count() == 2  # noqa: E731
            step_while_asked(gate, llm, both, "both are there")
            assert page.locator("#grid .shared").count() >= 2
            assert page.locator("#grid .shared").first.inner_text() == "×2"
            assert page.locator("#sequences td.name").all_inner_texts()[1].endswith("[1]")
        gate.open()
        until(lambda: not server.service.works, "it has left")
        cached = server.get("/slots").json["blocks"]["cached_blocks"]
        assert len(cached) >= 2
        expect(page.locator("#grid .cached")).to_have_count(len(cached))
        expect(page.locator("#legend")).to_contain_text(f"{len(cached)} cached")


def test_hostile_words_on_the_map(browser: Browser, server: RunningServer) -> None:
    slots = server.get("/slots").json
    slots["policy"] = HOSTILE
    slots["sequences"] = [
        {
            "id": HOSTILE,
            "choices": [0],
            "state": HOSTILE,
            "reason": HOSTILE,
            "seconds": 1,
            "prompt_tokens": 1,
            "generated_tokens": 1,
            "computed_tokens": 1,
            "max_new_tokens": 1,
            "blocks": [0],
        }
    ]
    with opened(browser, f"{server.url}/map") as page:
        page.route("**/slots", lambda route: route.fulfill(json=slots))
        expect(page.locator("#sequences")).to_contain_text(HOSTILE)
        assert page.locator("body img, body script").count() == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", ["/", "/map"])
def test_narrow_screens_and_both_schemes(browser: Browser, server: RunningServer, path: str, scheme: Any) -> None:
    """Nothing is cut at the side, and the text stands out from what is behind it."""
    size: Any = {"width": 320, "height": 600}
    with opened(browser, server.url + path, viewport=size, color_scheme=scheme) as page:
        if path == "/":
            expect(page.locator("#model")).to_have_value("smollm2")
            assert page.locator("#settings").is_hidden()
            page.click("#open-settings")
            assert page.locator("#key").is_visible()
            ask(page, "w" * 200, max_tokens="1")
            answered(page)
            assert page.evaluate("document.documentElement.scrollWidth") <= 320
            page.click("#open-settings")
        assert page.evaluate("document.documentElement.scrollWidth") <= 320
        colours = page.evaluate(
            "(({color, backgroundColor}) => [color, backgroundColor])(getComputedStyle(document.body))"
        )
        light = [sum(map(int, re.findall(r"\d+", colour)[:3])) / 3 for colour in colours]
        assert abs(light[0] - light[1]) > 150
        assert (light[1] > 128) == (scheme == "light")
