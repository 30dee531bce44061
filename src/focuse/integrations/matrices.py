"""Read NumPy arrays, PyTorch tensors, SciPy sparse matrices and files in Matrix Market format."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from focuse.data.graph import Graph
from focuse.data.readers import ReadOptions, graph_from_table, inspect_file, open_decompressed, rows_to_arrow
from focuse.data.roles import NONE
from focuse.errors import FocuseError, counted
from focuse.integrations.networks import TABLE_OPTIONS, as_undirected, refuse_options

MAX_ROLES = 4  # columns of head, relation, tail and weight


def read_array(array: Any, options: ReadOptions) -> Graph:
    """Encode a NumPy array or PyTorch tensor with a row per edge; a structured array is a table with headings."""
    where = "array"
    if hasattr(array, "detach"):
        try:
            array = array.detach().cpu().numpy()
        except (TypeError, RuntimeError) as error:
            reason = str(error).splitlines()[0]
            raise FocuseError(f"{where}: cannot be read as a NumPy array: {reason}") from None
    if np.ma.is_masked(array):
        raise FocuseError(f"{where}: some of its values are masked; remove those rows, or fill them")
    if not isinstance(array, np.ndarray):
        raise FocuseError(f"cannot read a graph from {type(array).__name__}: give a file, a frame or rows")
    if array.dtype.names:
        columns = {name: array[name].tolist() for name in array.dtype.names}
        return graph_from_table(pa.table(columns), options, where)
    shape = " × ".join(map(str, array.shape))
    if array.ndim != 2 or array.shape[1] < 2 or array.dtype.kind not in "biufOSU":
        raise FocuseError(f"{where}: {shape} {array.dtype}; give a row per edge: head, tail, and relation or weight")
    rows, width = array.shape
    if rows in (2, 3) and width > MAX_ROLES:
        raise FocuseError(f"{where}: {shape}, as with a column per edge; give a row per edge: array.T")
    if rows == width > MAX_ROLES and array.dtype.kind in "biuf":
        raise FocuseError(
            f"{where}: {shape}, which looks like an adjacency matrix; give focuse.read(scipy.sparse.coo_array(array))"
        )
    if array.dtype.kind not in "biuf":
        if array.dtype.kind == "O" and not options.names_columns and _is_usual(array):
            options = replace(options, columns=range(1, width + 1))
        return graph_from_table(rows_to_arrow(array.tolist(), where), options, where, header=False)
    array = np.asarray(array)  # np.matrix has no rows of one dimension
    names = min(width, 3) if width != 3 else 2  # columns that hold no weights, or may hold none
    columns = {f"column {at + 1}": _column(array[:, at], at < names) for at in range(width)}
    return graph_from_table(pa.table(columns), options, where, header=False)


def _is_usual(array: npt.NDArray[Any]) -> bool:
    """Return whether rows of objects are head, relation, tail and maybe weight by their types."""
    return array.shape[1] == MAX_ROLES or (array.shape[1] == 3 and all(isinstance(row[2], str) for row in array))


def _column(values: npt.NDArray[Any], may_be_ids: bool) -> pa.Array:
    """Return a column of numbers; ids that stand as 1.0 next to weights become whole numbers again."""
    values = np.ascontiguousarray(values)
    is_whole = may_be_ids and values.dtype.kind == "f" and bool((np.abs(values) < 2**53).all())
    is_whole = is_whole and bool((values == np.floor(values)).all())
    return pa.array(values.astype(np.int64) if is_whole else values)


# ---- sparse matrices ------------------------------------------------------------------------------------------------


def read_sparse(matrix: Any, options: ReadOptions) -> Graph:
    """Encode a SciPy sparse matrix or array: each entry that it stores is an edge from its row to its column."""
    where = "sparse matrix"
    if not hasattr(matrix, "tocoo"):
        raise FocuseError(f"cannot read a graph from {type(matrix).__name__}: give a sparse matrix")
    if len(matrix.shape) != 2:
        raise FocuseError(f"{where}: {len(matrix.shape)} dimensions; give a matrix of heads × tails")
    coo = matrix.tocoo()
    filled = matrix.format == "bsr"  # its blocks are filled with zeros
    return _graph_of_entries(where, coo.row, coo.col, coo.data, coo.shape, options, filled=filled)


FIELDS, SYMMETRIES = ("real", "double", "integer", "pattern"), ("general", "symmetric", "skew-symmetric")


def read_matrix_market(path: Path, options: ReadOptions) -> Graph:
    """Read a file in Matrix Market format; nodes have their numbers in the file, from 1.

    SciPy's own reader is not used, because it may abort the process when it reads a damaged or compressed file.
    """
    inspect_file(path)
    try:
        with open_decompressed(path) as stream:
            banner, _, text = stream.read().decode("latin-1").partition("\n")
    except (pa.ArrowException, OSError, EOFError) as error:
        raise FocuseError(f"{path}: damaged compressed file: {' '.join(str(error).split())[:200]}") from None
    words = banner.lower().split()
    if len(words) != 5 or words[:2] != ["%%matrixmarket", "matrix"]:
        raise FocuseError(f"{path}, line 1: not the banner of a Matrix Market file: {banner[:60]!r}")
    _, _, layout, field, symmetry = words
    if layout != "coordinate" or field not in FIELDS or symmetry not in SYMMETRIES:
        raise FocuseError(f"{path}, line 1: a matrix that is {layout} {field} {symmetry}; give a sparse one of numbers")
    lines = (line for line in text.split("\n") if not line.startswith("%"))
    try:
        size = [int(word) for word in next((line for line in lines if line.strip()), "").split()]
        numbers = np.array(" ".join(lines).split(), np.float64)
    except (ValueError, OverflowError) as error:
        raise FocuseError(f"{path}: not a number in Matrix Market format: {str(error)[:100]}") from None
    width = 2 if field == "pattern" else 3
    if len(size) != 3 or len(numbers) != size[2] * width:
        raise FocuseError(f"{path}: its numbers do not make up the entries that it announces; is the file complete?")
    entries = numbers.reshape(-1, width)
    ends = entries[:, :2]
    if len(ends) and ((ends < 1) | (ends > np.array(size[:2], np.float64)) | (ends != np.floor(ends))).any():
        raise FocuseError(f"{path}: an entry lies outside the matrix of {size[0]:,} × {size[1]:,}")
    row, column = (ends[:, at].astype(np.int64) - 1 for at in (0, 1))
    values = np.ones(len(entries), bool) if field == "pattern" else entries[:, 2]
    if symmetry != "general":
        mirrored = row != column
        opposite = values[mirrored] if symmetry == "symmetric" else -values[mirrored]
        row, column = np.concatenate([row, column[mirrored]]), np.concatenate([column, row[mirrored]])
        values = np.concatenate([values, opposite])
    graph = _graph_of_entries(str(path), row, column, values, (size[0], size[1]), options, first=1)
    apart = options.same_ids is False
    return graph if symmetry != "symmetric" or apart else as_undirected(graph, options)


def _graph_of_entries(
    where: str,
    row: npt.NDArray[Any],
    column: npt.NDArray[Any],
    values: npt.NDArray[Any],
    shape: tuple[int, int],
    options: ReadOptions,
    first: int = 0,
    filled: bool = False,
) -> Graph:
    """Encode the entries of a matrix, by rows; `first` is the number of the first row, and `filled` drops zeros."""
    refuse_options(where, options, (*TABLE_OPTIONS, "relation", "weight", "weight_columns"))
    if values.dtype.kind not in "biuf":
        raise FocuseError(f"{where}: its entries are {values.dtype}, not numbers; give real numbers")
    if filled:
        row, column, values = (each[values != 0] for each in (row, column, values))
    if not len(values):
        raise FocuseError(f"{where}: no entries, so that there are no edges")
    order = np.lexsort((column, row))
    row, column, values = row[order], column[order], values[order]
    weighted = values.dtype.kind != "b"
    new = np.concatenate([[True], (np.diff(row) != 0) | (np.diff(column) != 0)])
    notes = []
    if not new.all():
        starts = np.flatnonzero(new)
        values = np.add.reduceat(values, starts) if weighted else values[starts]
        row, column = row[starts], column[starts]
        notes.append(f"{where}: {counted(int((~new).sum()), 'repeated entries')} added to the first ones")
    if weighted and (zeros := int((values == 0).sum())):
        notes.append(f"{where}: {counted(zeros, 'stored zeros')} read as edges with the weight 0")
    square = shape[0] == shape[1]
    is_file = bool(first)
    apart = not square if options.same_ids is None else not options.same_ids
    ends = [pa.array(numbers + first).cast(pa.string()) for numbers in (row, column)]
    if apart:
        ends = [
            pc.binary_join_element_wise(word, names, " ") for word, names in zip(("row", "column"), ends, strict=True)
        ]
    columns = {"row": ends[0], "column": ends[1]} | ({"weight": pa.array(values)} if weighted else {})
    given = ReadOptions(
        head=1,
        tail=2,
        relation=NONE,
        weight=3 if weighted else NONE,
        relation_name=options.relation_name,
        same_ids=True,
        missing_weight=options.missing_weight,
    )
    graph = graph_from_table(pa.table(columns), given, where)
    size = f"{shape[0]:,} × {shape[1]:,}"
    same, separate = ("--same-ids", "--separate-ids") if is_file else ("same_ids=True", "same_ids=False")
    reading = f"{where}: a matrix of {size}, read as edges from rows to columns, numbered from {first}"
    if apart:
        reading += f"; rows and columns are kept apart, as 'row {first}' and 'column {first}' ({same} merges them)"
    else:
        reading += f"; equal numbers are the same entity ({separate} keeps rows and columns apart)"
    if options.relation_name is None:
        option = "--relation-name" if is_file else "relation_name"
        reading += f"; all edges have the relation {graph.relations[0]!r} ({option})"
    return replace(graph, notes=(reading, *notes, *graph.notes))
