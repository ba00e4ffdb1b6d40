"""The scorecard of faults: every row, its tests, and what they measured, as a table in Markdown.

    python tests/faults/scorecard.py [--rows 1 2 12] [--output FILE]

Runs the tests of the rows that are asked for, and prints for each row how many passed, in how many seconds,
and the figures that they recorded. The exit code is 1 if any failed or none was found. The long soak is a
script of its own, `tests/faults/soak.py`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

HERE = Path(__file__).resolve().parent
TESTS = HERE.parent


@dataclass(frozen=True)
class Row:
    """A fault, and the tests (`file::test`, all of its cases) that show what happens."""

    fault: str
    tests: tuple[str, ...]


ONE, TWO = "faults/test_training_faults.py", "training/test_several_processes.py"
DAMAGE, TEXT, PLACES = "faults/test_damage.py", "faults/test_text_faults.py", "faults/test_surroundings.py"
ROWS: Mapping[int, Row] = {
    1: Row(
        "`kill -9` at random moments",
        (
            f"{ONE}::test_killed_at_random_moments_gives_the_same_run",
            f"{TWO}::test_killed_at_random_moments_gives_the_same_run",
        ),
    ),
    2: Row(
        "`kill -9` inside a checkpoint write",
        (
            f"{ONE}::test_killed_inside_checkpoint_writes_gives_the_same_run",
            "checkpoint/test_files.py::test_a_crash_at_any_moment_leaves_the_old_or_the_new_folder",
        ),
    ),
    3: Row(
        "`kill -9` at the end of an epoch: 2 processes, accumulation, dropout, random subwords",
        ("faults/test_exact_continuation.py::test_killed_at_the_end_of_an_epoch",),
    ),
    4: Row(
        "SIGTERM, SIGINT, SIGUSR1",
        (
            f"{ONE}::test_a_signal_saves_and_stops",
            f"{ONE}::test_a_wish_to_save_does_not_stop_or_change_the_run",
            f"{ONE}::test_a_second_interrupt_stops_at_once",
            f"{TWO}::test_a_signal_to_one_process_saves_and_stops_all",
            f"{TWO}::test_torchrun_starts_it_and_hands_signals_on",
        ),
    ),
    5: Row(
        "disk full",
        (
            f"{ONE}::test_a_disk_that_fills_up_costs_nothing_but_the_end_of_the_run",
            f"{ONE}::test_too_little_space_is_seen_before_a_checkpoint_is_written",
            "data/test_prepared.py::test_a_disk_that_fills_while_writing",
        ),
    ),
    6: Row(
        "damaged checkpoint",
        (
            f"{DAMAGE}::test_a_damaged_checkpoint_is_named_and_the_one_before_is_used",
            f"{DAMAGE}::test_where_all_are_damaged_nothing_is_lost",
            f"{DAMAGE}::test_a_damaged_model_is_refused",
            "checkpoint/test_retention.py::test_deleting_as_checkpoints_come_keeps_the_same_best_as_keeping_all",
            "checkpoint/test_run_directory.py::test_old_checkpoints_leave_but_never_the_best",
        ),
    ),
    7: Row(
        "pickle offered as a model",
        (
            f"{DAMAGE}::test_pickle_is_never_opened",
            "checkpoint/test_store.py::test_pickle_is_refused_and_never_executed",
        ),
    ),
    8: Row("hostile model: `../`, links, absurd sizes", (f"{DAMAGE}::test_hostile_models_are_refused",)),
    9: Row(
        "other text, vocabulary, architecture at continuation",
        (
            f"{DAMAGE}::test_other_text_settings_and_vocabulary_are_refused_with_a_list",
            "cli/test_train_command.py::test_settings_that_would_make_another_run_are_refused",
        ),
    ),
    10: Row(
        "loss or gradient not finite",
        (
            "training/test_bad_updates.py",
            f"{TWO}::test_an_update_that_is_not_finite_in_one_process_is_skipped_in_all",
        ),
    ),
    11: Row(
        "out of memory in one process of two",
        (
            f"{TWO}::test_out_of_memory_in_one_process_cuts_the_batches_of_all",
            f"{TWO}::test_no_memory_for_a_single_pair_is_an_error",
        ),
    ),
    12: Row(
        "one process dies, or raises an error",
        (
            f"{TWO}::test_a_process_that_is_killed_ends_all",
            f"{TWO}::test_an_error_in_one_process_ends_all_and_is_shown_first",
        ),
    ),
    13: Row(
        "1000 source and 999 target lines",
        (
            f"{TEXT}::test_sides_of_different_lengths",
            "cli/test_prepare_command.py::test_unequal_line_counts_say_both",
        ),
    ),
    14: Row(
        "bytes that are not UTF-8",
        (
            f"{TEXT}::test_bytes_that_are_no_utf8",
            "data/test_files.py::test_bad_utf8_says_file_line_and_byte",
            "cli/test_translate_command.py::test_odd_bytes_keep_their_lines",
        ),
    ),
    15: Row(
        "NUL, BOM, CRLF, U+2028, U+0085, lone CR, RTL, ZWJ",
        (
            f"{TEXT}::test_every_line_in_is_a_line_out",
            "data/test_files.py::test_small_texts",
            "data/test_files.py::test_mark_and_carriage_returns_are_removed_and_counted",
        ),
    ),
    16: Row(
        "empty lines",
        (
            f"{TEXT}::test_empty_lines_in_training_are_dropped",
            "decoding/test_translator.py::test_empty_lines_never_reach_the_model",
        ),
    ),
    17: Row(
        "a line of 10^6 characters",
        (
            f"{TEXT}::test_a_line_of_a_million_characters_in_training_is_dropped",
            "cli/test_translate_command.py::test_a_very_long_line",
        ),
    ),
    18: Row(
        "special words in the text",
        (
            f"{TEXT}::test_special_words_are_text",
            "data/test_vocabulary.py::test_text_that_looks_special_is_text",
        ),
    ),
    19: Row(
        "no final newline, empty file, folder, pipe, missing file",
        (
            f"{TEXT}::test_places_without_text",
            f"{TEXT}::test_the_last_line_needs_no_end",
            f"{TEXT}::test_a_pipe_is_read_once",
            "data/test_files.py::test_a_file_without_permission_is_an_error",
        ),
    ),
    20: Row(
        "`deepwire translate ... \\| head -1`",
        (
            "cli/test_translate_command.py::test_a_reader_that_goes_away_is_no_error",
            "cli/test_main.py::test_a_closed_pipe_ends_quietly",
        ),
    ),
    21: Row(
        "slow writer on stdin, `--stream`",
        ("cli/test_translate_command.py::test_a_stream_is_answered_line_by_line",),
    ),
    22: Row(
        "batch sizes, beams, order of lines",
        (
            "cli/test_translate_command.py::test_batches_and_order_change_nothing",
            "decoding/test_beam.py::test_a_translation_does_not_depend_on_its_batch",
        ),
    ),
    23: Row("mistakes in the run file, YAML that would run code", ("config/test_reader.py",)),
    24: Row(
        "two trainers in one run directory",
        (
            f"{ONE}::test_a_second_trainer_is_refused_and_the_first_goes_on",
            f"{TWO}::test_a_directory_in_use_and_a_finished_run",
            "checkpoint/test_run_directory.py::test_a_lock_dies_with_its_holder",
        ),
    ),
    25: Row("read-only folder, clock, no HOME, locale C, no GPU", (PLACES,)),
    35: Row("models of earlier releases", ("checkpoint/test_stored_models.py",)),
}


@dataclass
class Found:
    """What the tests of a row gave."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    figures: list[str] = field(default_factory=list)


def main() -> int:
    """Run the rows and print the table."""
    options = arguments()
    rows = {number: ROWS[number] for number in options.rows}
    results = run(sorted({test for row in rows.values() for test in row.tests}))
    lines = ["| row | fault | tests | passed | s | figure |", "|---|---|---|---|---|---|"]
    sound = True
    for number, row in rows.items():
        found = of_row(row, results)
        sound = sound and found.passed > 0 and not found.failed
        names = ", ".join(f"`{test.rpartition('/')[2]}`" for test in row.tests)
        passed = f"{found.passed} of {found.passed + found.failed}"
        passed += f", {found.skipped} skipped" if found.skipped else ""
        figures = "; ".join(dict.fromkeys(found.figures))
        lines.append(
            f"| {number} | {row.fault} | {names} | {passed} | {found.seconds:.1f} | {figures or '-'} |"
        )
    text = "\n".join(lines)
    print(text)
    if options.output is not None:
        options.output.write_text(text + "\n", encoding="utf-8")
    return 0 if sound else 1


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", choices=sorted(ROWS), default=sorted(ROWS))
    parser.add_argument("--output", type=Path, help="also write the table to this file")
    return parser.parse_args()


def run(tests: Sequence[str]) -> list[ElementTree.Element]:
    """The test cases as JUnit describes them."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-o", "junit_family=xunit1", f"--junit-xml={report}"]
        places = [str(TESTS / test) for test in tests]
        subprocess.run([*command, *places], cwd=TESTS.parent, stdout=sys.stderr, check=False)
        return list(ElementTree.parse(report).getroot().iter("testcase"))


def of_row(row: Row, cases: Sequence[ElementTree.Element]) -> Found:
    """Add up the cases of a row's tests."""
    found = Found()
    for case in cases:
        if not any(belongs(case, test) for test in row.tests):
            continue
        found.seconds += float(case.get("time", "0"))
        if case.find("failure") is not None or case.find("error") is not None:
            found.failed += 1
        elif case.find("skipped") is not None:
            found.skipped += 1
        else:
            found.passed += 1
        found.figures += [
            one.get("value", "") for one in case.iter("property") if one.get("name") == "figure"
        ]
    return found


def belongs(case: ElementTree.Element, test: str) -> bool:
    """Whether a case is one of those of `file::test`, or of a file."""
    file, _, name = test.partition("::")
    module = "tests." + file.removesuffix(".py").replace("/", ".")
    own = str(case.get("name")).partition("[")[0]
    return case.get("classname") == module and name in ("", own)


if __name__ == "__main__":
    sys.exit(main())
