"""Tasks without a learner: the policy node serves those of a run folder or a policy file."""

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import numpy as np

from lpgftw_interfaces.msg import ActiveTask, PolicyContract, TaskState
from lpgftw_interfaces.srv import ListTasks, SwitchTask
from lpgftw_ros.learning.policies import Knowledge, TaskFactors
from lpgftw_ros.nodes import qos
from lpgftw_ros.nodes.lifecycle import LifelongNode, STEADY
from lpgftw_ros.runs.knowledge_files import load_knowledge

CONTRACT_PERIOD = 0.5
"""Seconds between two tellings of the contract: silence means that the policy is gone."""


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


def contract_of(path: Path) -> PolicyContract:
    """Return what an exported policy was made for, as the safety guard wants to hear it."""
    from lpgftw_ros.deploy.export import load_policy

    return PolicyContract(**asdict(load_policy(path).contract))


class TaskDesk:
    """Serves `switch_task`, `list_tasks` and `active_task` for policies that are there."""

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
        self._contract = contract_of(path) if path.is_file() else None
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
            self._contracts.publish(self._contract)

    def _announce(self) -> None:
        self._publisher.publish(
            ActiveTask(
                task=self._active,
                mode=ActiveTask.ACTING,
                knowledge_version=self.knowledge.version,
                since=self._node.get_clock().now().to_msg(),
            )
        )

    def _on_switch(
        self, request: SwitchTask.Request, response: SwitchTask.Response
    ) -> SwitchTask.Response:
        response.previous, response.tasks = self._active, list(self.knowledge.tasks)
        if request.learn:
            response.message = 'there is no learner in this graph: learn must be false'
        elif request.task not in self.knowledge.tasks:
            response.message = unknown_task(request.task, self.knowledge.tasks)
        else:
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
                return_final=nan,
            )
            for task in self.knowledge.tasks
        ]
        return response


def unknown_task(task: str, known: Iterable[str]) -> str:
    """Return the one line that answers a wrong task name."""
    return f"no task '{task}'; there are: {', '.join(known)}"
