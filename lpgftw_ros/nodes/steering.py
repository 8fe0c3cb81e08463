"""Steering a running graph: the calls behind the page's buttons and `lpgftw ctl`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
import inspect
import math
import os
import threading
import time
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
import rclpy
from rclpy.action import ActionClient
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions
from std_msgs.msg import Float64
from std_srvs.srv import Trigger

from lpgftw_interfaces.action import EvaluateTask
from lpgftw_interfaces.msg import LearningStatus
from lpgftw_interfaces.srv import ListTasks, SwitchTask
from lpgftw_ros.dashboard import Answer
from lpgftw_ros.errors import LpgftwError
from lpgftw_ros.nodes import qos

LEARNING = ('switch', 'learn', 'evaluate', 'pause', 'resume', 'stop')
"""Commands for a graph that learns."""
ARM = ('pause', 'stop', 'emergency_stop')
"""Commands a browser may give where there is an arm: none of them starts a motion."""
PATIENCE = 10.0  # s for an answer of a service
EVALUATION_PATIENCE = 600.0  # s for the result of an evaluation
_TRIGGERS = {
    'pause': 'pause',
    'resume': 'resume',
    'stop': 'stop',
    'emergency_stop': 'safety_guard/emergency_stop',
}


class NoAnswer(LpgftwError):
    """The service is not offered, or does not answer."""


class Steering:
    """Calls the services and actions of a graph; another thread spins the node."""

    def __init__(self, node: Node) -> None:
        self._clients: dict[str, Any] = {
            'switch_task': node.create_client(SwitchTask, 'switch_task'),
            'list_tasks': node.create_client(ListTasks, 'list_tasks'),
            **{name: node.create_client(Trigger, name) for name in _TRIGGERS.values()},
        }
        self._evaluate = ActionClient(node, EvaluateTask, 'evaluate_task')
        self._node = node

    def act(self, action: str, task: str = '', patience: float = PATIENCE) -> Answer:
        """Carry out a command and return the answer, also for a refusal or no answer."""
        try:
            if action in ('switch', 'learn'):
                request = SwitchTask.Request(task=task, learn=action == 'learn')
                answer = self.call('switch_task', request, patience)
                return Answer(answer.success, answer.message)
            if action == 'evaluate':
                return self._evaluated(task, patience)
            answer = self.call(_TRIGGERS[action], Trigger.Request(), patience)
            return Answer(answer.success, answer.message)
        except NoAnswer as error:
            return Answer(False, str(error))

    def call(self, name: str, request: Any, patience: float = PATIENCE) -> Any:
        """Return the answer of a service; raise `NoAnswer`."""
        client, deadline = self._clients[name], time.monotonic() + patience
        while not client.service_is_ready():
            if time.monotonic() > deadline:
                raise NoAnswer(f'nobody offers {client.srv_name}: is the graph up?')
            time.sleep(0.02)
        return _result(client.call_async(request), patience, client.srv_name)

    def tasks(self, patience: float = PATIENCE) -> dict[str, Any]:
        """Return all tasks and their state as plain values; None: not measured."""
        answer = self.call('list_tasks', ListTasks.Request(), patience)
        names = ('task', 'state', 'iteration', 'iterations', 'return_mean', 'success')
        tasks = [{n: _plain(getattr(task, n)) for n in names} for task in answer.tasks]
        return {'active': answer.active, 'message': answer.message, 'tasks': tasks}

    def ask_tasks(self) -> Any:
        """Ask for the list of tasks without waiting; None if it is not offered."""
        client = self._clients['list_tasks']
        return client.call_async(ListTasks.Request()) if client.service_is_ready() else None

    def _evaluated(self, task: str, patience: float) -> Answer:
        if not self._evaluate.wait_for_server(patience):
            raise NoAnswer('nobody offers evaluate_task: is there a learner?')
        goal = EvaluateTask.Goal(task=task)
        handle = self._asked(lambda: self._evaluate.send_goal_async(goal), patience)
        if not handle.accepted:
            return Answer(False, f"the learner refuses to evaluate '{task}'")
        done = self._asked(handle.get_result_async, EVALUATION_PATIENCE).result
        if not done.success:
            return Answer(False, done.message)
        solved = '' if math.isnan(done.success_rate) else f', success {done.success_rate:.0%}'
        count = f'{done.n_trajectories} trajector{"y" if done.n_trajectories == 1 else "ies"}'
        return Answer(True, f'{task}: return {done.return_mean:,.1f}{solved} over {count}')

    def _asked(self, request: Callable[[], Any], patience: float) -> Any:
        """Ask the action in the thread that spins: elsewhere rclpy may lose a quick answer."""
        executor = self._node.executor
        if executor is None:
            raise NoAnswer('nobody spins this node')
        future = _result(executor.create_task(request), patience, 'evaluate_task')
        return _result(future, patience, 'evaluate_task')


def _result(future: Any, patience: float, name: str) -> Any:
    done = threading.Event()
    future.add_done_callback(lambda _: done.set())
    if not done.wait(patience):
        raise NoAnswer(f'{name} does not answer within {patience:g} s')
    return future.result()


def last_status(node: Node, patience: float = PATIENCE) -> dict[str, Any]:
    """Return the last `status` as plain values, without unknown ones."""
    heard, found = threading.Event(), []

    def keep(message: LearningStatus) -> None:
        found.append(message)
        heard.set()

    node.create_subscription(LearningStatus, 'status', keep, qos.LATCHED)
    if not heard.wait(patience):
        where = node.get_namespace()
        raise NoAnswer(f'no learner tells its status in {where} within {patience:g} s')
    names = found[-1].get_fields_and_field_types()
    values = {name: getattr(found[-1], name) for name in names}
    return {
        n: v for n, v in values.items() if isinstance(v, str | float) and _plain(v) is not None
    }


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


@contextmanager
def onlooker(namespace: str) -> Iterator[Node]:
    """Yield a node in a graph on this machine, spun in the background."""
    os.environ.setdefault('ROS_AUTOMATIC_DISCOVERY_RANGE', 'LOCALHOST')
    context = rclpy.Context()
    rclpy.init(context=context, signal_handler_options=SignalHandlerOptions.NO)
    name = f'ctl_{os.getpid()}'
    node = rclpy.create_node(name, namespace=namespace, context=context)
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)
    over = threading.Event()

    def spin() -> None:
        while not over.is_set():
            executor.spin_once(timeout_sec=0.1)

    thread = threading.Thread(target=spin, daemon=True)
    thread.start()
    try:
        yield node
    finally:
        over.set()
        thread.join(2.0)
        executor.shutdown(timeout_sec=0.5)
        node.destroy_node()
        rclpy.try_shutdown(context=context)


# Watch a graph from outside: which nodes report what on /diagnostics.


@dataclass(frozen=True, slots=True)
class Report:
    """The last report of one node."""

    level: int
    message: str
    values: dict[str, str]
    received: float
    """Monotonic time, s."""

    @property
    def active(self) -> bool:
        """Whether the node is in the lifecycle state active."""
        return self.values.get('state') == 'active'

    @property
    def healthy(self) -> bool:
        """Whether the node is active and healthy."""
        return self.level == 0 and self.active


class Probe:
    """Collects the reports of all nodes of one domain."""

    def __init__(self) -> None:
        self._context = rclpy.Context()
        rclpy.init(context=self._context, signal_handler_options=SignalHandlerOptions.NO)
        self._node = rclpy.create_node(f'probe_{time.time_ns()}', context=self._context)
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(self._node)
        self._node.create_subscription(DiagnosticArray, '/diagnostics', self._keep, 50)
        self.reports: dict[str, Report] = {}
        """Full node name -> last report."""

    def _keep(self, message: DiagnosticArray) -> None:
        for status in message.status:
            values = {item.key: item.value for item in status.values}
            self.reports[status.name.split(':')[0]] = Report(
                int.from_bytes(status.level, 'little'), status.message, values, time.monotonic()
            )

    def look(self, timeout: float) -> None:
        """Process messages for some time."""
        end = time.monotonic() + timeout
        while (left := end - time.monotonic()) > 0:
            self._executor.spin_once(timeout_sec=left)

    def close(self) -> None:
        """Leave the domain."""
        self._executor.shutdown(timeout_sec=0.5)
        self._node.destroy_node()
        rclpy.try_shutdown(context=self._context)


# What `lpgftw doctor` asks of ROS: types that load and a message that arrives.


def interface_count() -> int:
    """Load the type support of every interface and return how many there are."""
    from lpgftw_interfaces import action, msg, srv

    count = 0
    for module in (msg, srv, action):
        for name, kind in inspect.getmembers(module, inspect.isclass):
            if '_' in name:  # requests, feedbacks and so on: parts of another one
                continue
            metaclass: Any = type(kind)
            metaclass.__import_type_support__()
            count += 1
    return count


def round_trip(timeout: float) -> float | None:
    """Send messages to ourselves until one arrives; return the time it took, None if none did."""
    context = rclpy.Context()
    rclpy.init(context=context, signal_handler_options=SignalHandlerOptions.NO)
    node = rclpy.create_node(f'self_test_{time.time_ns()}', context=context)
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)
    topic = f'/{node.get_name()}/echo'
    arrived: list[float] = []
    node.create_subscription(
        Float64, topic, lambda m: arrived.append(time.monotonic() - m.data), 10
    )
    publisher = node.create_publisher(Float64, topic, 10)
    end = time.monotonic() + timeout
    while not arrived and time.monotonic() < end:
        publisher.publish(Float64(data=time.monotonic()))
        executor.spin_once(timeout_sec=0.1)
    executor.shutdown(timeout_sec=0.5)
    node.destroy_node()
    rclpy.try_shutdown(context=context)
    return arrived[0] if arrived else None
