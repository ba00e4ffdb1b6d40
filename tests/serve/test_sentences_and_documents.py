"""What deepwire's own interface does with texts of many sentences, unknown languages and documents."""

from __future__ import annotations

from urllib.parse import unquote

import pytest

GERMAN = "Der Hund läuft auf dem Ball und die Katze schläft."
ENGLISH = "The house of the man is blue, and the woman sleeps."


@pytest.fixture(scope="module")
def plain(polyglot, serving):
    with serving.running(polyglot) as found:
        yield found


def in_english(polyglot, *texts):
    return polyglot._translator.translate(texts, to="en")


def test_a_text_is_answered_sentence_by_sentence(plain, polyglot):
    text = f"{GERMAN}  Rot!\r\n\n👍\nzwei"
    answer = plain.post({"text": text, "source": "de", "target": "en", "sentences": True, "n_best": 2})
    (found,) = answer.json["translations"]
    sentences = [GERMAN, "Rot!", "zwei"]
    assert [one["source"] for one in found["sentences"]] == sentences
    best = [one["text"] for one in found["sentences"]]
    assert best == in_english(polyglot, *sentences)
    assert found["gaps"] == ["", "  ", "\r\n\n👍\n", ""]
    assert found["text"] == f"{best[0]}  {best[1]}\r\n\n👍\n{best[2]}"
    for one in found["sentences"]:
        assert one["candidates"][0]["text"] == one["text"]
        assert len(one["candidates"]) == 2
    assert "candidates" not in str(plain.post({"text": "Rot!", "target": "en", "sentences": True}).json)


def test_a_warning_about_a_document_is_in_a_header(plain):
    catalogue = b'msgid ""\nmsgstr ""\n"Language: fr\\n"\n\nmsgid "Hund"\nmsgstr ""\n'
    answer = plain.request("POST", "/translate_file?name=a.po&source=de&target=EN", catalogue)
    assert answer.status == 200
    assert "Language: fr, but" in unquote(answer.headers["deepwire-warning"])


def test_a_long_text_is_split_and_not_refused(polyglot, serving, monkeypatch):
    monkeypatch.setattr(polyglot, "most_subwords", 12)
    with serving.running(polyglot) as server:
        asked = {"text": GERMAN + " " + "katze" * 40, "target": "en"}
        assert server.post(asked).status == 422
        (found,) = server.post({**asked, "sentences": True}).json["translations"]
    assert "".join(one["source"] for one in found["sentences"]).replace(" ", "") == asked["text"].replace(
        " ", ""
    )
    last = found["sentences"][-1]
    assert last == {"source": "katze" * 40, "text": "katze" * 40, "untranslated": True}


def test_the_language_is_found_out(plain, polyglot):
    answer = plain.post({"texts": [GERMAN], "source": "auto", "target": "en"}).json
    assert [one["language"] for one in answer["detected"]] == ["de"]
    assert answer["detected"][0]["confidence"] > 50
    assert answer["translations"] == [{"text": in_english(polyglot, GERMAN)[0]}]
    # What is in the target language already, and what is in none, comes back as it is.
    answer = plain.post({"text": ENGLISH, "source": "auto", "target": "en", "n_best": 1}).json
    assert answer["detected"]["language"] == "en"
    assert answer["translations"][0]["candidates"][0]["text"] == ENGLISH
    answer = plain.post({"text": "12 + 3", "source": "auto", "target": "en", "sentences": True}).json
    assert answer == {
        "translations": [{"text": "12 + 3", "sentences": [], "gaps": ["12 + 3"]}],
        "detected": None,
    }
    # Each text has a language of its own.
    texts = [ENGLISH, GERMAN, "7", ENGLISH, GERMAN]
    answer = plain.post({"texts": texts, "source": "auto", "target": "en"}).json
    assert [one and one["language"] for one in answer["detected"]] == ["en", "de", None, "en", "de"]
    german = in_english(polyglot, GERMAN)[0]
    assert [one["text"] for one in answer["translations"]] == [ENGLISH, german, "7", ENGLISH, german]
    answer = plain.post({"texts": [ENGLISH, GERMAN * 200], "source": "auto", "target": "en"})
    assert answer.json["error"]["index"] == 1
    assert answer.json["error"]["message"].startswith("text 1: ")
    refused = plain.post({"text": GERMAN, "source": "auto", "target": "xx"})
    assert (refused.status, refused.code) == (422, "invalid")
    assert "auto has no languages to choose from: nothing into 'xx'" in refused.json["error"]["message"]


def test_documents_are_translated(plain, polyglot):
    def send(query: str, content: bytes = f"{GERMAN}\n\nRot!\n".encode()):
        return plain.request("POST", f"/translate_file?{query}", content)

    answer = send("name=Brief%20%C3%A4.txt&source=auto&target=en")
    first, second = in_english(polyglot, GERMAN, "Rot!")
    assert answer.body.decode() == f"{first}\n\n{second}\n"
    assert answer.headers["content-disposition"] == "attachment; filename*=utf-8''Brief%20%C3%A4_en.txt"
    for query, said in (
        ("target=en", "name: is needed"),
        ("name=a.xyz&target=en", "files ending in .xyz cannot be translated"),
        ("name=a.docx&target=en", "damaged"),
        ("name=a.txt&target=xx", "xx"),
    ):
        refused = send(query)
        assert refused.status == 422, query
        assert said in refused.json["error"]["message"], query
    assert ".docx" in plain.get("/languages").json["files"]


def test_what_a_document_keeps_for_its_length_is_told(polyglot, serving, monkeypatch):
    monkeypatch.setattr(polyglot, "most_subwords", 12)
    with serving.running(polyglot) as server:
        address = "/translate_file?name=a.txt&source=de&target=en"
        answer = server.request("POST", address, f"Rot!\n{'Kätze' * 40}\n".encode())
        assert answer.body.decode().endswith(f"\n{'Kätze' * 40}\n")
        beginning = f"{'Kätze' * 8}…"
        assert unquote(answer.headers["deepwire-untranslated"]) == beginning
        assert "deepwire-untranslated" not in server.request("POST", address, b"Rot!\n").headers


def test_a_document_for_a_model_of_one_direction_says_its_language(served_model, serving):
    def page(attributes: str = "") -> bytes:
        unit = '<file id="f"><unit id="u"><segment><source>ein hund</source></segment></unit></file>'
        space = "urn:oasis:names:tc:xliff:document:2.0"
        return f'<xliff version="2.0" xmlns="{space}" srcLang="de"{attributes}>{unit}</xliff>'.encode()

    with serving.running(served_model) as server:
        answer = server.request("POST", "/translate_file?name=a.xlf", page())
        assert 'trgLang="en"' in answer.body.decode()
        refused = server.request("POST", "/translate_file?name=a.xlf", page(' trgLang="fr"'))
        assert refused.json["error"]["message"] == "its target language is fr, not en"
        french = page().replace(b'srcLang="de"', b'srcLang="fr"')
        refused = server.request("POST", "/translate_file?name=a.xlf", french)
        assert refused.json["error"]["message"] == "its source language is fr, not de"
