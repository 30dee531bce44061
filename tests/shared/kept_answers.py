"""Answers of a run as JSON: stored beside the run when it was made, and compared by tests."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import focuse

ASKED = 3  # test triples that each kind of question is put about


def answers(run: focuse.Run) -> dict[str, Any]:
    """Evaluation, predictions of both sides, weights and an explanation, of the first test triples."""
    test, entities, relations = run.splits.test, run.graph.entities, run.graph.relations
    rows = [
        (entities[int(test.head[row])], relations[int(test.relation[row])], entities[int(test.tail[row])])
        for row in range(ASKED)
    ]
    head, relation, tail = rows[0]
    explanation = with_old_names(run.explain(head, relation, tail, top=3).to_dict())
    return {
        "settings": run.settings.to_dict(),
        "epochs": [row["epoch"] for row in run.history],
        "evaluation": run.evaluate(deciles="global").to_dict(),  # the only rule when the answers were stored
        "tails": completions(run, "tail", head=head, relation=relation),
        "heads": completions(run, "head", relation=relation, tail=tail),
        "weights": run.predict_weights(rows).to_json(),
        "explanation": explanation,
    }


def completions(run: focuse.Run, missing: str, **given: str) -> Any:
    """Return the best completions by score among all entities, as `predict` ranked when the answers were stored."""
    best = run.predict(**given, top=5, any_type=True, weights=False).to_dicts()
    asked = run.predict(**given, top=5, candidates=[row[missing] for row in best]).to_dicts()
    found = {row[missing]: row for row in asked}
    return with_old_names([{**found[row[missing]], "rank": row["rank"]} for row in best])


# Columns and keys of an explanation that had other names when the answers were stored.
OLD_NAMES = {
    "weight_mean": "expected_weight",
    "weight_low": "low",
    "weight_high": "high",
    "opposing": "against",
    "own_change": "itself",
    "scaled_weight": "share",
    "known_negative": "false",
    "soft_confidence": "soft",
    "steps": "facts",
    "discovery_probability": "chance",
}


def with_old_names(found: Any) -> Any:
    """Return nested data with the keys that the stored answers have."""
    if isinstance(found, dict):
        return {OLD_NAMES.get(key, key): with_old_names(value) for key, value in found.items()}
    return [with_old_names(one) for one in found] if isinstance(found, list | tuple) else found


def differences(found: Any, kept: Any, tolerance: float, at: str = "") -> list[str]:
    """Where `found` is not what was `kept`. What has been added to an answer since then is no difference."""
    if isinstance(kept, dict) and isinstance(found, dict):
        missing = [f"{at}.{key}: gone" for key in kept if key not in found]
        both = [key for key in kept if key in found]
        return missing + [line for key in both for line in differences(found[key], kept[key], tolerance, f"{at}.{key}")]
    if isinstance(kept, list) and isinstance(found, list | tuple):
        if len(kept) != len(found):
            return [f"{at}: {len(found)} instead of {len(kept)}"]
        pairs = enumerate(zip(found, kept, strict=True))
        return [line for place, (a, b) in pairs for line in differences(a, b, tolerance, f"{at}[{place}]")]
    number = isinstance(kept, float) and isinstance(found, int | float)
    if number and (math.isclose(found, kept, rel_tol=tolerance, abs_tol=tolerance) or found != found != kept != kept):
        return []
    return [] if found == kept else [f"{at}: {found!r} instead of {kept!r}"]


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, by its path in it."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }
