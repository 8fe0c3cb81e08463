"""A second start into the run folder of an arm: it goes on, but not before it is asked to."""

import pytest

from lpgftw_ros.graph.parameters import LearnerParameters, run_settings
from lpgftw_ros.runs.driver import drive, open_session

from .arm_cell import ArmCell, PATIENT, write_limits, write_suite

pytestmark = [pytest.mark.ros, pytest.mark.alone]


class Interruption(Exception):
    """Ends a run after its first iteration."""


def interrupt(session) -> None:
    if session.last_row is not None:
        raise Interruption


@pytest.fixture(scope='module')
def cell(ros_domain, tmp_path_factory):
    folder = tmp_path_factory.mktemp('resume')
    suite, out = write_suite(folder, horizon=20), str(folder / 'run')
    started = LearnerParameters(suite=suite, tasks='reach', iterations=3, trajectories=1, out=out)
    with (
        pytest.raises(Interruption),
        open_session(*run_settings(started), workers=1) as (session, sampler),
    ):
        drive(session, sampler, interrupt)
    cell = ArmCell(
        suite=suite,
        limits_file=write_limits(folder, **PATIENT),
        reward='reach',
        out=out,
        resume=True,
    )
    cell.ready()
    yield cell
    cell.stop()


def steps(cell) -> bool:
    return any(command.key.rollout and command.step > 0 for command in cell.asked)


def test_a_resumed_run_moves_the_arm_only_when_it_is_asked_to(cell):
    cell.watch(5.0)
    assert not any(command.key.rollout for command in cell.asked)
    assert cell.trigger('resume').success
    assert cell.until(lambda: steps(cell), 60.0)
