"""Words of a shell's line: taking them apart as far as they are typed, and quoting what replaces the last one."""

from __future__ import annotations

import re

SPECIAL = re.compile(r"([\s\"'\\$`!&;|<>()\[\]{}*?#~^])")
IN_DOUBLE = re.compile(r"([\"\\$`])")


def split_words(line: str) -> tuple[list[str], str]:
    """The words of an unfinished line, without their quotes; and the last as it was typed.

    >>> split_words('predict run --head "machine le')
    (['predict', 'run', '--head', 'machine le'], '"machine le')
    >>> split_words("a b ")
    (['a', 'b', ''], '')
    """
    words, word, raw, quote, at, begun = [], "", "", "", 0, False
    while at < len(line):
        letter = line[at]
        if not quote and letter.isspace():
            if begun:
                words.append(word)
            word, raw, begun = "", "", False
            at += 1
            continue
        begun, step = True, 1
        if letter == "\\" and quote != "'" and at + 1 < len(line):
            kept = quote == '"' and not IN_DOUBLE.match(line[at + 1])
            word += f"\\{line[at + 1]}" if kept else line[at + 1]
            step = 2
        elif letter == quote:
            quote = ""
        elif letter in "\"'" and not quote:
            quote = letter
        else:
            word += letter
        raw += line[at : at + step]
        at += step
    return [*words, word], raw


def bash_words(line: str) -> tuple[list[str], str]:
    """The same without the command's own name."""
    words, raw = split_words(line)
    return words[1:] or [""], raw


def quoted(value: str, raw: str) -> str:
    """`value` so that the shell reads it as one word, in the quotes that `raw` begins with."""
    if raw.startswith("'"):
        return value.replace("'", "'\\''")
    if raw.startswith('"'):
        return IN_DOUBLE.sub(r"\\\1", value)
    if value.startswith("~/") and raw.startswith("~/"):
        return "~/" + SPECIAL.sub(r"\\\1", value[2:])
    return SPECIAL.sub(r"\\\1", value)


def cut(value: str, raw: str, breaks: str) -> str:
    """What bash replaces: it takes for a word only what follows the last of `breaks`, such as a colon.

    >>> cut("concept:city", "concept:c", " :=")
    'city'
    """
    if raw[:1] in ("'", '"'):
        return value
    start = max((raw.rfind(each) for each in breaks if each in ":=@"), default=-1) + 1
    return value[start:]
