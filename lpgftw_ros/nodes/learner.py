"""`learner`: own the learner and the run folder."""

from collections.abc import Callable
from pathlib import Path
import sys

from lpgftw_interfaces.msg import ActiveTask, KnowledgeBase, LearningStatus, TaskPolicy
from lpgftw_ros.domains.suites import load_suite, Suite
from lpgftw_ros.learning.batch import Batch
from lpgftw_ros.learning.policies import PolicySpec
from lpgftw_ros.nodes import qos
from lpgftw_ros.nodes.conversions import factors_to_msg, knowledge_to_msg, spec_to_msg
from lpgftw_ros.nodes.learner_actions import LearnerActions
from lpgftw_ros.nodes.learner_services import LearnerServices
from lpgftw_ros.nodes.lifecycle import ERROR, LifelongNode, OK, STEADY, WARN
from lpgftw_ros.nodes.parameters import LearnerConfig
from lpgftw_ros.nodes.process import run
from lpgftw_ros.nodes.rollout_client import RolloutClient
from lpgftw_ros.nodes.run_settings import run_settings
from lpgftw_ros.nodes.status import status_message
from lpgftw_ros.nodes.training_worker import RolloutGoal, TrainingWorker
from lpgftw_ros.runs.config import RunConfig
from lpgftw_ros.runs.driver import source_policies
from lpgftw_ros.runs.environment import limit_threads
from lpgftw_ros.runs.session import Session

LOST = 10.0  # s without a rollout until this is an error
LOG_PERIOD = 5.0  # s between lines about the progress


class Learner(LifelongNode):
    """Feeds rollouts to the session and publishes what it learned."""

    config: LearnerConfig

    def __init__(self) -> None:
        super().__init__('learner')
        self._knowledge_sent = self._policy_sent = (-1, -1)
        self._active_sent = ('', '', 0, 0)
        self.worker: TrainingWorker | None = None

    def configure(self) -> None:
        """Open the run folder, or take up the run that was interrupted."""
        config, out = run_settings(self.config)
        limit_threads(config.loop.threads)
        suite = load_suite(config.suite)
        self.session, own = self._open(config, out, suite)
        self.worker = TrainingWorker(self.session, self)
        if not self.config.autotrain:
            self._wait_to_be_asked(self.worker, own)
        self._knowledge = self.create_publisher(KnowledgeBase, 'knowledge_base', qos.LATCHED)
        self._policy = self.create_publisher(TaskPolicy, 'task_policy', qos.LATCHED)
        self._active = self.create_publisher(ActiveTask, 'active_task', qos.LATCHED)
        self._status = self.create_publisher(LearningStatus, 'status', qos.LATCHED)
        self._rollouts = RolloutClient(self, lambda: self.worker is None or self.worker.closing)
        self._desk = LearnerServices(self, self.worker, suite)
        self._goals = LearnerActions(self, self.worker, suite)
        self._end, self._told = self.create_timer(0.2, self._on_end, clock=STEADY), False

    def _open(self, config: RunConfig, out: Path, suite: Suite) -> tuple[Session, bool]:
        """Return the session, and whether this very graph began it and goes on after a crash."""
        spec = PolicySpec(*suite.task(config.tasks[0]).dimensions, config.hidden)
        source = source_policies(config, Path(self.config.source) if self.config.source else None)
        own = self._own_run(out)
        resume = self.config.resume or own
        session = Session(config, out, spec=spec, resume=resume, source=source)
        session.folder.write_json('run_id.json', {'run_id': self.config.run_id})
        how = 'resumed' if session.resumed else 'new run'
        self.get_logger().info(f'{how}: {config.learner} on {config.suite} in {out}')
        return session, own

    def _wait_to_be_asked(self, worker: TrainingWorker, own: bool) -> None:
        """Begin nothing before somebody asks; after a crash go on with what was asked for."""
        lifelong = self.session.lifelong
        if not self.session.resumed:
            lifelong.queue.clear()
        elif not own and not lifelong.done:
            worker.pause(True)
            self.get_logger().info('paused: call resume or train_task to go on')

    def activate(self) -> None:
        """Begin to learn."""
        assert self.worker is not None
        self.worker.start()

    def deactivate(self) -> None:
        """Stop after what is running; everything finished is on disk."""
        if self.worker is not None:
            self.worker.close()

    def cleanup(self) -> None:
        """Release the run folder."""
        if self.worker is None:
            return
        self.worker.close(timeout=None)  # whoever opens the folder next must be alone in it
        self._desk.close()
        self._goals.close()
        self._rollouts.close()
        self.destroy_timer(self._end)
        self.session.folder.close()
        for publisher in (self._knowledge, self._policy, self._active, self._status):
            self.destroy_publisher(publisher)
        self.worker = None

    def _own_run(self, out: Path) -> bool:
        """Return whether the folder was made by this very run before a crash."""
        marker = out / 'run_id.json'
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

    def collect(self, goal: RolloutGoal, beside: Callable[[], None]) -> Batch:
        """Ask the bridge for a rollout and wait for it."""
        batch = self._rollouts.collect(goal, beside)
        if physics := self._rollouts.physics[goal.task]:
            self.session.note_physics(goal.task, physics)
        return batch

    def announce(self, worker: TrainingWorker) -> None:
        """Publish what changed since the last time."""
        learner, now = self.session.learner, self.get_clock().now().to_msg()
        knowledge = worker.knowledge = learner.knowledge()
        if self._knowledge_sent != (knowledge.version, len(knowledge.tasks)):
            self._knowledge.publish(knowledge_to_msg(knowledge, self.config.run_id))
            self._knowledge_sent = (knowledge.version, len(knowledge.tasks))
        policy = (worker.policy_version, knowledge.version)
        if learner.running is not None and self._policy_sent != policy:
            self._policy.publish(
                TaskPolicy(
                    run_id=self.config.run_id,
                    version=worker.policy_version,
                    knowledge_version=knowledge.version,
                    spec=spec_to_msg(self.session.spec),
                    factors=factors_to_msg(learner.running, learner.factors()),
                )
            )
            self._policy_sent = policy
        active = (worker.active, worker.mode, worker.policy_version, knowledge.version)
        if active[:2] != self._active_sent[:2] or active[3] != self._active_sent[3]:
            self._active.publish(
                ActiveTask(
                    task=worker.active,
                    mode=worker.mode,
                    policy_version=worker.policy_version,
                    knowledge_version=knowledge.version,
                    since=now,
                )
            )
            self._active_sent = active
        self._log_progress(worker)
        status = status_message(self.session, worker, self.config.run_id)
        status.stamp = now
        self._status.publish(status)
        self._goals.on_progress()

    def _log_progress(self, worker: TrainingWorker) -> None:
        """Tell whoever reads the log, now and then, how the task in training goes."""
        row = self.session.last_row
        if row is None or row['kind'] != 'iteration' or worker.mode != ActiveTask.TRAINING:
            return
        self.get_logger().info(
            f'{row["task"]}: iteration {row["iteration"] + 1}, return {row["return_mean"]:.1f}, '
            f'success {row["success"]:.0%}',
            throttle_duration_sec=LOG_PERIOD,
        )

    def _on_end(self) -> None:
        """End the process when the run has: done with 0, failed with 1."""
        worker = self.worker
        if worker is None or not worker.finished.is_set():
            return
        if worker.failed and not self._told:  # whoever asked hears it first
            self._told = not self._goals.busy
        elif worker.failed:
            self.get_logger().error(worker.failed)
            self.finish(1)
        elif self.config.exit_when_done and self.config.autotrain:
            self.get_logger().info('all tasks are learned')
            self.finish(0)


def main() -> None:
    """Run the node."""
    sys.exit(run([Learner]))


if __name__ == '__main__':
    main()
