"""Policies without a learner: the policy node serves those of a run folder or a policy file."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rclpy.action import ActionClient
from std_srvs.srv import Trigger

from lpgftw_interfaces.action import CollectRollouts
from lpgftw_interfaces.msg import ActiveTask, ErrorCode, PolicyContract, TaskState
from lpgftw_interfaces.srv import ListTasks, SwitchTask
from lpgftw_ros.graph.admission import RolloutKey
from lpgftw_ros.learning.policies import Knowledge, TaskFactors
from lpgftw_ros.nodes import qos
from lpgftw_ros.nodes.conversions import key_to_msg, refuse, Refused, unknown_task
from lpgftw_ros.nodes.lifecycle import LifelongNode, STEADY
from lpgftw_ros.runs.checkpoints import load_knowledge

CONTRACT_PERIOD = 0.5
"""Seconds between two messages of the contract; silence means that the policy is gone."""


def knowledge_from(path: Path) -> Knowledge:
    """Return the policies of a run folder or of one exported policy."""
    if path.is_dir():
        return load_knowledge(path)
    from lpgftw_ros.deploy.export import load_policy

    exported = load_policy(path)
    policy = exported.policy
    factors = TaskFactors(np.zeros(0), policy.theta, policy.head, policy.log_std)
    basis = np.zeros((policy.spec.n_parameters, 0))
    return Knowledge(1, policy.spec, basis, {exported.task: factors})


def contract_of(path: Path, run_id: str) -> PolicyContract:
    """Return the contract of an exported policy, for the safety guard."""
    from lpgftw_ros.deploy.export import load_policy

    return PolicyContract(run_id=run_id, **asdict(load_policy(path).contract))


class TaskServices:
    """Serves `switch_task`, `list_tasks` and `active_task` for finished policies."""

    def __init__(self, node: LifelongNode, path: Path) -> None:
        self.knowledge = knowledge_from(path)
        self._node = node
        self._active = next(iter(self.knowledge.tasks), '')
        self._publisher = node.create_publisher(ActiveTask, 'active_task', qos.LATCHED)
        self._services = (
            node.create_service(SwitchTask, 'switch_task', self._on_switch),
            node.create_service(ListTasks, 'list_tasks', self._on_list),
        )
        node.get_logger().info(f'{len(self.knowledge.tasks)} policies from {path}')
        self._contract = contract_of(path, node.config.run_id) if path.is_file() else None
        self._contracts = node.create_publisher(PolicyContract, 'policy_contract', qos.LATCHED)
        self._telling = node.create_timer(CONTRACT_PERIOD, self._tell_contract, clock=STEADY)
        self._tell_contract()
        self._announce()

    def close(self) -> None:
        """Close services and topic."""
        for service in self._services:
            self._node.destroy_service(service)
        self._node.destroy_publisher(self._publisher)
        self._node.destroy_publisher(self._contracts)
        self._node.destroy_timer(self._telling)

    def _tell_contract(self) -> None:
        if self._contract is not None:
            self._contract.header.stamp = self._node.get_clock().now().to_msg()
            self._contracts.publish(self._contract)

    def _announce(self) -> None:
        now = self._node.get_clock().now().to_msg()
        message = ActiveTask(
            run_id=self._node.config.run_id,
            task=self._active,
            mode=ActiveTask.ACTING,
            knowledge_version=self.knowledge.version,
            since=now,
        )
        message.header.stamp = now
        self._publisher.publish(message)

    def _on_switch(
        self, request: SwitchTask.Request, response: SwitchTask.Response
    ) -> SwitchTask.Response:
        response.previous, response.tasks = self._active, list(self.knowledge.tasks)
        if request.learn:
            text = 'there is no learner in this graph: learn must be false'
            return refuse(response, Refused(text, ErrorCode.NO_LEARNER))
        if request.task not in self.knowledge.tasks:
            return refuse(response, unknown_task(request.task, self.knowledge.tasks))
        self._active = request.task
        response.success, response.message = True, f'acting with {request.task}'
        self._announce()
        return response

    def _on_list(
        self, request: ListTasks.Request, response: ListTasks.Response
    ) -> ListTasks.Response:
        nan = float('nan')
        response.success, response.active = True, self._active
        response.message = f'{len(self.knowledge.tasks)} tasks with a policy'
        response.tasks = [
            TaskState(
                task=task,
                state=TaskState.FINISHED,
                has_policy=True,
                return_mean=nan,
                success=nan,
                return_start=nan,
                return_tune=nan,
                success_tune=nan,
                return_final=nan,
            )
            for task in self.knowledge.tasks
        ]
        return response


# Episodes back to back without a learner: the bridge's `run` and `stop`.


RETRY_PERIOD = 0.1  # s
EPISODES = 1 << 61  # rollout ids of episodes, apart from those of a learner
BUSY = (ActiveTask.TRAINING, ActiveTask.EVALUATING)


class EpisodeLoop:
    """Asks its own bridge for one episode of the active task after another."""

    def __init__(self, node: LifelongNode) -> None:
        self._node = node
        self._client = ActionClient(node, CollectRollouts, 'collect')
        self._active: ActiveTask | None = None
        self._subscription = node.create_subscription(
            ActiveTask, 'active_task', self._on_active, qos.LATCHED
        )
        self._handle: Any = None
        self._turn = 0
        """Grows with each `run` and `stop`; answers of an earlier turn are ignored."""
        self._wanted = False
        self._retry = node.create_timer(RETRY_PERIOD, self._again, clock=STEADY)
        self._retry.cancel()
        self.episodes = 0

    def close(self) -> None:
        """Stop and close the client."""
        self._wanted = False
        self._node.destroy_timer(self._retry)
        self._client.destroy()
        self._node.destroy_subscription(self._subscription)

    def _on_active(self, message: ActiveTask) -> None:
        if self._node.is_ours(message.run_id, 'active_task'):
            self._active = message

    def on_run(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        """Start to run episodes of the active task with its mean action."""
        active = self._active
        if not self._node.active:
            response.message = f'the bridge is {self._node.state}; activate it first'
        elif active is None or not active.task:
            response.message = 'no task is active; call switch_task first'
        elif active.mode in BUSY:
            response.message = f'{active.task} is in {active.mode}; pause it first'
        elif self._wanted:
            response.success, response.message = True, 'already running'
        else:
            self._wanted = response.success = True
            self._turn += 1
            response.message = f'running episodes of {active.task}'
            self._next(self._turn)
        return response

    def on_stop(self, request: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        """Stop, cancelling the running episode."""
        response.success = True
        response.message = f'stopped after {self.episodes} episodes' if self._wanted else 'idle'
        self._wanted = False
        self._turn += 1
        if self._handle is not None:
            self._handle.cancel_goal_async()
        return response

    def _again(self) -> None:
        self._retry.cancel()
        self._next(self._turn)

    def _next(self, turn: int) -> None:
        if not self._wanted or turn != self._turn or self._active is None:
            return
        if self._active.mode in BUSY:
            self._end(turn, f'episodes stopped: {self._active.task} is in {self._active.mode}')
            return
        if not self._client.server_is_ready():  # it is our own, but discovery takes a moment
            self._retry.reset()
            return
        active, number = self._active, self.episodes + 1
        key = RolloutKey(
            run_id=active.run_id,
            task=active.task,
            rollout=EPISODES | number,
            seed=self.episodes,
            explore=False,
            policy_version=active.policy_version,
        )
        goal = CollectRollouts.Goal(key=key_to_msg(key), n_trajectories=1)
        sent = self._client.send_goal_async(goal)
        sent.add_done_callback(lambda future: self._on_accepted(future, turn))

    def _on_accepted(self, future: Any, turn: int) -> None:
        handle = future.result()
        if not handle.accepted:
            self._end(turn, 'the bridge refused an episode')
            return
        self._handle = handle
        if turn != self._turn:
            handle.cancel_goal_async()
        handle.get_result_async().add_done_callback(lambda done: self._on_result(done, turn))

    def _on_result(self, future: Any, turn: int) -> None:
        result = future.result().result
        if not result.success:
            self._end(turn, f'episodes stopped: {result.message}')
            return
        self.episodes += 1
        self._node.get_logger().info(
            f'episode {self.episodes}: return {result.return_mean:.1f}, '
            f'success {result.success_rate:.0%}'
        )
        self._next(turn)

    def _end(self, turn: int, why: str) -> None:
        if turn == self._turn:
            self._wanted, self._handle = False, None
            self._node.get_logger().warning(why)
