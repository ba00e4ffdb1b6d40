"""The table of what gpu.py measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

# Of each part: headers, keys, formats and factors of the columns.
COLUMNS: Mapping[str, Sequence[tuple[str, str, str, float]]] = {
    "training": (
        ("compiled", "compiled", "", 0),
        ("cuDNN attention", "cudnn_attention", "", 0),
        ("parameters, M", "parameters", ".1f", 1e-6),
        ("tokens/s", "tokens_per_second", ".0f", 1),
        ("MFLOP a token", "mflop_per_token", ".1f", 1),
        ("MFU, data sheet", "utilisation_of_data_sheet", ".1%", 1),
        ("MFU, measured product", "utilisation_of_measured", ".1%", 1),
        ("warm-up, s", "seconds_of_warmup", ".1f", 1),
        ("memory, GiB", "memory_gib", ".2f", 1),
    ),
    "recurrence": (
        ("width", "width", "", 0),
        ("forward, ms", "forward_ms", ".3f", 1),
        ("with backward, ms", "both_ms", ".3f", 1),
        ("position by position, ms", "looped_ms", ".3f", 1),
        ("forward, GB/s", "forward_bytes_per_second", ".1f", 1e-9),
        ("with backward, GB/s", "both_bytes_per_second", ".1f", 1e-9),
        ("forward, of copying", "forward_of_copying", ".0%", 1),
        ("with backward, of copying", "both_of_copying", ".0%", 1),
    ),
    "decoding": (
        ("beam", "beam", "", 0),
        ("CUDA graphs", "graphs", "", 0),
        ("cuDNN attention", "cudnn_attention", "", 0),
        ("sentences/s", "sentences_per_second", ".1f", 1),
        ("tokens/s", "tokens_per_second", ".0f", 1),
        ("same translations as without", "same_translations", ".1%", 1),
        ("memory, GiB", "memory_gib", ".2f", 1),
    ),
}


def as_table(record: Mapping[str, object], where: Mapping[str, object]) -> str:
    measured, copied = record["products_per_second"], record["copied_bytes_per_second"]
    assert isinstance(measured, float)
    assert isinstance(copied, float)
    sheet = record["data_sheet"]
    lines = [
        f"# {where.get('gpu', where['processor'])}, {where['date']}",
        "",
        f"torch {where['torch']}, bfloat16. Largest product measured: {measured / 1e12:.2f} TFLOP/s; "
        f"data sheet: {sheet / 1e12 if isinstance(sheet, float) else '-'}. "
        f"Memory copied: {copied / 1e9:.1f} GB/s.",
    ]
    if record["tiny"]:
        lines += ["", "A trial of the script on models too small to tell anything."]
    for part, columns in COLUMNS.items():
        rows = record.get(part)
        if not isinstance(rows, list):
            continue
        first = "positions" if part == "recurrence" else "model"
        lines += ["", f"## {part.capitalize()}", ""]
        lines += [f"| {first} | " + " | ".join(header for header, *_ in columns) + " |"]
        lines += ["|---" * (1 + len(columns)) + "|"]
        for row in rows:
            cells = [cell(row[key], form, factor) for _, key, form, factor in columns]
            lines += [f"| {row[first]} | " + " | ".join(cells) + " |"]
    return "\n".join(lines) + "\n"


def cell(value: object, form: str, factor: float) -> str:
    if not isinstance(value, int | float):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return format(value * factor if factor else value, form)
