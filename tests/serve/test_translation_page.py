from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from driven_browser import Browser

import deepwire

CONTROL = 2
NAMELESS = """[...document.querySelectorAll('input, select, textarea, button, output')].filter(
    (one) => !(one.labels?.length || one.ariaLabel || one.textContent.trim())).map((one) => one.id)"""


@pytest.fixture(scope="module")
def browser(
    browser_command: Sequence[str] | None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Browser]:
    if browser_command is None:
        pytest.skip("no chromium on the PATH and CHROME is not set")
    with Browser([*browser_command, f"--user-data-dir={tmp_path_factory.mktemp('browser')}"]) as found:
        yield found


def shown(browser: Browser) -> str:
    browser.wait("!document.getElementById('work').ariaBusy")
    assert browser.value("document.getElementById('problem').textContent") == ""
    return str(browser.value("document.getElementById('result').textContent"))


def test_a_page_to_translate_with(browser, server, one_direction):
    model = deepwire.load(one_direction, "cpu", "fp32", settings={"beam": 3, "n_best": 3})
    browser.open(f"http://127.0.0.1:{server.port}/")
    browser.wait("document.getElementById('model').textContent")
    assert browser.value("document.getElementById('model').textContent").endswith(
        " <img src=x onerror=alert(1)>"
    )
    assert browser.value(
        "document.body.innerText.includes('German') && document.body.innerText.includes('English')"
    )
    assert browser.value(NAMELESS) == []
    text = '<script>alert(1)</script>\n\nder hund" onload='
    browser.type(text)  # the cursor is there; nothing is clicked
    browser.wait("document.getElementById('result').textContent")
    greedy = deepwire.load(one_direction, "cpu", "fp32")
    assert shown(browser) == "\n".join(greedy.translate(text.split("\n")))
    choice = "document.getElementById('alternatives')"
    browser.value(f"{choice}.value = 3; {choice}.dispatchEvent(new Event('change'))")
    browser.wait("document.querySelectorAll('#lines button').length === 6")
    expected = list(model.translations(text.split("\n")))
    best = [[one.text, f"{one.score:.2f}"] for one in expected[0].candidates]
    read = "[...button.children].map((one) => one.textContent)"
    found = f"[...document.querySelectorAll('#lines li:first-child button')].map((button) => {read})"
    assert browser.value(found)[:3] == best
    browser.value("document.querySelectorAll('#lines button')[2].click()")
    assert shown(browser).split("\n")[0] == expected[0].candidates[2].text
    browser.value("document.getElementById('text').focus(); document.getElementById('typing').click()")
    before = server.metric("deepwire_texts_total")
    browser.type('\nder hund" onload=')  # lines that are known are not asked for again
    browser.key("Enter", 13, CONTROL)
    browser.wait("document.getElementById('result').textContent.split('\\n').length === 4")
    assert server.metric("deepwire_texts_total") == before
    browser.key("Escape", 27)
    assert shown(browser) == ""
    browser.type("der ball")
    browser.key("Enter", 13, CONTROL)
    browser.wait("document.getElementById('result').textContent")
    assert browser.value("document.getElementById('text').value") == "der ball"
    assert browser.value("document.querySelectorAll('img, script:not([src]), iframe').length") == 0
    assert browser.said == []


def test_languages_a_token_and_errors(browser, polyglot, serving):
    with serving.running(polyglot, token="a-long-enough-secret", characters=60) as server:
        browser.open(f"http://127.0.0.1:{server.port}/")
        browser.wait("document.activeElement.id === 'token'")
        browser.type("a-wrong-token")
        browser.key("Enter", 13)
        browser.wait(
            "document.getElementById('problem').textContent === 'That is not the token of this server.'"
        )
        browser.type("a-long-enough-secret")
        browser.key("Enter", 13)
        browser.wait("!document.getElementById('target').hidden && document.getElementById('access').hidden")
        options = "[...document.getElementById('target').options].map((one) => one.textContent)"
        assert browser.value(options) == ["German", "English", "French"]
        browser.value("document.getElementById('target').value = 'fr'")
        browser.value("document.getElementById('text').focus()")
        browser.type("zwei hund")
        browser.key("Enter", 13, CONTROL)
        browser.wait("document.getElementById('result').textContent")
        assert [shown(browser)] == polyglot._translator.translate(["zwei hund"], to="fr")
        assert browser.value("document.getElementById('result').lang") == "fr"
        browser.value("document.getElementById('swap').click()")
        assert browser.value("document.getElementById('source').value") == "fr"
        shown(browser)
        browser.value("document.getElementById('text').value = 'der hund\\n' + 'x'.repeat(61)")
        browser.value("document.getElementById('translate').click()")
        browser.wait("document.getElementById('problem').textContent")
        problem = browser.value("document.getElementById('problem').textContent")
        assert problem == "Line 2: 61 characters, at most 60"
        # What stood there was of another text.
        assert browser.value("document.getElementById('result').textContent") == ""
        assert browser.value("document.getElementById('copy').disabled")


def test_sentences_alternatives_and_documents_by_keyboard(browser, polyglot, serving):
    german = "Der Hund schläft auf dem Ball. Die Katze und die Frau!"
    browser.said.clear()
    with serving.running(polyglot) as server:
        browser.look(dark=True, width=360, height=800)
        browser.open("about:blank")
        browser.open(f"http://127.0.0.1:{server.port}/")
        browser.wait("!document.getElementById('target').hidden")
        source = "document.getElementById('source')"
        browser.value(f"{source}.value = 'auto'; {source}.dispatchEvent(new Event('change'))")
        choice = "document.getElementById('alternatives')"
        browser.value(f"{choice}.value = 2; {choice}.dispatchEvent(new Event('change'))")
        # Into German there is no way from German: another language is proposed.
        browser.value("document.getElementById('target').value = 'en'")
        browser.value("document.getElementById('text').focus()")
        browser.type(f"{german}\n\n{german}")
        browser.wait("document.querySelectorAll('#lines button').length === 8")
        assert browser.value("document.getElementById('detected').textContent") == "German"
        assert browser.value("document.documentElement.scrollWidth <= innerWidth")
        browser.value("document.getElementById('result').focus()")
        for _ in range(4):
            browser.key("ArrowDown", 40)
        marked = "document.querySelector('#marks .sentence.marked').textContent"
        assert browser.value(marked) == "Die Katze und die Frau!"
        assert str(browser.value("document.getElementById('spoken').textContent")).startswith(
            "Sentence 4 of 4:"
        )
        browser.key("Enter", 13)
        item = "document.activeElement.closest('[data-line]')"
        assert browser.value(f"[{item}.dataset.line, {item}.dataset.place]") == ["2", "1"]
        # What is dropped is translated, and can be saved under the name that the server gives it.
        browser.value("""
            const make = URL.createObjectURL;
            URL.createObjectURL = (blob) => {
              blob.text().then((text) => (window.saved = text));
              return make(blob);
            };
            const dropped = new DataTransfer();
            dropped.items.add(new File(["Die Katze."], "ä b.txt"));
            dropped.items.add(new File(["x"], "b.xyz"));
            dispatchEvent(new DragEvent("drop", { dataTransfer: dropped, cancelable: true }));
        """)
        browser.wait("window.saved && document.getElementById('problem').textContent")
        assert browser.value("window.saved") == polyglot._translator.translate(["Die Katze."], to="en")[0]
        assert browser.value("document.querySelector('#file-list a').download") == "ä b_en.txt"
        problem = str(browser.value("document.getElementById('problem').textContent"))
        assert problem.startswith("b.xyz: documents end in .txt")
        assert browser.said == []
