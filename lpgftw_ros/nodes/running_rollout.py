"""One `collect` goal in work, and the messages it is told in."""

from collections.abc import Sequence
import math
import threading
import time
from typing import Any

import numpy as np
from rclpy.task import Future

from lpgftw_interfaces.action import CollectRollouts
from lpgftw_interfaces.msg import Actions, Observations, Trajectories
from lpgftw_ros.domains.rollout import batch_of, Rollout
from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.learning.batch import Batch
from lpgftw_ros.nodes.conversions import batch_to_msg, to_field, to_mask


class RunningRollout:
    """What is known about a goal until its result is sent."""

    def __init__(self, goal: Any, handle: Any, future: Future) -> None:
        self.goal, self.handle, self.future = goal, handle, future
        self.parts: Sequence[Rollout] = ()
        """The rollout, maybe split; empty until the worker has built the environments."""
        self.stopped = threading.Event()
        self.retry = True
        """Whether the same goal may succeed later."""
        self.started = self.last_progress = self.due = time.monotonic()
        self.asked = math.inf
        """When the answer that is waited for was asked for."""
        self.shown = 0.0
        self.physics = ''
        """Fingerprint of the task's physics, where there is one."""
        self.step_seconds = self.wait_seconds = 0.0
        self.dropped = 0
        self._message: Observations | None = None
        self._alive: object = None

    @property
    def rollout(self) -> Rollout:
        """The part that people watch; the only one where the policy is asked by messages."""
        return self.parts[0]

    def batch(self) -> Batch:
        """Return all trajectories of a rollout that has ended."""
        return batch_of(self.parts)

    def end(self, problem: str = '') -> None:
        """Let the goal's callback go on, with a problem or without."""
        self.stopped.set()
        if not self.future.done():
            self.future.set_result(problem)

    def observations(self) -> Observations:
        """Return the message of the present step; one message serves the whole rollout."""
        rollout = self.rollout
        message = self._message = self._message or self._first_message()
        seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
        message.stamp.sec, message.stamp.nanosec = seconds, nanoseconds
        message.step, message.first = rollout.step, rollout.first
        message.data = to_field(rollout.observations)
        if rollout.alive is not self._alive:
            self._alive = rollout.alive
            message.alive = to_mask(rollout.alive)
        return message

    def _first_message(self) -> Observations:
        goal, rollout = self.goal, self.rollout
        return Observations(
            task=goal.task,
            rollout_id=goal.rollout_id,
            policy_version=goal.policy_version,
            knowledge_version=goal.knowledge_version,
            seed=goal.seed,
            explore=goal.explore,
            n=rollout.rows,
            dim=rollout.observations.shape[1],
        )

    def actions(self, actions: Array) -> Actions:
        """Return what a co-located policy did as the message it would have sent."""
        goal, rollout = self.goal, self.rollout
        return Actions(
            task=goal.task,
            rollout_id=goal.rollout_id,
            step=rollout.step,
            first=rollout.first,
            policy_version=goal.policy_version,
            knowledge_version=goal.knowledge_version,
            n=rollout.rows,
            dim=actions.shape[1],
            data=to_field(actions),
        )

    def trajectories(self, batch: Batch) -> Trajectories:
        """Return the finished batch as a message."""
        goal, message = self.goal, batch_to_msg(batch)
        message.physics = self.physics
        for name in ('rollout_id', 'seed', 'explore', 'policy_version', 'knowledge_version'):
            setattr(message, name, getattr(goal, name))
        message.step_seconds, message.wait_seconds = self.step_seconds, self.wait_seconds
        message.dropped_actions = self.dropped
        return message

    def feedback(self) -> CollectRollouts.Feedback:
        """Return how far the rollout is."""
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
