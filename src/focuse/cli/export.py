"""`focuse export`: embeddings with their names, for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from focuse.cli.output import Json, emit

NAME = "export"
SHORT = "Embeddings with their names, for other tools."


def command(
    run: Annotated[Path, typer.Argument(help="Folder that 'focuse train --out' made.")],
    out: Annotated[
        Path,
        typer.Option(
            help="File: .parquet, .csv, .tsv, .vec (word2vec), .npz, .safetensors, .pt; or a folder (projector)."
        ),
    ],
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="parquet, csv, tsv, word2vec, projector, numpy, safetensors or pyg [default: by the suffix of --out].",
        ),
    ] = None,
    what: Annotated[str, typer.Option(help="entities, relations or both.")] = "entities",
    as_json: Annotated[bool, Json] = False,
) -> None:
    """Write the embeddings of a run with their names, as Parquet, CSV, TSV, word2vec's text, a folder for TensorBoard's
    projector, NumPy, safetensors or tensors for PyTorch Geometric.
    """
    from focuse.exports.exporting import check_export
    from focuse.run import load

    form = check_export(out, form, what)
    loaded = load(run, "cpu")
    files = [str(path) for path in loaded.export(out, form, what)]
    found = loaded.engine.finished()
    data = {
        "format": form,
        "what": "both" if form == "pyg" else what,
        "files": files,
        "entities": list(found["entity"].shape),
        "relations": list(found["relation"].shape),
        "parts": loaded.engine.model.parts,
    }
    emit(data, "\n".join(f"written: {path}" for path in files), as_json)
