"""The differential harness with an engine that is wrong: failures are found, shortened and described."""

from __future__ import annotations

import pytest

from headwater.engine.admission.admission import Admission
from headwater.engine.log.history import History
from headwater.engine.verify import NaiveSpace
from headwater.errors import CorruptionError
from headwater.testing.differential.harness import main, play, replay, run
from headwater.testing.differential.schedules import Submit


@pytest.fixture
def admits_every_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Admission, "conflict", lambda *_: None)


@pytest.mark.usefixtures("admits_every_read")
def test_failing_schedule_is_shortened_to_the_steps_that_matter() -> None:
    failure = run(50).failures[0]
    assert f"python -m headwater.testing.differential.harness --seed {failure.seed}" in str(failure)
    assert "the steps that are needed:" in str(failure)
    assert play(failure.seed) == failure  # The same seed fails in the same way, and is shortened to the same steps.
    assert replay(failure.seed, failure.profile, failure.steps) is not None
    for place, _ in enumerate(failure.steps):
        fewer = [*failure.steps[:place], *failure.steps[place + 1 :]]
        assert replay(failure.seed, failure.profile, fewer) is None
    commits = [
        commit for step in failure.steps if isinstance(step, Submit) for _, frame in step.batch for commit in frame
    ]
    assert len(commits) <= 4


def crash(*_: object, **__: object) -> None:
    raise ZeroDivisionError("a bug of our own")


def test_error_of_the_engine_is_a_disagreement_with_its_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(*_: object) -> None:
        try:
            crash()
        except ZeroDivisionError:
            raise CorruptionError("nothing can be read") from None

    monkeypatch.setattr(History, "read", damaged)
    failure = play(7)
    assert failure is not None
    assert (
        "made the engine raise CorruptionError: nothing can be read (after ZeroDivisionError: a bug" in failure.message
    )
    assert len(failure.steps) == 1


def test_crash_of_the_harness_names_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NaiveSpace, "judge", crash)
    with pytest.raises(ZeroDivisionError) as caught:
        run(1, start=7)
    assert caught.value.__notes__ == ["in a schedule: python -m headwater.testing.differential.harness --seed 7"]


def test_command_plays_the_given_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "7"]) == 0
    assert "1 schedules, " in capsys.readouterr().out
    assert main(["--seeds", "3", "--start", "5"]) == 0
    assert "3 schedules, " in capsys.readouterr().out


@pytest.mark.usefixtures("admits_every_read")
def test_command_fails_and_prints_how_to_repeat_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "50"]) == 1
    assert "repeat it with: python -m headwater.testing.differential.harness --seed " in capsys.readouterr().out
