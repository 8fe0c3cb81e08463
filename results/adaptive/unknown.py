"""Offer environments without their names to a finished run and print what they are taken for.

Run `python results/adaptive/unknown.py RUN --suite mt50 --others push-back,lever-pull`. RUN is a
run folder of `lpg-ftw-adaptive` or `lpg-ftw`. Its own tasks are offered first, then others it
never met. Signatures a run does not have are made from its policies as they were tuned.
"""

import argparse
from pathlib import Path

from lpgftw_ros.domains.sampler import Sampler
from lpgftw_ros.learning.adaptive.learner import AdaptiveLpgFtw
from lpgftw_ros.learning.adaptive.recognise import signature, Verdict
from lpgftw_ros.learning.policies import PolicySpec
from lpgftw_ros.learning.registry import make_learner
from lpgftw_ros.learning.serialise import pack_names, pack_text
from lpgftw_ros.runs.checkpoints import read_shared
from lpgftw_ros.runs.config import resolve
from lpgftw_ros.runs.folder import read_config

NAME = 'lpg-ftw-adaptive'


def main() -> None:
    """Print one line per environment."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('run', type=Path)
    parser.add_argument('--suite', default='mt50')
    parser.add_argument('--others', default='')
    args = parser.parse_args()
    with Sampler(args.suite, 1) as sampler:
        learner = load(args.run, sampler)
        own = list(learner.knowledge().tasks)
        for task in own:
            if task not in learner._memory.signatures:
                sign(learner, sampler, task)
        print('| environment | verdict | nearest | distance | next | steps |')
        print('|---|---|---|---|---|---|')
        for task in (*own, *(name for name in args.others.split(',') if name)):
            print(row(task, offer(learner, sampler, task)))


def load(folder: Path, sampler: Sampler) -> AdaptiveLpgFtw:
    """Return a learner with the knowledge of a run."""
    saved = read_config(folder)
    shared, _ = read_shared(folder)
    if saved.learner != NAME:
        shared['base/learner'] = pack_text(NAME)
        shared |= {
            f'base/{name}': pack_names([])
            for name in ('earned', 'best', 'present', 'signatures', 'pending')
        }
    spec = PolicySpec(*sampler.suite.tasks[0].dimensions, saved.hidden)
    learner = make_learner(NAME, spec, resolve(saved.suite, NAME).method)
    assert isinstance(learner, AdaptiveLpgFtw)
    learner.adopt(shared)
    return learner


def sign(learner: AdaptiveLpgFtw, sampler: Sampler, task: str) -> None:
    """Keep how a task answers its own policy."""
    policy = learner.knowledge().compose(learner._tuned(task))
    learner._memory.signatures[task] = signature(sampler.collect(task, policy, 1, 1, False))


def offer(learner: AdaptiveLpgFtw, sampler: Sampler, task: str) -> Verdict:
    """Answer the probes of an inquiry in the environment of a task."""
    inquiry = learner.recognise(task)
    while (probe := inquiry.probe) is not None:
        policy = learner.knowledge().compose(probe.factors)
        inquiry.answer(sampler.collect(task, policy, probe.n_trajectories, 2, False))
    return inquiry.verdict


def row(task: str, found: Verdict) -> str:
    """Return a line of the table."""
    ranked = sorted(found.distances.values())
    second = f'{ranked[1]:.2f}' if len(ranked) > 1 else '-'
    return f'| {task} | {found.kind} | {found.task} | {ranked[0]:.3f} | {second} | {found.steps} |'


if __name__ == '__main__':
    main()
