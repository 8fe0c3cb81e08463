"""The bridge's half of the lock-step: publish observations, wait for their actions."""

import math
import time

from lpgftw_interfaces.msg import Actions, Observations
from lpgftw_ros.errors import LpgftwError
from lpgftw_ros.learning.arrays import Array
from lpgftw_ros.nodes import qos
from lpgftw_ros.nodes.conversions import from_field
from lpgftw_ros.nodes.lifecycle import LifelongNode
from lpgftw_ros.nodes.mailbox import Mailbox
from lpgftw_ros.nodes.parameters import BridgeConfig
from lpgftw_ros.nodes.running_rollout import RunningRollout

RECENT = 10.0  # s a dropped message stays a warning


class GivenUp(LpgftwError):
    """The rollout ended early; the same one may succeed later."""


class LockStep:
    """Asks the policy node for the actions of one step after another."""

    def __init__(self, node: LifelongNode, config: BridgeConfig) -> None:
        self._node, self._config = node, config
        self._observations = node.create_publisher(Observations, 'observations', qos.LOCK_STEP)
        self._echo = node.create_publisher(Actions, 'actions', qos.LOCK_STEP)
        self._actions = Mailbox(node, Actions, 'actions', qos.LOCK_STEP)
        self.dropped = 0
        self._drop_time, self._drop_reason = -RECENT, ''

    @property
    def trouble(self) -> str:
        """What was dropped in the last seconds; empty if nothing."""
        if time.monotonic() - self._drop_time > RECENT:
            return ''
        return f'dropped {self.dropped} answers, the last: {self._drop_reason}'

    def begin(self, running: RunningRollout) -> None:
        """Forget what came before this rollout."""
        if self._actions.take(0.0) is not None:
            self._drop(running, 'an answer nobody waits for')

    def ask(self, running: RunningRollout, shape: tuple[int, int]) -> Array:
        """Publish the observations, again if need be, until their answer comes."""
        resend, patience = self._config.resend_period, self._config.action_timeout
        running.asked = sent = time.monotonic()
        self._observations.publish(running.observations())
        while not running.stopped.is_set():
            message = self._actions.take(min(resend, patience))
            now = time.monotonic()
            if message is not None:
                actions = self._accepted(running, message, shape)
                if actions is not None:
                    running.wait_seconds += now - running.asked
                    running.asked = math.inf
                    return actions
            if now - running.asked > patience:
                raise GivenUp(f'no answer from the policy node within {patience:g} s')
            if now - sent >= resend:
                self._observations.publish(running.observations())
                sent = now
        raise GivenUp('stopped')

    def show(self, running: RunningRollout, actions: Array) -> None:
        """Publish a step that nobody has to answer, for people to watch."""
        self._observations.publish(running.observations())
        self._echo.publish(running.actions(actions))

    def wake(self) -> None:
        """Let a waiting `ask` look whether its rollout was stopped."""
        self._actions.wake()

    def close(self) -> None:
        """Close the topics; nobody may be asking any more."""
        self._actions.close()
        for publisher in (self._observations, self._echo):
            self._node.destroy_publisher(publisher)

    def _accepted(
        self, running: RunningRollout, message: Actions, shape: tuple[int, int]
    ) -> Array | None:
        """Return the actions of an answer to the present step, None for any other message.

        A refusal raises: asking again would not help.
        """
        rollout = running.rollout
        echo = (message.rollout_id, message.step, message.first)
        if echo != (running.goal.rollout_id, rollout.step, rollout.first):
            self._drop(running, 'an answer to another rollout or step')
            return None
        if message.refusal:
            raise LpgftwError(f'the policy node refuses: {message.refusal}')
        try:
            return from_field('actions', message.data, shape)
        except LpgftwError as error:
            self._drop(running, str(error))
            return None

    def _drop(self, running: RunningRollout, why: str) -> None:
        running.dropped += 1
        self.dropped += 1
        self._drop_time, self._drop_reason = time.monotonic(), why
        self._node.get_logger().warning(f'dropped: {why}', throttle_duration_sec=5.0)
