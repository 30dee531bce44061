"""The ledger of trials, without any training."""

from __future__ import annotations

import pytest

from focuse.errors import FocuseError
from focuse.tuning.choosing import MOST_CELLS
from focuse.tuning.ledger import open_ledger
from focuse.tuning.space import make_space

SPACE = make_space({"lr": [0.1, 0.2, 0.3], "dim": [4, 8], "model": ["transe"]}, {}, defaults=False)


@pytest.fixture
def open_study(tmp_path):
    """`open_study()`: the same study as another process would open it."""

    def start(sampler="grid", space=SPACE):
        return open_ledger(tmp_path / "study", space, {}, sampler, "none")

    return start


def cell(trial):
    return tuple(trial.params[name] for name in SPACE.searched)


def work(ledger, wanted):
    """All trials to the end; a combination's value is its learning rate."""
    done = []
    while (trial := ledger.next(wanted)) is not None:
        ledger.complete(trial, trial.params["lr"])
        done.append(cell(trial))
    return done


@pytest.mark.parametrize("sampler", ["grid", "tpe"])
def test_two_processes_share_the_combinations(open_study, sampler):
    first, second = open_study(sampler), open_study(sampler)
    with first, second:
        trials = []
        while len(trials) < 6:
            for ledger in (first, second):
                trials.append((ledger, ledger.next(6)))
        assert len({cell(trial) for _, trial in trials}) == 6
        assert first.next(6) is None  # all under way
        assert (first.running(), first.done()) == (6, 0)
        for ledger, trial in trials:
            ledger.complete(trial, trial.params["lr"])
    assert (first.running(), second.done()) == (0, 6)
    assert first.best().value == 0.3


def test_combination_chosen_by_another_process_is_not_tried_twice(open_study):
    first, second = open_study(), open_study()
    with first, second:
        mine = first.next(6)
        choose = second.chooser.choose
        # As if it had chosen before the first one's choice was written.
        second.chooser.choose = lambda trials, tried: (
            choose(trials, tried) if second.study.user_attrs.get("void 1") else mine.params
        )
        other = second.next(6)
        assert cell(other) != cell(mine)
        assert [trial.number for trial in second.trials()] == [mine.number, other.number]
        assert other.number == mine.number + 2


def test_number_of_trials_is_limited(open_study):
    with open_study() as ledger:
        assert len(work(ledger, 4)) == 4
        assert work(ledger, 3) == []
        assert len(set(work(ledger, 99))) == 2


def test_an_interrupted_trial_waits_for_the_next_process(open_study):
    with open_study() as ledger:
        work(ledger, 2)
        trial = ledger.next(6)
        ledger.interrupt(trial.number)
        assert ledger.done() == 2
    with open_study() as ledger:
        again = ledger.next(3)
        assert cell(again) == cell(trial)
        ledger.complete(again, 0.0)
        assert ledger.next(3) is None
        assert len(set(work(ledger, 6))) == 3


def test_killed_process_is_detected_and_living_one_is_not(open_study, tmp_path):
    living, killed = open_study(), open_study()
    killed.__enter__()
    with living:
        lost, kept = killed.next(6), living.next(6)
        next_one = open_study()
        assert next_one.bury_the_dead() == 0
        killed.__exit__(None, None, None)  # a trial under way: as if it had been killed
        assert next_one.bury_the_dead() == 1
        assert next_one.bury_the_dead() == 0
        with next_one:
            assert cell(next_one.next(6)) == cell(lost)
            assert next_one.running() == 2
        living.complete(kept, 0.1)
    workers = list((tmp_path / "study" / "workers").iterdir())
    assert [path.name for path in workers] == [next_one.worker]  # it left a trial under way


def test_trial_of_another_machine_is_left_alone(open_study, monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "far-away")
    elsewhere = open_study()
    elsewhere.__enter__()
    elsewhere.next(6)
    elsewhere.__exit__(None, None, None)
    monkeypatch.undo()
    assert open_study().bury_the_dead() == 0
    monkeypatch.setattr("socket.gethostname", lambda: "far-away")
    assert open_study().bury_the_dead() == 1


def test_a_grid_too_large_for_memory_is_refused(open_study, tmp_path):
    large = make_space({"dim": list(range(1, 1002)), "num_negatives": list(range(1, 1002))}, {}, defaults=False)
    assert large.size > MOST_CELLS
    with pytest.raises(FocuseError, match="a grid of 1,002,001 combinations is too large"):
        open_study("grid", large)
    with open_study("tpe", large) as ledger:
        assert ledger.next(1) is not None


def test_tpe_prefers_good_regions_of_the_grid(open_study):
    """Of 400 combinations it comes to the good corner far more often than chance does (1 in 4)."""
    numbers = [3, 1, 4, 15, 9, 2, 6, 5, 35, 8, 97, 93, 23, 84, 62, 64, 33, 83, 27, 95]
    space = make_space({"dim": numbers, "num_negatives": numbers}, {}, defaults=False)
    with open_study("tpe", space) as ledger:
        good = []
        while (trial := ledger.next(40)) is not None:
            dim, negatives = (sorted(numbers).index(trial.params[name]) for name in ("dim", "num_negatives"))
            good.append(dim >= 10 and negatives < 10)
            ledger.complete(trial, dim - negatives)
    assert sum(good[20:]) >= 15
    assert sum(good[:10]) <= 6


def test_failed_trial_is_never_best_and_keeps_its_reason(open_study):
    with open_study() as ledger:
        failed = ledger.next(2)
        failed.report(0.99, 1)
        ledger.give_up(failed, "diverged")
        assert ledger.best() is None
        ledger.complete(ledger.next(2), 0.1)
        assert ledger.best().value == 0.1
        assert ledger.done() == 2
    assert [trial.user_attrs.get("failed") for trial in ledger.trials()] == ["diverged", None]
