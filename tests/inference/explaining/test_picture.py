"""Pictures of explanations: nothing overlaps, names are escaped, drawing is deterministic."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any
from xml.etree import ElementTree

import pytest

from focuse.inference.explaining.explanation import Explanation, Implied, Step, Support
from focuse.inference.explaining.layout import LEFT, MIDDLE, RIGHT, arrange, letters, shortened
from focuse.results import ResultTable

HOSTILE = '<script>alert("x")</script> & \x00 \u202e'


def asked_row(rank: int, head: str, relation: str, tail: str, score: float, **more: float | bool) -> Any:
    """Return a row as `Run.predict` does."""
    columns = {"rank": rank, "head": head, "relation": relation, "tail": tail, "score": score, "known": False}
    names = ("weight", "weight_mean", "weight_low", "weight_high", "probability")
    row = columns | dict.fromkeys(names) | more
    return ResultTable({name: [value] for name, value in row.items()})[0]


def explanation(name: str = "n", head: str = "head", tail: str = "tail", count: int = 5) -> Explanation:
    """Facts at the head, at the tail, between both, a loop, and a rule."""
    facts = [Support(head, "needs", f"{name}{number}", 0.5, -1.0, number / 5, "head") for number in range(count)]
    facts += [Support(f"{name} x{number}", "needs", tail, 0.5, -0.5, 0.5, "tail") for number in range(count)]
    facts.append(Support(head, "knows", f"{name}0", 0.9, -0.2, 0.9, "head"))
    facts.append(Support(f"{name}0", "of", tail, 0.1, -0.1, 0.1, "tail"))
    against = (Support(tail, name, head, 0.3, 0.4, 0.3, "both"), Support(head, "is", head, 0.3, 0.4, 0.3, "head"))
    steps = Step(head, "a", "way", 0.7), Step("way", "b", tail, 0.8)
    rule = Implied("a(x, y) & b(y, z) -> needs(x, z) : 0.9", 0.9, 0.8, 0.5, 0.4, 2, steps)
    asked = asked_row(3, head, "needs", tail, 1.5, weight_mean=0.4, weight_low=0.1, weight_high=0.9, probability=0.7)
    return Explanation(asked, 100, tuple(facts), against, rules=(rule,))


@pytest.mark.parametrize("name", ["n", "a very long name of an entity that no box has room for ", "日本語の名前" * 4])
def test_boxes_do_not_overlap_and_texts_fit(name: str) -> None:
    found = arrange(explanation(name))
    for one, two in combinations(found.boxes, 2):
        beside = one.x + one.width <= two.x or two.x + two.width <= one.x
        assert beside or one.y + one.height <= two.y or two.y + two.height <= one.y
    assert all(
        box.x >= 0 and box.x + box.width <= found.width and box.y + box.height <= found.height for box in found.boxes
    )
    for group in ElementTree.fromstring(explanation(name).svg()).iter("{http://www.w3.org/2000/svg}g"):
        [rim] = group.findall("{http://www.w3.org/2000/svg}rect")
        for text in group.iter("{http://www.w3.org/2000/svg}text"):  # half its size is an ordinary letter's width
            assert letters(text.text or "") * float(text.get("font-size") or 0) * 0.55 <= float(rim.get("width") or 0)


def test_ordinary_names_are_shown_whole_with_a_legend() -> None:
    asked = asked_row(3, "Ward Nurse", "requires skill", "patient communication", 1.5)
    fact = Support("Ward Nurse", "is supervised in its work by", "Head of Nursing and Care", 0.68, -0.371, 0.6, "head")
    drawn = Explanation(asked, 100, (fact,)).svg()
    texts = [one.text for one in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")]
    assert "is supervised in its work by 0.68 (−0.37)" in texts
    assert "Head of Nursing and Care" in texts
    assert "0.68 (−0.37): the weight of a fact, and the change of the score without it" in texts
    root = ElementTree.fromstring(drawn)
    assert (root.get("width"), root.get("height")) == ("100%", None)
    assert root.get("style") == f"max-width: {(root.get('viewBox') or '').split()[2]}px"


def test_weak_predictions_and_oppositions_are_worded() -> None:
    found = explanation()  # place 3 of 100; for it −1, against it +0.4
    assert "does not predict" not in found.words()
    assert "Against it" not in found.words()
    strong = Support("tail", "r", "head", 0.3, 0.5, 0.3, "both")
    assert "Against it speaks tail r head" in replace(found, against=(strong,)).words()
    far = replace(found, asked=found.asked._replace(rank=11))
    assert "does not predict it: it ranks beyond the best tenth. What score it has rests mostly" in far.words()
    assert "not predicted" in far.svg()


def test_shared_neighbors_are_drawn_between_and_others_outside() -> None:
    column = {box.name: box.column for box in arrange(explanation()).boxes if box.kind == "other"}
    assert column["n0"] == column["way"] == MIDDLE  # touches both ends; is on a rule's path
    assert column["n1"] == LEFT
    assert column["n x1"] == RIGHT


def test_hostile_names_stay_text() -> None:
    drawn = explanation(HOSTILE, head=HOSTILE, tail="]]>").svg()
    root = ElementTree.fromstring(drawn)  # well-formed
    assert "<script" not in drawn
    assert not [one for one in root.iter() if one.tag.endswith("script")]


def test_pictures_are_self_contained_and_described() -> None:
    drawn = explanation().svg()
    root = ElementTree.fromstring(drawn)
    assert drawn == explanation().svg()
    assert "href" not in drawn.replace('xmlns="http://www.w3.org/2000/svg"', "")
    names = {one.tag.rpartition("}")[2] for one in root}
    assert {"title", "desc"} <= names
    assert "It rests mostly on" in "".join(root.itertext())
    dashed = [one for one in root.iter("{http://www.w3.org/2000/svg}path") if one.get("stroke") == "#000000"]
    assert all(one.get("stroke-dasharray") for one in dashed)


def test_thickness_follows_weight() -> None:
    root = ElementTree.fromstring(explanation().svg())
    blue = [one for one in root.iter("{http://www.w3.org/2000/svg}path") if one.get("stroke") == "#0072B2"]
    sizes = [float(one.get("stroke-width") or 0) for one in blue[:5]]
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1]


def test_entity_without_neighbors_has_a_picture() -> None:
    asked = asked_row(1, "a", "r", "a", 0.0, known=True, weight=0.5)
    root = ElementTree.fromstring(Explanation(asked, 1).svg())
    assert "a" in {text.strip() for text in root.itertext()}


def test_names_are_cut_at_their_width() -> None:
    assert shortened("日本語の名前", 7) == "日本語…"
    assert shortened("short", 7) == "short"
