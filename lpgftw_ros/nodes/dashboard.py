"""`dashboard`: the page in the browser for a running graph."""

from collections import deque
from collections.abc import Callable
from dataclasses import replace
import math
from pathlib import Path
import sys
import threading
import time
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import PoseStamped
import numpy as np
from sensor_msgs.msg import Image, JointState

from lpgftw_interfaces.msg import (
    ActiveTask,
    ArmCommand,
    Knowledge,
    LearningStatus,
    SafetyState,
    ScenePose,
)
from lpgftw_ros.dashboard import (
    Answer,
    ArmView,
    Curve,
    KnowledgeView,
    NAN,
    Progress,
    SceneFrame,
    Snapshot,
    TaskLine,
)
from lpgftw_ros.dashboard.folder import curves, find_alone, growth, Metrics
from lpgftw_ros.dashboard.page import give_way, Page
from lpgftw_ros.dashboard.scene import arm_state
from lpgftw_ros.deploy.arm.env import load_chain
from lpgftw_ros.deploy.arm.kinematics import ArmKinematics
from lpgftw_ros.deploy.arm.sawyer import load_arm
from lpgftw_ros.deploy.observation import three_numbers
from lpgftw_ros.deploy.safety.limits import load_limits, Nearness, nearness
from lpgftw_ros.domains.suites import endless_tasks, load_suite
from lpgftw_ros.domains.vector_env import scene_model, SceneState
from lpgftw_ros.errors import LpgftwError
from lpgftw_ros.graph.parameters import DashboardParameters
from lpgftw_ros.learning.arrays import Integers
from lpgftw_ros.nodes import qos
from lpgftw_ros.nodes.conversions import joints_in_order, knowledge_from_msg, object_position
from lpgftw_ros.nodes.lifecycle import LifelongNode, STEADY
from lpgftw_ros.nodes.process import run
from lpgftw_ros.nodes.rollout_client import Mailbox
from lpgftw_ros.nodes.steering import ARM, LEARNING, Steering
from lpgftw_ros.runs.folder import read_config

SILENT = 2.5  # s without diagnostics after which a node counts as gone; they come every second
RESTARTED = 15.0  # s for which it is told that a node was started again
STILL = 5.0  # s after which the last pose is no longer shown
_LIST_PERIOD = 1.0  # s
_RECENT = 20
_LEVELS = {
    SafetyState.OK: 'ok',
    SafetyState.LIMITED: 'limited',
    SafetyState.STOPPED: 'stopped',
    SafetyState.LATCHED: 'latched',
    SafetyState.INACTIVE: 'inactive',
}


class Dashboard(LifelongNode):
    """Serves the page; everything on it comes from topics and services of the graph."""

    config: DashboardParameters

    def __init__(self) -> None:
        super().__init__('dashboard', DashboardParameters)
        self._page: Page | None = None

    def configure(self) -> None:
        """Open topics and the page."""
        source = GraphSource(self)
        try:
            self._page = Page(
                source, host=self.config.dashboard_host, port=self.config.dashboard_port
            )
        except BaseException:
            source.close()
            raise
        self.get_logger().info(self._page.greeting())

    def cleanup(self) -> None:
        """Close the page."""
        if self._page is not None:
            self._page.close()
            self._page = None


class _Heard:
    """The last message of a topic and when it came."""

    def __init__(self) -> None:
        self.message: Any = None
        self.time = -math.inf
        self._shown: tuple[Any, Any] = (None, None)

    def keep(self, message: Any) -> None:
        self.message, self.time = message, time.monotonic()

    def shown(self, make: Callable[[Any], Any]) -> Any:
        """Return what `make` makes of the message, the same object until the next one comes."""
        message = self.message
        if self._shown[0] is not message:
            self._shown = message, make(message)
        return self._shown[1]

    @property
    def age(self) -> float:
        return time.monotonic() - self.time


class GraphSource:
    """The state of a graph from its topics; callbacks store, the page reads."""

    replays = False

    def __init__(self, node: Dashboard) -> None:
        self._node = node
        self.actions: tuple[str, ...] = ARM if node.config.limits_file else LEARNING
        self._steering = Steering(node)
        self._status, self._active, self._pose, self._image = (_Heard() for _ in range(4))
        self._arm = ArmWatch(node) if node.config.limits_file else None
        self._reports: dict[str, tuple[float, int, str, dict[str, str]]] = {}
        self._restarted: dict[str, float] = {}
        self._tasks: tuple[TaskLine, ...] = ()
        self._asked: Any = None
        self._asked_at = 0.0
        self._knowledge: KnowledgeView | None = None
        self._growth: dict[str, int] = {}
        self._points: dict[tuple[int, str], dict[int, tuple[float, float]]] = {}
        self._pace: deque[tuple[float, float]] = deque(maxlen=_RECENT)
        self._metrics: Metrics | None = None
        self._alone: tuple[Curve, ...] = ()
        self._suite_name, self._endless = '', frozenset[str]()
        self._pictures: Any = None
        self._poses: Mailbox | None = None
        self._poses_lock = threading.Lock()  # the page takes them, the executor closes them
        self._wanted = False
        self._opened = [
            node.create_subscription(*each)
            for each in (
                (LearningStatus, 'status', self._on_status, qos.LATCHED),
                (Knowledge, 'knowledge', self._on_knowledge, qos.LATCHED),
                (ActiveTask, 'active_task', self._on_active, qos.LATCHED),
                (DiagnosticArray, '/diagnostics', self._on_report, 50),
            )
        ]
        self._timer = node.create_timer(_LIST_PERIOD, self._on_timer, clock=STEADY)

    # -- the page asks -------------------------------------------------------------------

    def snapshot(self) -> Snapshot:
        """Return the current state."""
        folder, knowledge = self._folder(), self._knowledge
        if folder is not None and self._metrics is None:
            self._metrics = Metrics(folder)
            self._alone = _alone_curves(folder, self._has_success)
        rows = self._metrics.rows() if self._metrics is not None else []
        progress = self._progress()
        if knowledge is not None and (grown := growth(rows)):
            knowledge = replace(knowledge, growth=grown)
        return Snapshot(
            title=self._node.get_namespace(),
            progress=progress,
            curves=curves(rows, self._has_success) or self._own_curves(),
            alone=self._alone,
            tasks=self._tasks,
            knowledge=knowledge,
            arm=self._arm.view(self._links()) if self._arm is not None else None,
            problems=self._problems(),
            still=f'nothing moves: {progress.state}',
        )

    def frame(self) -> SceneFrame | None:
        """Return the last pose, unless it is old."""
        self._take_pose()
        message = self._pose.message
        if message is None or self._pose.age > STILL:
            return self._arm.frame() if self._arm is not None else None
        found: SceneFrame = self._pose.shown(_scene_frame)
        return found

    def picture(self) -> Integers | None:
        """Return the last picture, if there is no pose."""
        if self._image.message is None or self._image.age > STILL:
            return None
        found: Integers | None = self._image.shown(_pixels)
        return found

    def watch_scene(self, watched: bool) -> None:
        """Subscribe to poses only while a browser is open; the executor's thread does it."""
        self._wanted = watched

    def replay(self, task: str, speed: float) -> None:
        """Do nothing: the page shows the graph's own row 0."""

    def act(self, action: str, task: str) -> Answer:
        """Call the service or action behind a button."""
        if action not in self.actions:
            return Answer(False, 'not from the browser')
        return self._steering.act(action, task)

    def close(self) -> None:
        """Close topics; the node goes with its clients."""
        self._node.destroy_timer(self._timer)
        if self._arm is not None:
            self._arm.close()
        self._close_scene()
        for subscription in self._opened:
            self._node.destroy_subscription(subscription)

    # -- the graph tells -----------------------------------------------------------------

    def _ours(self, run_id: str) -> bool:
        return not self._node.config.run_id or run_id == self._node.config.run_id

    def _on_status(self, message: LearningStatus) -> None:
        if not self._ours(message.run_id):
            return
        self._status.keep(message)
        visit, iteration = message.visit, message.iteration
        if not (math.isfinite(message.return_mean) and math.isfinite(visit)):
            return
        if not 1.0 <= iteration <= message.iterations < math.inf:
            return
        points = self._points.setdefault((int(visit), message.task), {})
        if int(iteration) - 1 not in points:
            points[int(iteration) - 1] = message.return_mean, message.success
            self._pace.append((message.wall_seconds, visit * message.iterations + iteration))

    def _on_knowledge(self, message: Knowledge) -> None:
        if not self._ours(message.run_id):
            return
        try:
            knowledge = knowledge_from_msg(message, None)
        except LpgftwError as error:
            self._node.get_logger().warning(f'knowledge dropped: {error}')
            return
        for task in knowledge.tasks:
            self._growth.setdefault(task, knowledge.basis.shape[1])
        self._knowledge = KnowledgeView.of(knowledge, tuple(self._growth.items()))

    def _on_active(self, message: ActiveTask) -> None:
        if self._ours(message.run_id):
            self._active.keep(message)

    def _on_report(self, message: DiagnosticArray) -> None:
        here = self._node.get_namespace().rstrip('/') + '/'
        for status in message.status:
            name = status.name.split(':')[0]
            if name.startswith(here) and not name.endswith('/dashboard'):
                values = {item.key: item.value for item in status.values}
                level = int.from_bytes(status.level, 'little')
                short, now = name.removeprefix(here), time.monotonic()
                before = self._reports.get(short)
                if before is not None and before[3].get('pid') != values.get('pid'):
                    self._restarted[short] = now
                self._reports[short] = (now, level, status.message, values)

    def _on_timer(self) -> None:
        """Refresh the list of tasks; open or close what only browsers need."""
        if self._asked is not None and self._asked.done():
            self._keep_tasks(self._asked.result())
            self._asked = None
        if self._asked is None or time.monotonic() - self._asked_at > 3.0:
            self._asked, self._asked_at = self._steering.ask_tasks(), time.monotonic()
        if self._wanted and self._poses is None:
            self._pictures = self._node.create_subscription(
                Image, 'image', self._image.keep, qos.SENSOR
            )
            self._poses = Mailbox(self._node, ScenePose, 'scene_pose', qos.NEWEST)
        if self._arm is not None:
            self._arm.listen(self._wanted)
        if not self._wanted:
            self._close_scene()

    def _close_scene(self) -> None:
        with self._poses_lock:
            if self._poses is not None:
                self._poses.close()
                self._node.destroy_subscription(self._pictures)
                self._poses = None

    def _take_pose(self) -> None:
        """Keep the newest pose; called by the page's thread, past the executor."""
        with self._poses_lock:
            message = None if self._poses is None else self._poses.take(0.0)
        if message is not None and (not message.key.run_id or self._ours(message.key.run_id)):
            self._pose.keep(message)

    def _keep_tasks(self, answer: Any) -> None:
        if answer is None or not answer.success:
            return
        self._tasks = tuple(
            TaskLine(
                task=t.task,
                state=t.state,
                has_policy=t.has_policy,
                iteration=t.iteration,
                iterations=t.iterations,
                return_now=t.return_mean,
                success_now=t.success if self._has_success(t.task) else NAN,
                return_tuned=t.return_tune,
                success_tuned=t.success_tune if self._has_success(t.task) else NAN,
            )
            for t in answer.tasks
        )

    # -- putting it together -------------------------------------------------------------

    def _progress(self) -> Progress:
        m, active = self._status.message, self._active.message
        if m is None and active is not None:  # a graph that only acts
            return Progress(task=active.task, state=active.mode)
        if m is None:
            return Progress(state='waiting for the learner')
        per_iteration = NAN
        if len(self._pace) > 1:
            (first, begun), (last, done) = self._pace[0], self._pace[-1]
            per_iteration = (last - first) / (done - begun) if done > begun else NAN
        ahead = m.iterations - m.iteration
        after = (m.visits - m.visit - 1.0) * m.iterations
        over = m.state in ('finished', 'idle', 'failed')
        return Progress(
            suite=Path(m.suite).stem,
            learner=m.learner,
            task=m.task,
            state=m.state,
            message=m.message,
            visit=m.visit,
            visits=m.visits,
            iteration=m.iteration,
            iterations=m.iterations,
            total_steps=m.total_steps,
            steps_per_second=m.steps_per_second,
            wall_seconds=m.wall_seconds,
            task_seconds_left=NAN if over else per_iteration * ahead,
            run_seconds_left=NAN if over else per_iteration * (ahead + after),
        )

    def _own_curves(self) -> tuple[Curve, ...]:
        """Return the curves since this node started, if the run folder is elsewhere."""
        found = []
        for (visit, task), points in list(self._points.items()):
            values = np.full((2, max(points) + 1), NAN)
            for iteration, pair in list(points.items()):
                values[:, iteration] = pair
            success = values[1] if self._has_success(task) else np.full(values.shape[1], NAN)
            found.append(Curve(task, visit, values[0], success))
        return tuple(found)

    def _has_success(self, task: str) -> bool:
        m = self._status.message
        if m is None:
            return True
        if self._suite_name != m.suite:
            self._suite_name, self._endless = m.suite, endless_tasks(m.suite)
        return task not in self._endless

    def _folder(self) -> Path | None:
        """Return the run folder if the learner reports it and it is on this machine."""
        report = self._reports.get('learner')
        folder = Path(report[3].get('folder', '')) if report else None
        return folder if folder and (folder / 'config.yaml').is_file() else None

    def _problems(self) -> tuple[str, ...]:
        now, found = time.monotonic(), []
        for name, (heard, level, message, _) in sorted(self._reports.items()):
            if now - heard > SILENT:
                found.append(f'{name}: not heard of for {now - heard:.0f} s')
            elif level:
                found.append(f'{name}: {message}')
            if now - self._restarted.get(name, -math.inf) < RESTARTED:
                found.append(f'{name}: was started again')
        if not self._reports:
            found.append('no node of the graph is heard yet')
        return tuple(found)

    def _links(self) -> tuple[tuple[str, float], ...]:
        now = time.monotonic()
        return tuple((name, now - report[0]) for name, report in sorted(self._reports.items()))


class ArmWatch:
    """The guard's state and, while a browser is open, how close the arm is to its limits."""

    def __init__(self, node: Dashboard) -> None:
        self._node, self._problem, self._model = node, '', None
        self._safety, self._joints, self._object, self._command = (_Heard() for _ in range(4))
        self._interventions: deque[str] = deque(maxlen=8)
        self._subscription = node.create_subscription(
            SafetyState, 'safety_state', self._on_safety, qos.LATCHED
        )
        self._listening: list[Any] = []
        config = node.config
        try:
            self._limits = load_limits(Path(config.limits_file))
            arm = load_arm(Path(config.arm_file) if config.arm_file else None)
            self._kinematics = ArmKinematics(load_chain(config.model_file, arm), arm)
            frame = (three_numbers(n, getattr(config, n)) for n in ('frame_xyz', 'frame_rpy'))
            if not config.arm_file and not np.concatenate(list(frame)).any():
                self._task = load_suite(config.suite).task(config.task)
                self._model = scene_model(self._task)
        except LpgftwError as error:
            self._problem = f'the limits cannot be shown: {error}'

    def listen(self, wanted: bool) -> None:
        """Subscribe to measurements, or unsubscribe; never makes a sender wait."""
        if wanted and not self._listening:
            self._listening = [
                self._node.create_subscription(kind, topic, heard.keep, qos.NEWEST)
                for kind, topic, heard in (
                    (JointState, 'joint_states', self._joints),
                    (PoseStamped, 'object_pose', self._object),
                    (ArmCommand, 'arm_command', self._command),
                )
            ]
        elif not wanted and self._listening:
            for subscription in self._listening:
                self._node.destroy_subscription(subscription)
            self._listening = []

    def close(self) -> None:
        """Close all topics."""
        self.listen(False)
        self._node.destroy_subscription(self._subscription)

    def _on_safety(self, message: SafetyState) -> None:
        config = self._node.config
        if config.run_id and message.run_id != config.run_id:
            return
        last = self._safety.message
        self._safety.keep(message)
        if message.level in (SafetyState.OK, SafetyState.INACTIVE):
            return
        if last is None or (last.level, last.code) != (message.level, message.code):
            at, numbers = time.strftime('%H:%M:%S'), ''
            if math.isfinite(message.value) and math.isfinite(message.limit):
                numbers = f', {message.value:.3g} of {message.limit:.3g} {message.unit}'
            self._interventions.appendleft(f'{at} {_level(message)}: {message.text}{numbers}')

    def frame(self) -> SceneFrame | None:
        """Return where the arm and its object are, if they belong to the drawn model."""
        message = self._joints.message
        if self._model is None or message is None or self._joints.age > STILL:
            return None
        joints = dict(zip(message.name, message.position, strict=False))
        seen = self._object.message
        target = None if seen is None or self._object.age > STILL else object_position(seen)
        goal = np.array(self._task.settings.get('goal', ()), dtype=float)
        since = message.header.stamp.sec + 1e-9 * message.header.stamp.nanosec
        state = replace(arm_state(self._model, joints, target), goal=goal, time=since)
        return SceneFrame(self._node.config.suite, self._task.name, state, live=True)

    def view(self, links: tuple[tuple[str, float], ...]) -> ArmView:
        """Return what the page shows of the arm."""
        message = self._safety.message
        if message is None:
            said = ('silent', 'none', 'the guard has not said anything yet', NAN, 0)
        else:
            stamp = message.since.sec + message.since.nanosec * 1e-9
            since = self._node.get_clock().now().nanoseconds * 1e-9 - stamp
            said = (_level(message), message.code, message.text, max(0.0, since), message.count)
        return ArmView(
            *said,
            limits=self._near(),
            interventions=tuple(self._interventions),
            links=links,
            problem=self._problem,
        )

    def _near(self) -> tuple[Nearness, ...]:
        """Return how close the limits are; what is not measured now is left out."""
        if self._problem:
            return ()
        found: list[Nearness] = []
        limits = self._limits
        message, arm = self._joints.message, self._kinematics.arm
        if message is not None and self._joints.age < STILL:
            joints = joints_in_order(message, arm.joints)
            speeds = joints_in_order(
                JointState(name=message.name, position=message.velocity), arm.joints
            )
            if np.isfinite(joints).all():
                found += nearness(limits, self._kinematics, joints, speeds)
        for name, what, heard in (
            ('joints_timeout', 'age of joint states', self._joints),
            ('object_timeout', 'age of object pose', self._object),
            ('action_timeout', 'age of commands', self._command),
        ):
            if heard.message is not None:
                most = getattr(limits, name)
                found.append(Nearness(name, what, heard.age, -most, most, 's'))
        return tuple(found)


def _scene_frame(message: ScenePose) -> SceneFrame:
    mocap = np.array(message.mocap)
    state = SceneState(
        positions=np.array(message.qpos),
        mocap=mocap.reshape(-1, 7) if mocap.size % 7 == 0 else np.zeros((0, 7)),
        goal=np.array(message.goal),
        time=message.time,
    )
    return SceneFrame(message.suite, message.key.task, state, message.model)


def _pixels(message: Image) -> Integers | None:
    pixels = np.frombuffer(message.data, np.uint8)
    if message.encoding != 'rgb8' or pixels.size != message.height * message.width * 3:
        return None
    return pixels.reshape(message.height, message.width, 3)


def _level(message: SafetyState) -> str:
    return _LEVELS.get(message.level, 'unknown')


def _alone_curves(folder: Path, has_success: Any) -> tuple[Curve, ...]:
    try:
        alone = find_alone(folder, read_config(folder))
    except LpgftwError:
        return ()
    return () if alone is None else curves(Metrics(alone).rows(), has_success)


def main() -> None:
    """Run the node."""
    give_way()
    sys.exit(run([Dashboard]))


if __name__ == '__main__':
    main()
