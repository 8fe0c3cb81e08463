"""`policy`: answer observations with actions of the task they ask for.

Policies arrive on the executor; a thread of its own answers observations.
"""

from pathlib import Path
import sys
import threading
import time

import numpy as np

from lpgftw_interfaces.msg import Actions, Knowledge, Observations, TaskPolicy
from lpgftw_ros.errors import LpgftwError
from lpgftw_ros.graph.admission import (
    Foreign,
    MOST_TRAJECTORIES,
    require_count,
    require_text,
    Seal,
)
from lpgftw_ros.graph.parameters import PolicyParameters
from lpgftw_ros.graph.policy_server import NotYet, PARTS, PolicyServer, Query
from lpgftw_ros.nodes import qos
from lpgftw_ros.nodes.conversions import (
    from_field,
    key_from_msg,
    knowledge_from_msg,
    task_policy_from_msg,
    to_field,
)
from lpgftw_ros.nodes.lifecycle import LifelongNode, OK, RECENT, STALE, WARN
from lpgftw_ros.nodes.process import run
from lpgftw_ros.nodes.rollout_client import Mailbox
from lpgftw_ros.nodes.serving import TaskServices

IDLE_PERIOD = 0.5  # s between two checks whether the node should end
NOTHING = np.zeros((0, 0))


class Policy(LifelongNode):
    """Composes theta = L s for the requested task and acts with it."""

    config: PolicyParameters

    def __init__(self) -> None:
        super().__init__('policy')
        self.server, self._seal = PolicyServer(), Seal()
        self.server.active = False
        self.colocated = False
        """True where the bridge of the same process calls `server` itself."""
        self._waiting: dict[int, Observations] = {}
        """Questions without an answer yet, by their first trajectory: of one rollout only."""
        self._waiting_since = 0.0
        self._task_services: TaskServices | None = None
        self._answers = self._refused = 0
        self._refusal, self._refusal_time = '', -RECENT
        self._missing = ''
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def configure(self) -> None:
        """Open topics; with a run folder or policy file also load it and serve its tasks."""
        if self.config.policy_from:
            self._task_services = TaskServices(self, Path(self.config.policy_from))
            self.server.set_knowledge(self._task_services.knowledge)
        how = qos.LATCHED_AMONG_STRANGERS
        self._knowledge = (
            self.create_subscription(Knowledge, 'knowledge', self._on_knowledge, how),
            self.create_subscription(TaskPolicy, 'task_policy', self._on_training, how),
        )
        self._actions = self.create_publisher(Actions, 'actions', qos.QUESTIONS)
        if not self.colocated:
            self._observations = Mailbox(self, Observations, 'observations', qos.QUESTIONS)
            self._closing.clear()
            self._thread = threading.Thread(target=self._serve, daemon=True, name='answers')
            self._thread.start()

    def activate(self) -> None:
        """Begin to answer."""
        self.server.active = True
        self._look_again()

    def deactivate(self) -> None:
        """Let requests wait."""
        self.server.active = False

    def cleanup(self) -> None:
        """Close topics."""
        if self._thread is not None:
            self._closing.set()
            self._observations.wake()
            self._thread.join(2.0)
            self._observations.close()
            self._thread = None
        if hasattr(self, '_actions'):
            for subscription in self._knowledge:
                self.destroy_subscription(subscription)
            self.destroy_publisher(self._actions)
            del self._actions
        if self._task_services is not None:
            self._task_services.close()
            self._task_services = None

    def health(self) -> tuple[int, str, dict[str, object]]:
        """Return whether the requested policies are here."""
        knowledge, now = self.server.knowledge, time.monotonic()
        values: dict[str, object] = {
            'answers': self._answers,
            'refused': self._refused,
            'knowledge_version': 0 if knowledge is None else knowledge.version,
            'tasks': 0 if knowledge is None else len(knowledge.tasks),
        }
        if self._waiting and now - self._waiting_since > self.config.patience:
            level = WARN if knowledge is None else STALE
            return level, f'waiting for the learner: {self._missing}', values
        if now - self._refusal_time < RECENT:
            return WARN, self._refusal, values
        return OK, 'no knowledge yet' if knowledge is None else 'ready', values

    def _on_knowledge(self, message: Knowledge) -> None:
        if not self.is_ours(message.run_id, 'knowledge'):
            return
        try:
            self.server.set_knowledge(knowledge_from_msg(message, self._seal))
        except Foreign as error:
            self.note_foreign('knowledge', str(error))
        except LpgftwError as error:
            self._refuse(f'knowledge dropped: {error}')
        else:
            self._look_again()

    def _on_training(self, message: TaskPolicy) -> None:
        if not self.is_ours(message.run_id, 'task_policy'):
            return
        try:
            self.server.set_training(task_policy_from_msg(message, self._seal))
        except Foreign as error:
            self.note_foreign('task_policy', str(error))
        except LpgftwError as error:
            self._refuse(f'task policy dropped: {error}')
        else:
            self._look_again()

    def _look_again(self) -> None:
        """Wake the thread, so that it sees new policies."""
        if self._thread is not None:
            self._observations.wake()

    def _refuse(self, problem: str) -> None:
        self._refused += 1
        self._refusal, self._refusal_time = problem, time.monotonic()
        self.get_logger().warning(problem, throttle_duration_sec=5.0)

    # -- the thread ----------------------------------------------------------------------

    def _serve(self) -> None:
        try:
            self._answer_observations()
        except Exception as error:
            self.get_logger().error(f'{type(error).__name__}: {error}')
            self.finish(1)

    def _answer_observations(self) -> None:
        """Answer the newest observations; wait if their policy is on its way."""
        answer = Actions()
        while not self._closing.is_set():
            message = self._observations.take(IDLE_PERIOD)
            if message is not None and self.is_ours(message.key.run_id, 'observations'):
                self._wait_for(message)
            for question in list(self._waiting.values()):
                self._answer(question, answer)

    def _wait_for(self, message: Observations) -> None:
        """Note a question; it replaces those of another rollout and its own older one."""
        if any(other.key != message.key for other in self._waiting.values()):
            self._waiting.clear()
        if not self._waiting:  # the same question may come again
            self._waiting_since = time.monotonic()
        self._waiting[message.first] = message
        if len(self._waiting) > PARTS:
            del self._waiting[next(iter(self._waiting))]

    def _answer(self, message: Observations, answer: Actions) -> None:
        try:
            actions = self.server.act(_query(message))
        except NotYet as reason:
            self._missing = str(reason)
            if time.monotonic() - self._waiting_since > self.config.patience:
                self.get_logger().warning(f'waiting: {reason}', throttle_duration_sec=5.0)
            return
        except LpgftwError as error:
            self._refuse(f'observation refused: {error}')
            actions, answer.refusal = NOTHING, str(error)
        else:
            answer.refusal = ''
            self._answers += 1
        del self._waiting[message.first]
        answer.key, answer.step, answer.first = message.key, message.step, message.first
        stamp = answer.header.stamp
        stamp.sec, stamp.nanosec = divmod(self.get_clock().now().nanoseconds, 1_000_000_000)
        answer.n, answer.dim = actions.shape
        answer.data = to_field(actions)
        self._actions.publish(answer)


def _query(message: Observations) -> Query:
    require_text('task', message.key.task)
    require_count('first and n', message.first + message.n, MOST_TRAJECTORIES, least=1)
    return Query(
        key=key_from_msg(message.key),
        first=message.first,
        step=message.step,
        observations=from_field('observations', message.data, (message.n, message.dim)),
    )


def main() -> None:
    """Run the node."""
    sys.exit(run([Policy]))


if __name__ == '__main__':
    main()
