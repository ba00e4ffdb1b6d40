"""The requests that clients of LibreTranslate send, against a running server."""

from __future__ import annotations

import json
from urllib.parse import urlencode

import pytest

from deepwire.serve.access import Token
from deepwire.serve.libretranslate import (
    labels_by_code,
    language_name,
    libretranslate_site,
    plain_code,
    written_code,
)

KEY = "0123456789abcdef"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
DE = "ein hund läuft"


@pytest.fixture(scope="module")
def plain(polyglot, serving):
    with serving.running(polyglot, site=libretranslate_site, texts=5) as found:
        yield found


@pytest.fixture(scope="module")
def into(polyglot):
    return lambda text, *languages: _through(polyglot, text, languages)


def _through(polyglot, text, languages):
    for language in languages:
        text = polyglot._translator.translate([text], to=language)[0]
    return text


def post(server, path, fields, **headers):
    return server.request(
        "POST", path, json.dumps(fields).encode(), {"Content-Type": "application/json", **headers}
    )


def translate(server, **fields):
    return post(server, "/translate", {"source": "de", "target": "en", **fields})


def error(answer):
    assert set(answer.json) == {"error"}
    return answer.status, answer.json["error"]


def test_a_text_is_translated_sentence_by_sentence_and_keeps_its_line_breaks(plain, into):
    text = f"{DE}. Rot! \n\n👍\nzwei"
    answer = translate(plain, q=text)
    assert answer.status == 200
    assert answer.json == {
        "translatedText": f"{into(f'{DE}.', 'en')} {into('Rot!', 'en')} \n\n👍\n{into('zwei', 'en')}"
    }


def test_a_list_is_answered_by_a_list(plain, into):
    answer = translate(plain, q=[DE, "", "zwei"])
    assert answer.json == {"translatedText": [into(DE, "en"), "", into("zwei", "en")]}
    assert translate(plain, q=[]).json == {"translatedText": []}
    assert translate(plain, q="\ud800").json == {"translatedText": "?"}


def test_forms_and_addresses_hold_fields_too(plain, into):
    fields = {"q": f"{DE}\r\nzwei", "source": "de", "target": "en"}
    expected = {"translatedText": f"{into(DE, 'en')}\n{into('zwei', 'en')}"}
    assert plain.request("POST", "/translate", urlencode(fields).encode(), FORM).json == expected
    assert plain.request("POST", f"/translate?{urlencode(fields)}", b"", FORM).json == expected
    body = "".join(
        f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in fields.items()
    )
    for charset, status in (
        *(("", 200), ("; charset=UTF-8", 200), ('; charset="utf8"', 200), ("; charset=utf-7", 400)),
        *(("; charset=utf-8; charset=punycode", 400), ("; charset=utf-16", 400)),
    ):
        multipart = {"Content-Type": f"multipart/form-data; boundary=x{charset}"}
        answer = plain.request("POST", "/translate", f"{body}--x--\r\n".encode(), multipart)
        assert answer.status == status
        assert answer.json == expected or "not a form in UTF-8" in answer.json["error"]


def test_without_a_direct_model_a_text_goes_through_english(plain, into):
    assert translate(plain, q=DE, target="fr").json["translatedText"] == into(DE, "en", "fr")
    assert translate(plain, q=DE, target="de").json == {"translatedText": DE}


def test_alternatives_are_the_other_candidates_without_doublets(plain, polyglot):
    answer = translate(plain, q=DE, alternatives=3).json
    wide = polyglot._translator.with_search(beam=4, n_best=4)
    (expected,) = wide.translations([DE], to="en")
    texts = [one.text for one in expected.candidates]
    assert answer["translatedText"] == texts[0]
    others = [text for text in dict.fromkeys(texts[1:]) if text.strip() and text != texts[0]]
    assert answer["alternatives"] == others
    assert translate(plain, q=[DE], alternatives="3").json["alternatives"] == [others]
    assert "alternatives" not in translate(plain, q=DE, alternatives=0).json


def test_the_language_of_each_text_is_detected(plain, into):
    text = "Der Hund läuft auf der Wiese"
    answer = translate(plain, q=text, source="auto").json
    assert answer["detectedLanguage"]["language"] == "de"
    assert 50 < answer["detectedLanguage"]["confidence"] <= 100
    assert answer["translatedText"] == into(text, "en")
    english = "The dog is in the house, and the man is here"
    listed = translate(plain, q=[english, text, "7", english], source="auto", alternatives=1).json
    assert [one["language"] for one in listed["detectedLanguage"]] == ["en", "de", "en", "en"]
    assert listed["translatedText"] == [english, into(text, "en"), "7", english]
    assert [len(one) for one in listed["alternatives"]] == [0, 1, 0, 0]
    emoji = translate(plain, q="👍 🎉", source="auto").json
    assert emoji == {"translatedText": "👍 🎉", "detectedLanguage": {"confidence": 0.0, "language": "en"}}


def test_html_keeps_its_tags(plain):
    page = '<p class="a">ein <b>hund</b> läuft</p><script>ein("hund")</script>'
    answer = translate(plain, q=page, format="html", alternatives=2).json
    found = answer["translatedText"]
    assert found.startswith('<p class="a">')
    assert found.endswith('</p><script>ein("hund")</script>')
    assert found.count("<b>") == found.count("</b>") == 1
    assert found != page
    assert answer["alternatives"] == []


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"q": None}, "Invalid request: q"),
        ({"source": None}, "Invalid request: source: Field required"),
        ({"target": ""}, "Invalid request: target: Field required"),
        ({"alternatives": "many"}, "Invalid request: alternatives: "),
        ({"alternatives": 8}, "Invalid request: alternatives parameter must be <= 7"),
        ({"q": ["a"] * 6}, "Invalid request: request (6) exceeds text limit (5)"),
        ({"q": "a" * 5001}, "Invalid request: request (5001) exceeds text limit (5000)"),
        ({"target": "zz"}, "zz is not supported"),
        ({"format": "xml"}, "Invalid request: format: "),
        ({"q": ["a", 5]}, "Invalid request: "),
    ],
)
def test_wrong_requests_are_refused(plain, fields, said):
    status, text = error(translate(plain, **{"q": DE, **fields}))
    assert (status, text[: len(said)]) == (400, said)


def test_a_direction_without_models_is_named(served_model, serving):
    with serving.running(served_model, site=libretranslate_site) as server:
        said = "German (de) is not available as a target language from English (en)"
        assert error(translate(server, q="A dog", source="en", target="de")) == (400, said)
        assert server.get("/languages").json == [
            {"code": "en", "name": "English", "targets": ["en"]},
            {"code": "de", "name": "German", "targets": ["de", "en"]},
        ]


@pytest.mark.parametrize("body", [b"[1]", b"{", b'"q"', b"[" * 100_000, b"\xff"])
def test_a_body_that_is_no_json_object(plain, body):
    headers = {"Content-Type": "application/json"}
    assert error(plain.request("POST", "/translate", body, headers)) == (400, "Invalid JSON format")
    assert plain.get("/health").json == {"status": "ok"}


def test_what_a_client_asks_first(plain):
    assert plain.get("/health").json == {"status": "ok"}
    languages = {one["code"]: one for one in plain.get("/languages").json}
    assert languages["de"] == {"code": "de", "name": "German", "targets": ["de", "en", "fr"]}
    settings = plain.get("/frontend/settings").json
    assert settings["charLimit"] == 5000
    assert settings["language"]["source"] == {"code": "auto", "name": "Auto Detect"}
    assert (settings["apiKeys"], settings["keyRequired"], settings["suggestions"]) == (False, False, False)
    assert ".docx" in settings["supportedFilesFormat"]
    assert post(plain, "/suggest", {"q": "a"}).status == 403
    assert error(post(plain, "/suggest", {}))[1] == "Suggestions are disabled on this server."
    spec = plain.get("/spec").json
    assert spec["swagger"] == "2.0"
    for path, operations in spec["paths"].items():
        for method in operations:
            assert plain.request(method.upper(), path).status != 404
    assert "POST /translate_file" in plain.get("/docs").body.decode()


def test_detect(plain):
    (best, *others) = post(plain, "/detect", {"q": "Der Hund läuft auf der Wiese"}).json
    assert best["language"] == "de"
    assert len(others) <= 2
    assert all(best["confidence"] >= one["confidence"] for one in others)
    assert post(plain, "/detect", {"q": ["Das Haus", "ist rot"]}).json[0]["language"] == "de"
    assert post(plain, "/detect", {"q": "123"}).json == [{"confidence": 0.0, "language": "en"}]
    assert error(post(plain, "/detect", {})) == (400, "Invalid request: q: Field required")


def test_own_interface_and_page_are_beside_it(plain, into):
    answer = post(plain, "/deepwire/translate", {"text": DE, "target": "en"})
    assert answer.texts == [into(DE, "en")]
    assert post(plain, "/deepwire/translate", {"q": DE}).json["error"]["code"] == "invalid"
    assert plain.get("/deepwire/languages").json["languages"]["several"] is True
    assert b'<html data-api="deepwire/" lang="en">' in plain.get("/").body


def test_a_token_of_the_server_is_the_key(served_model, serving):
    """What keeps strangers out of deepwire's own interface keeps them out of this one."""
    bearer = {"Authorization": f"Bearer {KEY}"}

    def site(service):
        return libretranslate_site(service, Token("another key of somebody", KEY))

    with serving.running(served_model, KEY, site=site) as server:
        for path in ("/translate", "/detect", "/translate_file"):
            said = "Please contact the server operator to get an API key"
            assert error(post(server, path, {"q": DE})) == (400, said)
            assert error(post(server, path, {"q": DE, "api_key": "wrong"})) == (403, "Invalid API key")
        assert translate(server, q=DE, api_key=KEY).status == 200
        fields = {"q": DE, "source": "de", "target": "en"}
        assert post(server, "/translate", fields, **bearer).status == 200
        assert post(server, "/detect", {"q": DE}, **bearer).status == 200
        assert error(post(server, "/translate_file", {}, **bearer))[1].endswith("missing file parameter")
        assert server.get("/frontend/settings").json["keyRequired"] is True
        assert translate(server, q=DE, api_key="another key of somebody").status == 200
        assert server.request("POST", f"/detect?q=Hund&api_key={KEY}").status == 200
        assert server.get("/languages").status == 200
        assert post(server, "/deepwire/translate", {"text": DE, "target": "en"}).status == 401


def test_pages_of_other_servers_may_use_it_only_where_that_is_wanted(polyglot, plain, serving):
    asking = {"Origin": "https://a.example", "Access-Control-Request-Method": "POST"}
    assert plain.request("OPTIONS", "/translate", None, asking).status == 405
    assert "access-control-allow-origin" not in plain.get("/languages", Origin="https://a.example").headers

    def site(service):
        return libretranslate_site(service, Token(KEY)).for_pages_of(["https://a.example"])

    with serving.running(polyglot, KEY, site=site) as server:
        first = server.request("OPTIONS", "/deepwire/translate", None, asking)
        assert first.status == 200
        assert first.headers["access-control-allow-origin"] == "https://a.example"
        assert first.headers["access-control-max-age"] == "1728000"
        assert "access-control-allow-origin" in server.get("/languages", Origin="https://a.example").headers
        other = server.get("/languages", Origin="https://b.example").headers
        assert "access-control-allow-origin" not in other

        form = f"q=ein&source=de&target=en&api_key={KEY}".replace(" ", "+").encode()
        for origin, status in (("https://a.example", 200), ("https://b.example", 403)):
            said = {"Origin": origin, "Sec-Fetch-Site": "cross-site"}
            assert server.request("POST", "/translate", form, said).status == status


def test_a_word_that_no_model_reads_stays_and_is_named(polyglot, serving, monkeypatch):
    monkeypatch.setattr(polyglot, "most_subwords", 20)
    with serving.running(polyglot, site=libretranslate_site) as server:
        answer = translate(server, q=f"ein hund. {'n' * 900} rot").json
        assert "n" * 900 in answer["translatedText"]
        assert answer["untranslated"] == ["n" * 40 + "…"]
        long = translate(server, q="ein hund " * 40).json
        assert "untranslated" not in long


def test_the_client_of_libretranslate(plain, into):
    from libretranslatepy import LibreTranslateAPI

    client = LibreTranslateAPI(f"http://127.0.0.1:{plain.port}")
    assert client.translate(DE, "de", "en") == into(DE, "en")
    assert client.detect("Der Hund läuft auf der Wiese")[0]["language"] == "de"
    assert {one["code"] for one in client.languages()} == {"de", "en", "fr"}


def test_a_fault_of_ours_is_an_error_of_the_interface(polyglot, serving, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("a secret text")

    monkeypatch.setattr("deepwire.serve.libretranslate.likely_languages", broken)
    with serving.running(polyglot, site=libretranslate_site) as server:
        assert error(post(server, "/detect", {"q": "a"})) == (500, "the server failed on this request")
        assert server.get("/health").status == 200


def test_codes_are_written_as_clients_know_them():
    codes = labels_by_code(["de", "zh_CN", "zh_TW", "pt_BR", "pt"])
    for code, label in {"DE": "de", "zh": "zh_CN", "zh-Hans": "zh_CN", "zt": "zh_TW", "zh-hant": "zh_TW",
                        "pb": "pt_BR", "pt-br": "pt_BR", "pt": "pt", "fr": None}.items():  # fmt: skip
        assert codes.get(plain_code(code)) == label
    others = labels_by_code(["pt_BR", "zh_TW", "sr-Latn"])
    assert [others.get(plain_code(code)) for code in ("pt", "sr", "zh", "en-GB")] == [
        "pt_BR",
        "sr-Latn",
        None,
        None,
    ]
    assert [written_code(label) for label in ("zh_CN", "zh_TW", "pt_BR", "deu")] == [
        "zh-Hans",
        "zh-Hant",
        "pt-BR",
        "de",
    ]
    assert language_name("pt_BR") == "Portuguese (Brazil)"
    assert language_name("qqq") == "qqq"
