"""Go on with the knowledge of a run after some of its tasks, with other settings.

Run `python results/adaptive/ablate.py RUN OUT --number 8 --set std_start=one --set ...`. Number is
that of a checkpoint `task-NNN` of RUN in which nothing is left to be measured; its finished tasks
are taken as they are, the tasks of RUN that follow are learned into OUT, a run folder.
"""

import argparse
from dataclasses import replace
from pathlib import Path

from lpgftw_ros.domains.sampler import Sampler
from lpgftw_ros.learning.serialise import AnyArray
from lpgftw_ros.runs.checkpoints import CheckpointStore
from lpgftw_ros.runs.config import resolve, RunConfig
from lpgftw_ros.runs.driver import drive, policy_spec
from lpgftw_ros.runs.folder import read_config
from lpgftw_ros.runs.options import key_value
from lpgftw_ros.runs.session import Session


def main() -> None:
    """Learn the tasks that are left."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('run', type=Path)
    parser.add_argument('out', type=Path)
    parser.add_argument('--number', type=int, required=True)
    parser.add_argument('--tasks', type=int, help='how many; default: all that are left')
    parser.add_argument('--set', action='append', default=[], dest='settings')
    args = parser.parse_args()
    saved = read_config(args.run)
    asked = saved.settings() | dict(map(key_value, args.settings))
    config = resolve(saved.suite, saved.learner, overrides=asked)
    done = bytes(read_shared(args.run, args.number)['base/finished']).decode().split()
    left = tuple(task for task in saved.tasks if task not in done)[: args.tasks]
    go_on(args.run, args.number, replace(config, tasks=left), args.out)


def read_shared(run: Path, number: int) -> dict[str, AnyArray]:
    """Return what a run knew at one of its checkpoints."""
    return CheckpointStore(run / 'checkpoints').shared_before(number)


def go_on(run: Path, number: int, config: RunConfig, out: Path) -> None:
    """Learn the tasks of `config` into `out`, with the knowledge of a checkpoint of `run`."""
    with Sampler(config.suite, 1) as sampler:
        spec = policy_spec(read_config(run), sampler)
        with Session(config, out, spec=spec) as session:
            if not session.resumed:
                session.learner.adopt(read_shared(run, number))
                session.store.save_base(session.learner)
            drive(session, sampler, lambda session: None)


if __name__ == '__main__':
    main()
