from collections.abc import Iterable, Sequence
from itertools import repeat

import pytest

from deepwire.data.text.language_guess import KNOWN, guess_language, language_code

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
    "el": "Ο γέρος καθόταν δίπλα στο ποτάμι.",
    "ja": "老人は川のそばに座っていたが、三日間魚が一匹も釣れなかった。",
    "zh": "老人坐在河边，三天没有钓到一条鱼，但是他不想回家。",
}  # fmt: skip


def guessed(lines: Iterable[str], among: Sequence[str]) -> str | None:
    guess = guess_language(lines, among)
    assert guess is None or 0 < guess.share <= 1
    return None if guess is None else guess.language


@pytest.mark.parametrize("language", TEXTS)
def test_a_few_sentences_are_recognised_among_all_languages_and_among_two(language: str) -> None:
    assert guessed([TEXTS[language]], KNOWN) == language
    other = "en" if language != "en" else "de"
    for pair in ((language, other), (other, language)):
        assert guessed([TEXTS[language]], pair) == language


@pytest.mark.parametrize(
    ("text", "among"),
    [
        ("nl", ("de", "en")),  # neither, though close to one
        ("fr", ("en", "ru")),
        ("uk", ("ru", "en")),
        ("ja", ("zh", "en")),
        ("zh", ("ja", "en")),
        ("de", ("xx", "en")),  # nobody knows what xx looks like
        ("de", ("de", "deu")),
        ("en", ()),
    ],
)
def test_nothing_is_said_where_it_cannot_be_told(text: str, among: tuple[str, ...]) -> None:
    assert guess_language([TEXTS[text]], among) is None


@pytest.mark.parametrize("lines", [[], [""], ["the of and"], ["12 34 ---"], ["Amsterdam Berlin Madrid"] * 20])
def test_short_texts_and_lists_of_names_are_not_guessed(lines: list[str]) -> None:
    assert guess_language(lines) is None


def test_labels_may_have_three_letters_a_script_or_a_country() -> None:
    assert guessed([TEXTS["de"]], ["eng_Latn", "deu_Latn"]) == "deu_Latn"
    assert [language_code(label) for label in ("zh-Hans", "cmn", "pt_BR", "no", "xx")] == [
        "zh", "zh", "pt", "nb", "xx"
    ]  # fmt: skip


def test_lines_beyond_what_is_needed_are_not_read() -> None:
    assert guessed(repeat(TEXTS["en"]), ("en", "de")) == "en"
