"""`learner`: own the learner and the run folder."""

from array import array
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import Field, replace
from pathlib import Path
import sys
from typing import Any

from builtin_interfaces.msg import Time
from rclpy.parameter import Parameter

from lpgftw_interfaces.msg import ActiveTask, Knowledge, LearningStatus, TaskPolicy
from lpgftw_ros.domains.suites import load_suite, Suite
from lpgftw_ros.errors import InvalidConfig, LpgftwError, UnknownName
from lpgftw_ros.graph import admission as graph
from lpgftw_ros.graph.admission import RolloutGoal, Seal
from lpgftw_ros.graph.parameters import LearnerParameters, run_settings, setting_defaults
from lpgftw_ros.graph.training import TrainingWorker
from lpgftw_ros.learning.arrays import Batch
from lpgftw_ros.learning.policies import PolicySpec, TaskFactors
from lpgftw_ros.nodes import qos
from lpgftw_ros.nodes.conversions import knowledge_to_msg, status_message, task_policy_to_msg
from lpgftw_ros.nodes.learner_actions import LearnerActions
from lpgftw_ros.nodes.learner_services import LearnerServices
from lpgftw_ros.nodes.lifecycle import (
    declare_field,
    ERROR,
    LifelongNode,
    OK,
    read,
    SETTINGS,
    STEADY,
    WARN,
)
from lpgftw_ros.nodes.process import run
from lpgftw_ros.nodes.rollout_client import RolloutClient
from lpgftw_ros.runs.config import RunConfig, setting_fields
from lpgftw_ros.runs.driver import source_policies
from lpgftw_ros.runs.environment import limit_threads
from lpgftw_ros.runs.session import Session
from lpgftw_ros.runs.tracking import tracked, tracker_names

LOST = 10.0  # s without a rollout until this is an error
END_PERIOD = 0.2  # s between two checks whether the run has ended
RESULT_TURNS = 2
"""Checks between the end of the last goal and of the process, so that its result arrives."""
LOG_PERIOD = 5.0  # s between lines about the progress


class RunSettings:
    """The settings of the run as parameters `settings.NAME`.

    Their defaults are what the preset says, or the run that is continued. Which there are depends
    on the learner, so they are declared anew when one of `DECIDED_BY` changes.
    """

    DECIDED_BY = ('suite', 'learner', 'preset', 'out', 'resume')

    def __init__(self, node: LifelongNode) -> None:
        self._node = node
        self._defaults: dict[str, Any] = {}
        self._items: dict[str, Field[Any]] = {}
        self.problem: LpgftwError | None = None
        """Why there are none: the suite or the learner does not exist."""

    def declare(self, parameters: LearnerParameters) -> None:
        """Declare them, keeping what was said of those that are there already."""
        said = self.said()
        for name in self._defaults:
            self._node.undeclare_parameter(f'{SETTINGS}.{name}')
        self._defaults, self.problem = {}, None
        try:
            learner, defaults = setting_defaults(parameters)
        except LpgftwError as error:
            self.problem = error
            return
        self._items = setting_fields(learner)
        for name, value in defaults.items():
            full, item = f'{SETTINGS}.{name}', self._items[name]
            kept = said.get(name, value)
            declare_field(self._node, full, item, kept, ignore_override=name in said)
            self._defaults[name] = list(value) if isinstance(value, tuple) else value

    def said(self) -> dict[str, Any]:
        """Return those that differ from their defaults."""
        now = {n: self._node.get_parameter(f'{SETTINGS}.{n}').value for n in self._defaults}
        return {name: value for name, value in now.items() if value != self._defaults[name]}

    def text(self) -> str:
        """Return those that differ as `--set` takes them; unknown ones are an error."""
        if self.problem is not None:
            raise self.problem
        overrides = self._node._parameter_overrides
        if SETTINGS in overrides:
            raise InvalidConfig(
                f'{SETTINGS} is no parameter: write {SETTINGS}.max_kl and the like'
            )
        for name in overrides:
            if name.startswith(f'{SETTINGS}.') and not self._node.has_parameter(name):
                known = [f'{SETTINGS}.{name}' for name in self._defaults]
                raise UnknownName('parameter', name, known)
        written = {
            name: self._items[name].metadata['items'].write(value)
            if isinstance(value, list | array)
            else value
            for name, value in self.said().items()
        }
        return ';'.join(f'{name}={value}' for name, value in written.items())


class Learner(LifelongNode):
    """Feeds rollouts to the session and publishes what it learned."""

    config: LearnerParameters

    def __init__(self) -> None:
        super().__init__('learner')
        self._seal = Seal()
        self.worker: TrainingWorker | None = None
        self._opened: Path | None = None
        """The run folder this very process has opened."""
        self._logged: object = None
        self._settings = RunSettings(self)
        self._settings.declare(self.config)
        self.add_post_set_parameters_callback(self._on_parameters)

    def _on_parameters(self, parameters: Iterable[Parameter]) -> None:
        if any(parameter.name in RunSettings.DECIDED_BY for parameter in parameters):
            self._settings.declare(read(self, LearnerParameters))

    def read_parameters(self) -> LearnerParameters:
        """Return what the parameters say now, the settings of the run among them."""
        return replace(read(self, LearnerParameters), settings=self._settings.text())

    def configure(self) -> None:
        """Open the run folder, or continue the interrupted run."""
        config, out = run_settings(self.config)
        limit_threads(config.loop.threads)
        suite = load_suite(config.suite_source)
        self.session, own = self._open(config, out, suite)
        self.worker = TrainingWorker(self.session, self, self.config.run_id)
        self._forget_sent()
        if not self.config.autotrain:
            self._wait_to_be_asked(self.worker, own)
        self._knowledge = self.create_publisher(Knowledge, 'knowledge', qos.LATCHED)
        self._policy = self.create_publisher(TaskPolicy, 'task_policy', qos.LATCHED)
        self._active = self.create_publisher(ActiveTask, 'active_task', qos.LATCHED)
        self._status = self.create_publisher(LearningStatus, 'status', qos.LATCHED)
        self._rollouts = RolloutClient(
            self, lambda: self.worker is None or self.worker.closing, self._tell_again
        )
        self._task_services = LearnerServices(self, self.worker, suite)
        self._goals = LearnerActions(self, self.worker, suite, arm=bool(self.config.limits_file))
        self._end, self._ending = self.create_timer(END_PERIOD, self._on_end, clock=STEADY), 0

    def _open(self, config: RunConfig, out: Path, suite: Suite) -> tuple[Session, bool]:
        """Return the session, and whether this same graph continues it after a crash."""
        spec = PolicySpec(*suite.task(config.tasks[0]).dimensions, config.hidden)
        source = source_policies(config, Path(self.config.source) if self.config.source else None)
        own = self._own_run(out)
        resume = self.config.resume or own
        knowledge = Path(self.config.knowledge) if self.config.knowledge else None
        with ExitStack() as opened:
            names = tracker_names(self.config.track)
            on_row = opened.enter_context(tracked(names, out, config))
            session = Session(
                config,
                out,
                spec=spec,
                resume=resume,
                source=source,
                knowledge=knowledge,
                on_row=on_row,
            )
            self._trackers = opened.pop_all()
        session.folder.write_json('run_id.json', {'run_id': self.config.run_id})
        self._opened = out
        how = 'resumed' if session.resumed else 'new run'
        self.get_logger().info(f'{how}: {config.learner} on {config.suite} in {out}')
        return session, own

    def _wait_to_be_asked(self, worker: TrainingWorker, own: bool) -> None:
        """Start nothing without a request; after a crash continue what was requested."""
        lifelong = self.session.lifelong
        if not self.session.resumed:
            lifelong.queue.clear()
        elif not own and not lifelong.done:
            worker.pause(True)
            self.get_logger().info('paused: call resume or train_task to go on')

    def _forget_sent(self) -> None:
        """Publish everything again, for publishers of a new lifecycle."""
        self._knowledge_sent = self._policy_sent = (-1, -1)
        self._active_sent, self._active_since = ('', '', 0, 0), Time()

    def _tell_again(self) -> None:
        """Publish knowledge and policy again: the policy node may have missed one."""
        if self.worker is not None:
            self._forget_sent()
            self.announce(self.worker)

    def activate(self) -> None:
        """Start to learn; publish everything again for nodes that have joined meanwhile."""
        assert self.worker is not None
        self._forget_sent()
        self.worker.start()

    def deactivate(self) -> None:
        """Stop after the current work; everything finished is on disk."""
        if self.worker is not None:
            self._goals.end_all('the learner was deactivated; its task goes on once it is active')
            self.worker.close()

    def cleanup(self) -> None:
        """Release the run folder."""
        if self.worker is None:
            return
        self.worker.close(timeout=None)  # the next process must be alone in the folder
        self._task_services.close()
        self._goals.close()
        self._rollouts.close()
        self.destroy_timer(self._end)
        self.session.folder.close()
        self._trackers.close()
        for publisher in (self._knowledge, self._policy, self._active, self._status):
            self.destroy_publisher(publisher)
        self.worker = None

    def _own_run(self, out: Path) -> bool:
        """Return whether the folder was made by this very run, before a crash or a clean-up."""
        marker = out / 'run_id.json'
        if out == self._opened and marker.exists():
            return True
        if not self.config.run_id or not marker.exists():
            return False
        return f'"{self.config.run_id}"' in marker.read_text()

    def health(self) -> tuple[int, str, dict[str, object]]:
        """Return what the learner does or waits for."""
        worker = self.worker
        if worker is None:
            return OK, self.state, {}
        row = self.session.last_row or {}
        values: dict[str, object] = {
            'task': worker.active,
            'mode': worker.mode,
            'iteration': row.get('iteration', ''),
            'return_mean': row.get('return_mean', ''),
            'refused_steps': row.get('refused_steps', 0),
            'retries': self._rollouts.retries,
            'dropped_trajectories': self._rollouts.dropped,
            'folder': self.session.folder.path.absolute(),
        }
        if worker.failed:
            return ERROR, worker.failed, values
        problem, seconds = self._rollouts.problem
        if problem:
            level = ERROR if seconds > LOST else WARN
            return level, f'{problem} (for {seconds:.0f} s)', values
        if row.get('refused_steps'):
            return WARN, f'{row["refused_steps"]} steps were halved', values
        return OK, worker.message or worker.state, values

    # -- what the worker needs of the graph ----------------------------------------------

    def collect(
        self,
        goal: RolloutGoal,
        in_background: Callable[[], None],
        given_up: Callable[[], bool] = lambda: False,
    ) -> Batch:
        """Ask the bridge for a rollout and wait for it."""
        batch, task = self._rollouts.collect(goal, in_background, given_up), goal.key.task
        if physics := self._rollouts.physics[task]:
            self.session.note_physics(task, physics)
        return batch

    def announce(self, worker: TrainingWorker) -> None:
        """Publish what changed since the last time."""
        learner, now = self.session.learner, self.get_clock().now().to_msg()
        knowledge = worker.knowledge = learner.knowledge()
        if self._knowledge_sent != (knowledge.version, len(knowledge.tasks)):
            message = knowledge_to_msg(knowledge, self.config.run_id, self._seal)
            message.header.stamp = now
            self._knowledge.publish(message)
            self._knowledge_sent = (knowledge.version, len(knowledge.tasks))
        policy = (worker.policy_version, knowledge.version)
        if (trial := worker.trial) is not None and self._policy_sent != policy:
            self._policy.publish(self._policy_message(trial, policy, now))
            self._policy_sent = policy
        active = (worker.active, worker.mode, *policy)
        if active != self._active_sent:
            if active[:2] != self._active_sent[:2]:
                self._active_since = now
            self._active.publish(self._active_message(worker, policy, now))
            self._active_sent = active
        self._log_progress(worker)
        status = status_message(self.session, worker, self.config.run_id)
        status.stamp = now
        self._status.publish(status)
        self._goals.on_progress()

    def _policy_message(
        self, trial: tuple[str, TaskFactors], versions: tuple[int, int], now: Time
    ) -> TaskPolicy:
        task, factors = trial
        policy = graph.TaskPolicy(task, *versions, self.session.spec, factors)
        message = task_policy_to_msg(policy, self.config.run_id, self._seal)
        message.header.stamp = now
        return message

    def _active_message(
        self, worker: TrainingWorker, versions: tuple[int, int], now: Time
    ) -> ActiveTask:
        message = ActiveTask(
            run_id=self.config.run_id,
            task=worker.active,
            mode=worker.mode,
            policy_version=versions[0],
            knowledge_version=versions[1],
            since=self._active_since,
        )
        message.header.stamp = now
        return message

    def _log_progress(self, worker: TrainingWorker) -> None:
        """Log the progress of the task in training from time to time."""
        row = self.session.last_row
        if row is None or row['kind'] != 'iteration' or worker.mode != ActiveTask.TRAINING:
            return
        if row is self._logged:  # it is announced more than once
            return
        self._logged = row
        self.get_logger().info(
            f'{row["task"]}: iteration {row["iteration"] + 1}, return {row["return_mean"]:.1f}, '
            f'success {row["success"]:.0%}',
            throttle_duration_sec=LOG_PERIOD,
        )

    def _on_end(self) -> None:
        """End the process with the run: exit code 0 if done, 1 if failed."""
        worker = self.worker
        if worker is None or not worker.finished.is_set():
            return
        ends = worker.failed or (
            self.config.exit_when_done and self.config.autotrain and self.session.lifelong.complete
        )
        if not ends or self._goals.busy:
            self._ending = 0
        elif self._ending < RESULT_TURNS:  # deliver the results of goals first
            self._ending += 1
        elif worker.failed:
            self.get_logger().error(worker.failed)
            self.finish(1)
        else:
            self.get_logger().info('all tasks are learned')
            self.finish(0)


def main() -> None:
    """Run the node."""
    sys.exit(run([Learner]))


if __name__ == '__main__':
    main()
