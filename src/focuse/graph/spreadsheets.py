"""Names that a spreadsheet would run: cells that begin as formulas do, in text that we write.

Files of data are faithful: what was read is written, and reads back the same. For those that are to be opened in a
spreadsheet, FOCUSE_SPREADSHEET=1 puts an apostrophe before such names, as the explorer does in all that it lets save.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from focuse.errors import FocuseError

VARIABLE = "FOCUSE_SPREADSHEET"
# The wide ones too: some turn them into the others. Quotes before it vanish where a text is read that has none.
FORMULA = '^"*[=+\\-@\t\r\n＝＋－＠]'


def for_spreadsheets() -> bool:
    """Whether text is to be safe to open in a spreadsheet, rather than faithful."""
    given = os.environ.get(VARIABLE, "").strip().lower()
    if given not in ("", "0", "off", "no", "false", "1", "on", "yes", "true"):
        raise FocuseError(f"{VARIABLE} is {given!r}; set it to 1 or 0")
    return given in ("1", "on", "yes", "true")


def guarded(names: pa.Array) -> pa.Array:
    """Names [n] with an apostrophe before those that begin as formulas do.

    >>> guarded(pa.array(["=1+1", "plain", "-x"])).to_pylist()
    ["'=1+1", 'plain', "'-x"]
    """
    odd = pc.match_substring_regex(names, FORMULA)
    return pc.if_else(odd, pc.binary_join_element_wise("'", names, ""), names) if pc.any(odd).as_py() else names


def text_table(table: pa.Table) -> pa.Table:
    """A table that is about to be text: guarded where FOCUSE_SPREADSHEET asks for it, else as it is."""
    if not for_spreadsheets():
        return table
    for place, field in enumerate(table.schema):
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            column = table.column(place).cast(pa.string())
            safe = pa.chunked_array([guarded(part) for part in column.chunks], pa.string())
            table = table.set_column(place, field.name, safe)
    return table.rename_columns(headings(table.column_names))


def headings(names: Sequence[str]) -> list[str]:
    """Names of columns, guarded likewise."""
    given = pa.array(names, pa.string())
    return list((guarded(given) if for_spreadsheets() else given).to_pylist())
