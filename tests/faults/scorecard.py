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
    """A fault, what deepwire does then, and the tests (`file::test`, all of its cases) that show it."""

    fault: str
    does: str
    tests: tuple[str, ...]


ONE, TWO = "faults/test_training_faults.py", "training/test_several_processes.py"
DAMAGE, TEXT, PLACES = "faults/test_damage.py", "faults/test_text_faults.py", "faults/test_surroundings.py"
SERVER, QUEUE, BODY = "serve/test_server.py", "serve/test_batcher.py", "serve/test_body.py"
ROWS: Mapping[int, Row] = {
    1: Row(
        "`kill -9` at random moments",
        "the same command ends the run with the same bits, each update once",
        (
            f"{ONE}::test_killed_at_random_moments_gives_the_same_run",
            f"{TWO}::test_killed_at_random_moments_gives_the_same_run",
        ),
    ),
    2: Row(
        "`kill -9` inside a checkpoint write",
        "goes on from the last whole checkpoint; what was left is removed",
        (
            f"{ONE}::test_killed_inside_checkpoint_writes_gives_the_same_run",
            "checkpoint/test_files.py::test_a_crash_at_any_moment_leaves_the_old_or_the_new_folder",
        ),
    ),
    3: Row(
        "`kill -9` at the end of an epoch: 2 processes, accumulation, dropout, random subwords",
        "as 1",
        ("faults/test_exact_continuation.py::test_killed_at_the_end_of_an_epoch",),
    ),
    4: Row(
        "SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGALRM, SIGXCPU; the terminal goes away",
        "finishes the update, saves, exit 128 + signal; USR1 goes on; a second Ctrl-C stops at once",
        (
            f"{ONE}::test_a_signal_saves_and_stops",
            f"{ONE}::test_what_nohup_ignores_stays_ignored",
            f"{ONE}::test_a_terminal_that_goes_away_costs_no_update",
            f"{ONE}::test_a_reader_of_the_log_that_goes_away_does_not_stop_the_run",
            f"{ONE}::test_a_wish_to_save_does_not_stop_or_change_the_run",
            f"{ONE}::test_a_second_interrupt_stops_at_once",
            f"{TWO}::test_a_signal_to_one_process_saves_and_stops_all",
            f"{TWO}::test_torchrun_starts_it_and_hands_signals_on",
        ),
    ),
    5: Row(
        "disk full",
        "exit 6 with what is needed and free; earlier checkpoints are intact; the same command goes on",
        (
            f"{ONE}::test_a_disk_that_fills_up_costs_nothing_but_the_end_of_the_run",
            f"{ONE}::test_too_little_space_is_seen_before_a_checkpoint_is_written",
            "data/test_prepared.py::test_a_disk_that_fills_while_writing",
        ),
    ),
    6: Row(
        "damaged checkpoint",
        "named, moved aside, the one before is used; asked for by name: exit 4",
        (
            f"{DAMAGE}::test_a_damaged_checkpoint_is_named_and_the_one_before_is_used",
            f"{DAMAGE}::test_where_all_are_damaged_nothing_is_lost",
            f"{DAMAGE}::test_a_damaged_model_and_pickle_are_refused",
            "checkpoint/test_store.py::test_damage_is_named",
            "checkpoint/test_retention.py::test_deleting_as_checkpoints_come_keeps_the_same_best_as_keeping_all",
            "checkpoint/test_run_directory.py::test_old_checkpoints_leave_but_never_the_best",
        ),
    ),
    7: Row(
        "pickle offered as a model",
        "exit 4, not opened (only `import` reads one, by the restricted reader)",
        (
            f"{DAMAGE}::test_a_damaged_model_and_pickle_are_refused",
            "checkpoint/test_store.py::test_pickle_is_refused_and_never_executed",
        ),
    ),
    8: Row(
        "hostile model: `../`, links, absurd sizes",
        "exit 4 before memory is taken",
        (
            "checkpoint/test_store.py::test_odd_tensor_files_are_refused_before_anything_is_allocated",
            "checkpoint/test_store.py::test_a_manifest_cannot_point_outside",
            "checkpoint/test_store.py::test_a_link_out_of_the_folder_is_refused",
        ),
    ),
    9: Row(
        "other text, vocabulary, architecture at continuation",
        "exit 2 with every change, old -> new; nothing is touched",
        (
            f"{DAMAGE}::test_other_text_settings_and_vocabulary_are_refused_with_a_list",
            "cli/test_train_command.py::test_settings_that_would_make_another_run_are_refused",
        ),
    ),
    10: Row(
        "loss or gradient not finite",
        "skipped in all processes before it touches the weights; after ten in a row exit 5 with the lines",
        (
            "training/test_bad_updates.py",
            f"{TWO}::test_an_update_that_is_not_finite_in_one_process_is_skipped_in_all",
        ),
    ),
    11: Row(
        "out of memory in one process of two",
        "all halve their micro-batches and make the update again; exit 6 if one pair does not fit",
        (
            f"{TWO}::test_out_of_memory_in_one_process_cuts_the_batches_of_all",
            f"{TWO}::test_no_memory_for_a_single_pair_is_an_error",
        ),
    ),
    12: Row(
        "one process dies, or raises an error",
        "all end; the first error is shown once, its traceback first",
        (
            f"{TWO}::test_a_process_that_is_killed_ends_all",
            f"{TWO}::test_an_error_in_one_process_ends_all_and_is_shown_first",
        ),
    ),
    13: Row(
        "1000 source and 999 target lines",
        "exit 3 with both counts, before training",
        (
            f"{TEXT}::test_sides_of_different_lengths",
            "cli/test_prepare_command.py::test_unequal_line_counts_say_both",
        ),
    ),
    14: Row(
        "bytes that are not UTF-8",
        "exit 3 with file, line, byte; or skipped or replaced and counted; decoding keeps the line",
        (
            f"{TEXT}::test_bytes_that_are_no_utf8",
            "data/test_files.py::test_bad_utf8_says_file_line_and_byte",
            "cli/test_translate_command.py::test_odd_bytes_keep_their_lines",
        ),
    ),
    15: Row(
        "NUL, BOM, CRLF, U+2028, U+0085, lone CR, RTL, ZWJ",
        "N lines in are N lines out; BOM and CR are removed and counted",
        (
            f"{TEXT}::test_every_line_in_is_a_line_out",
            "data/test_files.py::test_small_texts",
            "data/test_files.py::test_mark_and_carriage_returns_are_removed_and_counted",
        ),
    ),
    16: Row(
        "empty lines",
        "dropped and counted in training; an empty translation; score 0",
        (
            f"{TEXT}::test_what_cannot_be_learned_from_is_dropped",
            "decoding/test_translator.py::test_empty_lines_never_reach_the_model",
        ),
    ),
    17: Row(
        "a line of 10^6 characters",
        "dropped and counted in training; cut with a warning in decoding",
        (
            f"{TEXT}::test_what_cannot_be_learned_from_is_dropped",
            "cli/test_translate_command.py::test_a_very_long_line",
        ),
    ),
    18: Row(
        "special words in the text",
        "text like any other; cannot end or steer decoding",
        (
            f"{TEXT}::test_every_line_in_is_a_line_out",
            "data/test_vocabulary.py::test_text_that_looks_special_is_text",
        ),
    ),
    19: Row(
        "no final newline, empty file, folder, pipe, missing file",
        "works, or one line and exit 2 or 3",
        (
            f"{TEXT}::test_places_without_text",
            f"{TEXT}::test_what_cannot_be_learned_from_is_dropped",
            f"{TEXT}::test_a_pipe_is_read_once",
            "data/test_files.py::test_a_file_without_permission_is_an_error",
        ),
    ),
    20: Row(
        "`deepwire translate ... \\| head -1`",
        "ends silently with 141",
        (
            "cli/test_translate_command.py::test_a_reader_that_goes_away_is_no_error",
            "cli/test_main.py::test_a_closed_pipe_ends_quietly",
        ),
    ),
    21: Row(
        "slow writer on stdin, `--stream`",
        "each line is answered as it comes",
        ("cli/test_translate_command.py::test_a_stream_is_answered_line_by_line",),
    ),
    22: Row(
        "batch sizes, beams, order of lines",
        "the same bytes for each line (float32)",
        (
            "cli/test_translate_command.py::test_batches_and_order_change_nothing",
            "decoding/test_beam_search.py::test_a_translation_does_not_depend_on_its_batch",
        ),
    ),
    23: Row(
        "mistakes in the run file, YAML that would run code",
        "exit 2 with file, line, suggestion; YAML never runs code",
        ("config/test_reader.py",),
    ),
    24: Row(
        "two trainers in one run directory",
        "the second: exit 2 with process and host; the lock goes with its holder",
        (
            f"{ONE}::test_a_second_trainer_is_refused_and_the_first_goes_on",
            f"{TWO}::test_a_directory_in_use_and_a_finished_run",
            "checkpoint/test_run_directory.py::test_a_lock_dies_with_its_holder",
        ),
    ),
    25: Row(
        "read-only folder, clock, no HOME, locale C, no GPU",
        "works, or one line; output is UTF-8",
        (
            PLACES,
            "cli/test_train_command.py::test_what_is_not_there_is_said_before_the_text_is_prepared",
        ),
    ),
    26: Row(
        "server: no JSON, wrong type, deep nesting, keys twice, NaN, half a surrogate pair",
        "400, 415 or 422 with a code; the index of the text; the server goes on",
        (
            f"{BODY}::test_wrong_bodies_are_refused_with_a_reason",
            f"{BODY}::test_whatever_comes_is_read_or_refused",
            f"{SERVER}::test_wrong_requests_get_a_reason_and_harm_nobody",
        ),
    ),
    27: Row(
        "server: a body of 100 MB, with its length, without, chunked, compressed; no HTTP at all",
        "413, 415 or 400 without reading the rest; the connection is closed",
        (
            f"{SERVER}::test_a_large_body_is_refused_before_it_is_read",
            f"{SERVER}::test_other_addresses_and_forms",
            f"{SERVER}::test_what_is_no_http_is_refused",
        ),
    ),
    28: Row(
        "server: many clients at once",
        "every 200 is right and goes to the right client; without room 429 with Retry-After, or 503",
        (
            f"{SERVER}::test_many_clients_at_once_get_their_own_translations",
            f"{SERVER}::test_too_many_connections_are_refused",
            f"{QUEUE}::test_everybody_gets_the_own_answers",
            f"{QUEUE}::test_the_queue_is_bounded_and_takes_a_request_whole_or_not",
        ),
    ),
    29: Row(
        "server: half-open and slow connections",
        "closed in time; others are answered meanwhile",
        (
            f"{SERVER}::test_slow_clients_are_cut_off_and_others_are_served",
            f"{SERVER}::test_a_client_that_fetches_no_answers_is_cut_off",
        ),
    ),
    30: Row(
        "server: a client goes away",
        "its waiting texts leave the queue, and it is counted",
        (
            f"{SERVER}::test_a_client_that_goes_away_leaves_room",
            f"{QUEUE}::test_what_is_dropped_is_not_translated_and_leaves_room",
        ),
    ),
    31: Row(
        "server: HTML in texts and names, addresses with `..`, `%2e`, NUL",
        "shown as text; 404; only three files can be had",
        (
            "serve/test_translation_page.py::test_a_page_to_translate_with",
            f"{SERVER}::test_other_addresses_and_forms",
            f"{SERVER}::test_browsers_are_protected_in_every_answer",
        ),
    ),
    32: Row(
        "server: the model fails on a text",
        "its request gets 500 with the id in the log; its neighbours are answered",
        (
            f"{SERVER}::test_a_request_that_the_model_fails_on_fails_alone",
            f"{QUEUE}::test_only_the_request_that_the_model_fails_on_fails",
        ),
    ),
    33: Row(
        "server: SIGTERM under load",
        "what is in work is answered, the rest gets 503 and `Connection: close`; exit 0 in time",
        (
            f"{SERVER}::test_stopping_finishes_what_is_in_work_and_refuses_the_rest",
            f"{SERVER}::test_stopping_does_not_wait_for_ever",
            "serve/test_serve_command.py::test_the_command_serves_until_it_is_told_to_stop",
        ),
    ),
    34: Row(
        "export: something the format lacks; a model that computes something else there",
        "exit code 4 and the name of the setting; exit code 1, and the folder is left as `*.rejected`",
        (
            "cli/test_export_command.py::test_what_it_cannot_be_is_refused",
            "cli/test_export_command.py::test_what_differs_too_much_is_rejected",
            "convert/test_ctranslate2_arrays.py::test_what_ctranslate2_does_not_compute_is_refused_by_name",
        ),
    ),
    35: Row(
        "models of earlier releases",
        "load, and say what they said then",
        ("checkpoint/test_stored_models.py",),
    ),
    36: Row(
        "checkpoint that may not be read, or that the disk does not give",
        "exit 4 with the file; nothing is called damaged or moved",
        (
            f"{DAMAGE}::test_weights_that_may_not_be_read_are_not_damaged",
            "checkpoint/test_unreadable.py",
        ),
    ),
    37: Row(
        "damaged scores or index of checkpoints, best checkpoint gone",
        "the same best as before; where nobody knows it: exit 4 or a warning, never silently another",
        ("checkpoint/test_best.py",),
    ),
    38: Row(
        "links and pipes in a run directory",
        "exit 2 with the name; nothing is written elsewhere, nobody waits",
        (
            f"{DAMAGE}::test_a_link_in_a_run_directory_is_not_written_through",
            "checkpoint/test_files.py::test_links_and_pipes_are_not_written_to",
            "checkpoint/test_files.py::test_leftovers_that_are_links_lead_nowhere",
        ),
    ),
    39: Row(
        "state of training that makes no sense, or of a newer version",
        "as 6; a newer version is named, and nothing is moved",
        (
            f"{DAMAGE}::test_a_state_that_makes_no_sense_is_damage_too",
            f"{DAMAGE}::test_a_state_of_a_newer_version_is_not_moved_aside",
        ),
    ),
    40: Row(
        "`env.json`, `config.resolved.json` or `metrics.jsonl` missing or damaged",
        "exit 4 with what is left to do; lost records are said, and the run goes on",
        (
            f"{DAMAGE}::test_what_a_run_cannot_go_on_without_is_named_with_what_is_left_to_do",
            f"{DAMAGE}::test_records_that_are_lost_are_missed",
        ),
    ),
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
    lines = ["| row | fault | what happens | tests | passed | s | figure |", "|---|---|---|---|---|---|---|"]
    sound = True
    for number, row in rows.items():
        found = of_row(row, results)
        sound = sound and found.passed > 0 and not found.failed
        names = ", ".join(f"`{test.rpartition('/')[2].rpartition('::')[2]}`" for test in row.tests)
        passed = f"{found.passed} of {found.passed + found.failed}"
        passed += f", {found.skipped} skipped" if found.skipped else ""
        figures = "; ".join(dict.fromkeys(found.figures))
        cells = [str(number), row.fault, row.does, names, passed, f"{found.seconds:.1f}", figures or "-"]
        lines.append(f"| {' | '.join(cells)} |")
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
        command = [sys.executable, "-m", "pytest", "-q", "-m", "", "-o", "junit_family=xunit1"]
        places = [str(TESTS / test) for test in tests]
        subprocess.run(
            [*command, f"--junit-xml={report}", *places], cwd=TESTS.parent, stdout=sys.stderr, check=False
        )
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
