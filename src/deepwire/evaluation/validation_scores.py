"""How training scores its translations of the validation set: the metrics of each target language."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from deepwire.errors import UsageError
from deepwire.evaluation.comparison import without_spaces
from deepwire.evaluation.metric import Metric
from deepwire.evaluation.texts import Text
from deepwire.evaluation.tokenizers import LanguageMetrics


class ValidationScores:
    """Scores translations of the validation set; a ``deepwire.training.run.spec.ScoreTexts``.

    Args:
        names: The metrics: ``training.validation`` of a run file names them.
        tokenize: Its tokenizer of BLEU; None: that of each language.
        languages: The languages of the translations; ``""`` is one that nobody named.

    Raises:
        UsageError: A tokenizer cannot be used here.
    """

    def __init__(self, names: Sequence[str], tokenize: str | None, languages: Sequence[str]) -> None:
        self._names, self._languages = names, languages
        metrics = LanguageMetrics(names, {} if tokenize is None else {"": tokenize})
        try:
            self._metrics: dict[str, list[Metric]] = {name: metrics.of(name) for name in languages}
        except UsageError as error:
            raise UsageError(f"training.validation.tokenize: {error.message}", error.hint) from error
        self._notes = metrics.notes

    def __call__(
        self, metric: str, translations: Sequence[str], references: Sequence[str], /, *, language: str = ""
    ) -> float:
        """Score translations into a language; with one language it need not be named."""
        own = self._metrics[language or self._languages[0]]
        return own[self._names.index(metric)].score(translations, references).value

    @property
    def signatures(self) -> tuple[str, ...]:
        """Each way of counting once, with the languages it is for where not all have the same."""
        languages_of: dict[str, list[str]] = {}
        for language, metrics in self._metrics.items():
            for metric in metrics:
                languages_of.setdefault(f"{metric.name}|{metric.signature(1)}", []).append(language)
        return tuple(
            signature if len(languages) == len(self._metrics) else f"{signature} ({', '.join(languages)})"
            for signature, languages in languages_of.items()
        )

    def notes(self, references: Mapping[str, Sequence[str]]) -> Iterator[str]:
        """What the reader of the scores should know, one line each.

        Args:
            references: Lines of the validation set by language.
        """
        yield from self._notes
        for language, lines in references.items():
            text = Text(f"the validation text{f' in {language}' if language else ''}", list(lines))
            if warning := without_spaces(text, self._metrics[language]):
                yield f"{warning} (data.target, training.validation.tokenize)"
