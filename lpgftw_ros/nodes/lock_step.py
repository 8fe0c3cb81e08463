"""The bridge's side of the lock-step: publish observations, wait for their actions.

A rollout may have two parts that are stepped in turns: while one is stepped, the other's
observations are with the policy. Each part is in lock-step for itself.
"""

from collections.abc import Callable, Sequence
import math
import threading
import time
from typing import Any

import numpy as np
from rclpy.task import Future

from lpgftw_interfaces.action import CollectRollouts
from lpgftw_interfaces.msg import Actions, ErrorCode, Observations, Trajectories
from lpgftw_ros.domains.rollout import batch_of, Rollout
from lpgftw_ros.errors import LpgftwError
from lpgftw_ros.graph.admission import RolloutGoal, RolloutKey
from lpgftw_ros.graph.parameters import BridgeParameters
from lpgftw_ros.learning.arrays import Array, Batch
from lpgftw_ros.nodes import qos
from lpgftw_ros.nodes.conversions import (
    batch_to_msg,
    from_field,
    key_from_msg,
    key_to_msg,
    to_field,
    to_mask,
)
from lpgftw_ros.nodes.lifecycle import LifelongNode, RECENT
from lpgftw_ros.nodes.rollout_client import Mailbox

NO_ANSWER: Array = np.zeros((0, 0))
"""Stands for an answer that has not come."""

# A running `collect` goal, and its messages.


class RunningRollout:
    """What is known about a goal until its result is sent."""

    def __init__(self, goal: RolloutGoal, handle: Any, future: Future) -> None:
        self.goal, self.handle, self.future = goal, handle, future
        self.key = goal.key
        self.parts: Sequence[Rollout] = ()
        """The rollout, maybe split; empty until the worker has built the environments."""
        self.stopped = threading.Event()
        self.retry = True
        """Whether the same goal may succeed later."""
        self.error_code = ErrorCode.LOST
        """Why it ends, if it ends early."""
        self.started = self.last_progress = self.due = time.monotonic()
        self.asked = math.inf
        """When the awaited answer was requested."""
        self.shown = 0.0
        self.physics = ''
        """Fingerprint of the task's physics, if known."""
        self.step_seconds = self.wait_seconds = 0.0
        self.dropped = 0
        self.now: Callable[[], int] = time.time_ns
        """Time of what is published, on the bridge's clock, ns."""

    @property
    def rollout(self) -> Rollout:
        """The part that is monitored."""
        return self.parts[0]

    def batch(self) -> Batch:
        """Return all trajectories of a rollout that has ended."""
        return batch_of(self.parts)

    def end(self, problem: str = '') -> None:
        """Let the goal's callback continue, with a problem or without."""
        self.stopped.set()
        if not self.future.done():
            self.future.set_result(problem)

    def trajectories(self, batch: Batch) -> Trajectories:
        """Return the finished batch as a message."""
        message = self.stamp(batch_to_msg(batch))
        message.key, message.physics = key_to_msg(self.key), self.physics
        message.step_seconds, message.wait_seconds = self.step_seconds, self.wait_seconds
        message.dropped_actions = self.dropped
        return message

    def stamp(self, message: Any) -> Any:
        """Stamp a message with the current time and return it."""
        stamp = message.header.stamp
        stamp.sec, stamp.nanosec = divmod(self.now(), 1_000_000_000)
        return message

    def feedback(self) -> CollectRollouts.Feedback:
        """Return the progress of the rollout."""
        if not self.parts:  # the environments are still being built
            return CollectRollouts.Feedback()
        return CollectRollouts.Feedback(
            step=self.rollout.step,
            first=self.rollout.first,
            alive=sum(part.n_alive for part in self.parts),
            trajectories_done=sum(part.n_done for part in self.parts),
        )

    def result(self, batch: Batch) -> CollectRollouts.Result:
        """Return the result of a whole batch."""
        return CollectRollouts.Result(
            success=True,
            message=f'{batch.n_trajectories} trajectories, {batch.n_steps} steps',
            n_trajectories=batch.n_trajectories,
            n_steps=batch.n_steps,
            return_mean=float(np.mean(batch.returns)),
            success_rate=float(np.mean(batch.success)),
            seconds=time.monotonic() - self.started,
            dropped_actions=self.dropped,
        )


class Question:
    """What one part of a rollout sees, and the answer to it. One message serves all steps."""

    def __init__(self, running: RunningRollout, rollout: Rollout) -> None:
        self.rollout = rollout
        self.answer: Array = NO_ANSWER
        self.asked = self.sent = math.inf
        self._running, self._key = running, key_to_msg(running.key)
        self._alive: object = None
        self._message = Observations(
            key=self._key, n=rollout.rows, dim=rollout.observations.shape[1]
        )

    @property
    def place(self) -> tuple[RolloutKey, int, int]:
        """What an answer has to echo."""
        return self._running.key, self.rollout.step, self.rollout.first

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and numbers of an answer."""
        return self.rollout.rows, self.rollout.env.act_dim

    def observations(self) -> Observations:
        """Return the message of the current step."""
        rollout, message = self.rollout, self._running.stamp(self._message)
        message.step, message.first = rollout.step, rollout.first
        message.data = to_field(rollout.observations)
        if rollout.alive is not self._alive:
            self._alive = rollout.alive
            message.alive = to_mask(rollout.alive)
        return message

    def actions(self, actions: Array) -> Actions:
        """Return what a co-located policy did as the message it would have sent."""
        rollout = self.rollout
        message = Actions(
            key=self._key,
            step=rollout.step,
            first=rollout.first,
            n=rollout.rows,
            dim=actions.shape[1],
            data=to_field(actions),
        )
        return self._running.stamp(message)


class GivenUp(LpgftwError):
    """The rollout ended early; the same one may succeed later."""


class LockStep:
    """Asks the policy node for the actions of one step after another."""

    def __init__(self, node: LifelongNode, config: BridgeParameters) -> None:
        self._node, self._config = node, config
        self._observations = node.create_publisher(Observations, 'observations', qos.QUESTIONS)
        self._echo = node.create_publisher(Actions, 'actions', qos.QUESTIONS)
        self._actions = Mailbox(node, Actions, 'actions', qos.QUESTIONS)
        self._questions: dict[int, Question] = {}
        self.dropped = 0
        self._drop_time, self._drop_reason = -RECENT, ''

    @property
    def trouble(self) -> str:
        """What was dropped in the last seconds, in words; empty if nothing."""
        if time.monotonic() - self._drop_time > RECENT:
            return ''
        return f'dropped {self.dropped} answers, the last: {self._drop_reason}'

    def begin(self, running: RunningRollout) -> None:
        """Forget what came before this rollout."""
        self._questions = {id(part): Question(running, part) for part in running.parts}
        while self._actions.take(0.0) is not None:
            self._drop(running, 'an answer nobody waits for')

    def post(self, running: RunningRollout, rollout: Rollout) -> None:
        """Publish what a part sees, without waiting for the answer."""
        question = self._questions[id(rollout)]
        question.answer, question.asked = NO_ANSWER, time.monotonic()
        self._send(question)
        running.asked = min(running.asked, question.asked)

    def _send(self, question: Question) -> None:
        question.sent = time.monotonic()
        self._observations.publish(question.observations())

    def ask(
        self, running: RunningRollout, rollout: Rollout, meanwhile: Callable[[], None]
    ) -> Array:
        """Return the answer to what a part sees; publish it first, again and again if needed.

        `meanwhile` is called when it was published here, while the policy node is at it: what
        others see then costs no step.
        """
        question, patience = self._questions[id(rollout)], self._config.action_timeout
        if math.isinf(question.asked):
            self.post(running, rollout)
            meanwhile()
        began = time.monotonic()
        while question.answer is NO_ANSWER:
            if running.stopped.is_set():
                raise GivenUp('stopped')
            message = self._actions.take(min(self._config.resend_period, patience))
            if message is not None:
                self._note(running, message)
            if question.answer is not NO_ANSWER:
                break
            now = time.monotonic()
            if now - question.asked > patience:
                raise GivenUp(f'no answer from the policy node within {patience:g} s')
            if now - question.sent >= self._config.resend_period:
                self._send(question)
        running.wait_seconds += time.monotonic() - began
        question.asked = math.inf
        running.asked = min(other.asked for other in self._questions.values())
        return question.answer

    def show(self, running: RunningRollout, actions: Array) -> None:
        """Publish a step for monitoring, without waiting for an answer."""
        question = Question(running, running.rollout)
        self._observations.publish(question.observations())
        self._echo.publish(question.actions(actions))

    def wake(self) -> None:
        """Wake a waiting `ask`, so that it sees a stopped rollout."""
        self._actions.wake()

    def close(self) -> None:
        """Close the topics; no `ask` may be waiting."""
        self._actions.close()
        for publisher in (self._observations, self._echo):
            self._node.destroy_publisher(publisher)

    def _note(self, running: RunningRollout, message: Actions) -> None:
        """Keep the answer to an open question, drop any other message.

        A refusal raises: asking again would not help.
        """
        if not self._node.is_ours(message.key.run_id, 'actions'):
            self._drop(running, 'an answer of another graph')
            return
        echo = (key_from_msg(message.key), message.step, message.first)
        for question in self._questions.values():
            if question.place == echo and math.isfinite(question.asked):
                break
        else:
            self._drop(running, 'an answer to another rollout or step')
            return
        if message.refusal:
            raise LpgftwError(f'the policy node refuses: {message.refusal}')
        try:
            question.answer = from_field('actions', message.data, question.shape)
        except LpgftwError as error:
            self._drop(running, str(error))

    def _drop(self, running: RunningRollout, why: str) -> None:
        running.dropped += 1
        self.dropped += 1
        self._drop_time, self._drop_reason = time.monotonic(), why
        self._node.get_logger().warning(f'dropped: {why}', throttle_duration_sec=5.0)
