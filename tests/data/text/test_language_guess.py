"""Languages of texts, told by py3langid: clear ones alone, and among some."""

from __future__ import annotations

import pytest

from deepwire.data.text.language_guess import guess_language, language_code

TEXTS = {
    "en": "The old man was sitting by the river and had not caught a fish for three days, but he did not "
    "want to go home, because they would ask him what it was that he did.",
    "de": "Der alte Mann saß am Fluss und hatte seit drei Tagen keinen Fisch gefangen, aber er wollte nicht "
    "nach Hause gehen, weil sie ihn fragen würden, was er die ganze Zeit dort auf der Bank gemacht hat.",
    "fr": "Le vieil homme était assis au bord de la rivière et il ne voulait pas rentrer dans la maison, "
    "car on lui aurait demandé ce qui était arrivé, et pour le moment il ne le savait pas avec certitude.",
    "nl": "De oude man zat aan de rivier en had in drie dagen geen vis gevangen, maar hij wilde niet naar "
    "huis gaan, omdat ze hem zouden vragen wat hij daar de hele tijd op die bank met zijn hengel deed.",
    "pl": "Stary człowiek siedział nad rzeką i od trzech dni nie złowił ryby, ale nie chciał wracać do domu, "
    "bo tam będą go pytać, co robił przez ten czas na tej ławce i czy to się mu jeszcze podoba.",
    "ru": "Старик сидел у реки и за три дня не поймал ни одной рыбы, но он не хотел идти домой, так как его "
    "спросят, что он делал там всё это время на скамейке и как это ему ещё не надоело.",
    "uk": "Старий сидів біля річки і за три дні не піймав жодної риби, але він не хотів йти до хати, бо його "
    "спитають, що він там робив весь цей час на лавці та як це йому ще не набридло.",
    "el": "Ο γέρος καθόταν δίπλα στο ποτάμι, αλλά δεν ήθελε να πάει στο σπίτι.",
    "ja": "老人は川のそばに座っていたが、三日間魚が一匹も釣れなかった。"
    "しかし、家に帰りたくはなかった。何をしていたのかと聞かれるからだ。",
    "zh": "老人坐在河边，三天没有钓到一条鱼，但是他不想回家，"
    "因为他们会问他整天在那里做什么。他已经很老了，可是他还是每天都去那里，一个人坐在长椅上看着水。",
}  # fmt: skip


@pytest.mark.parametrize("language", TEXTS)
def test_a_few_sentences_are_recognised_whatever_they_should_be(language: str) -> None:
    for labels in ([], [language, "eo"], ["eo", "tr"]):
        assert guess_language([TEXTS[language]], labels) == language


def test_of_close_languages_the_expected_one_is_taken() -> None:
    text = ["Det var en gang en mann som bodde i et hus ved sjøen, og han hadde tre sønner og en datter."]
    assert [guess_language(text, [label]) for label in ("nb", "da", "no", "de")] == ["nb", "da", "no", "nb"]


@pytest.mark.parametrize("lines", [[], [""], ["the of and"], ["12 34 ---"] * 50, ["Amsterdam Madrid"] * 9])
def test_short_texts_and_lists_of_names_are_not_guessed(lines: list[str]) -> None:
    assert guess_language(lines, []) is None


def test_labels_may_have_three_letters_a_script_or_a_country() -> None:
    assert guess_language([TEXTS["de"]], ["eng_Latn", "deu_Latn"]) == "deu_Latn"
    assert [language_code(label) for label in ("zh-Hans", "cmn", "pt_BR", "no", "xx")] == [
        "zh", "zh", "pt", "nb", "xx"
    ]  # fmt: skip
