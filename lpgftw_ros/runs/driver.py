"""The in-process driver: one Python process and its simulation workers."""

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
import time

from lpgftw_ros.domains.fingerprint import task_fingerprint
from lpgftw_ros.domains.sampler import Sampler
from lpgftw_ros.errors import InvalidConfig
from lpgftw_ros.learning.policies import PolicySnapshot, PolicySpec
from lpgftw_ros.runs.config import RunConfig
from lpgftw_ros.runs.knowledge_files import load_knowledge
from lpgftw_ros.runs.lifelong import Lifelong
from lpgftw_ros.runs.requests import Collect, Done, Idle
from lpgftw_ros.runs.session import Session
from lpgftw_ros.runs.tensorboard import event_writer


@contextmanager
def open_session(
    config: RunConfig,
    out: Path,
    *,
    workers: int = 0,
    resume: bool = False,
    source: Path | None = None,
    tensorboard: bool = False,
) -> Iterator[tuple[Session, Sampler]]:
    """Open a run folder and the workers that sample for it."""
    policies = source_policies(config, source)
    with Sampler(config.suite, workers) as sampler:
        spec = policy_spec(config, sampler)
        with (
            event_writer(out if tensorboard else None) as on_row,
            Session(
                config, out, spec=spec, resume=resume, source=policies, on_row=on_row
            ) as session,
        ):
            yield session, sampler


def policy_spec(config: RunConfig, sampler: Sampler) -> PolicySpec:
    """Return the policy shape a run's first task asks for."""
    task = sampler.suite.task(config.tasks[0])
    obs_dim, act_dim = task.dimensions
    return PolicySpec(obs_dim, act_dim, config.hidden)


def source_policies(config: RunConfig, source: Path | None) -> dict[str, PolicySnapshot] | None:
    """Return the policies of the finished run that pg-ella starts from."""
    if config.method_name != 'pg-ella':
        if source is not None:
            raise InvalidConfig(f'--source is for pg-ella only, not for {config.learner}')
        return None
    if source is None:
        raise InvalidConfig('pg-ella needs --source, the folder of a finished stl run')
    knowledge = load_knowledge(source)
    return {task: knowledge.policy(task) for task in knowledge.tasks}


def take_up(loop: Lifelong) -> None:
    """Go on with whatever is left of a run, also if it was held or stopped in the ROS graph.

    Parked visits come first, then the queue as it was saved, then the tasks of the sequence that
    were never begun.
    """
    loop.release()
    parked = [v.task for v in loop.visits if v.state == 'parked' and v.task not in loop.queue]
    loop.queue[:0] = parked
    met = Counter([visit.task for visit in loop.visits if visit.state != 'parked'])
    met.update(loop.queue)
    for task in loop.config.tasks:
        if met[task]:
            met[task] -= 1
        else:
            loop.queue.append(task)


def drive(session: Session, sampler: Sampler, on_step: Callable[[Session], None]) -> int:
    """Answer the session's requests until every task is learned; return how many taught it.

    The value function is fitted, and the iteration saved, while the next rollout is sampled.
    """
    if session.resumed:  # nobody else could release it here
        take_up(session.lifelong)
    noted: set[str] = set()
    learned = 0
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix='background') as beside:
        while not isinstance(request := session.next_request(), Done | Idle):
            if request.task not in noted:
                session.note_physics(request.task, task_fingerprint(sampler.suite, request.task))
                noted.add(request.task)
            policy = session.policy(request)
            pending = beside.submit(session.background)
            started = time.perf_counter()
            batch = sampler.collect(
                request.task, policy, request.n_trajectories, request.seed, request.explore
            )
            seconds = time.perf_counter() - started
            pending.result()
            session.feed(batch, seconds)
            learned += isinstance(request, Collect)
            on_step(session)
    session.finish()
    return learned
