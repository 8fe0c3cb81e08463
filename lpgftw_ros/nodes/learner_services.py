"""The learner's services: they check, answer at once, and leave the work to the worker."""

from collections.abc import Callable
from inspect import isawaitable
from pathlib import Path
from typing import Any

from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.task import Future
from std_srvs.srv import Trigger

from lpgftw_interfaces.msg import ErrorCode, TaskState
from lpgftw_interfaces.srv import ListTasks, LoadKnowledge, SaveKnowledge, SwitchTask
from lpgftw_ros.domains.suites import Suite
from lpgftw_ros.errors import LpgftwError
from lpgftw_ros.graph.admission import require_text
from lpgftw_ros.graph.training import TrainingWorker
from lpgftw_ros.nodes.conversions import NotActive, number, refuse, Refused, unknown_task
from lpgftw_ros.nodes.lifecycle import LifelongNode
from lpgftw_ros.runs.stages import EVALUATIONS, FINAL, START, TUNE
from lpgftw_ros.runs.storage import read_info
from lpgftw_ros.runs.visits import Visit


class LearnerServices:
    """switch_task, list_tasks, save_knowledge, load_knowledge, pause, resume, stop."""

    def __init__(self, node: LifelongNode, worker: TrainingWorker, suite: Suite) -> None:
        self._node, self._worker, self._suite = node, worker, suite
        self._group = ReentrantCallbackGroup()  # a service that waits must not block the others
        self._services = (
            node.create_service(ListTasks, 'list_tasks', self._on_list),
            self._create(SwitchTask, 'switch_task', self._on_switch),
            self._create(SaveKnowledge, 'save_knowledge', self._on_save),
            self._create(LoadKnowledge, 'load_knowledge', self._on_load),
            self._create(Trigger, 'pause', lambda q, r: self._on_pause(r, paused=True)),
            self._create(Trigger, 'resume', lambda q, r: self._on_pause(r, paused=False)),
            self._create(Trigger, 'stop', lambda q, r: self._on_stop(r)),
        )

    def _create(self, kind: Any, name: str, answer: Callable[[Any, Any], Any]) -> Any:
        """Offer a service whose work is done by the worker."""

        async def on_request(request: Any, response: Any) -> Any:
            try:
                if not self._node.active:
                    raise NotActive(f'the learner is {self._node.state}; activate it first')
                answered = answer(request, response)
                return await answered if isawaitable(answered) else answered
            except LpgftwError as error:
                return refuse(response, error)
            except Exception as error:  # no request may end the node
                self._node.get_logger().error(f'{name}: {type(error).__name__}: {error}')
                return refuse(response, error)

        return self._node.create_service(kind, name, on_request, callback_group=self._group)

    def close(self) -> None:
        """Close all services."""
        for service in self._services:
            self._node.destroy_service(service)

    def _on_switch(
        self, request: SwitchTask.Request, response: SwitchTask.Response
    ) -> SwitchTask.Response:
        worker, names = self._worker, list(self._suite.task_names)
        response.previous, response.tasks = worker.active, names
        task, learn = request.task, request.learn
        running = worker.session.learner.running
        if task not in names:
            raise unknown_task(task, names)
        if not learn and task not in worker.knowledge.tasks and task != running:
            text = f"'{task}' has no policy yet; switch with learn to learn it"
            raise Refused(text, ErrorCode.NO_POLICY)
        worker.do(lambda: worker.switch(task, learn))
        response.success = True
        what = 'learning' if learn else 'acting with'
        parked = f', {running} will be parked' if running not in (None, task) else ''
        response.message = f'{what} {task} after the running rollout{parked}'
        return response

    def _on_list(
        self, request: ListTasks.Request, response: ListTasks.Response
    ) -> ListTasks.Response:
        visits = list(self._worker.session.lifelong.visits)
        response.success, response.active = True, self._worker.active
        response.tasks = [self._task_state(name, visits) for name in self._suite.task_names]
        done = sum(task.state == TaskState.FINISHED for task in response.tasks)
        response.message = f'{done} of {len(response.tasks)} tasks finished'
        return response

    def _task_state(self, name: str, visits: list[Visit]) -> TaskState:
        session, known = self._worker.session, self._worker.knowledge.tasks
        own = [v for v in visits if v.task == name and v.state != 'cancelled']
        last = own[-1] if own else None
        scores = last.scores if last else {}
        newest: dict[str, Any] = {}
        for stage in (one.name for one in EVALUATIONS if not one.explore):
            newest = scores.get(stage, newest)
        if last is not None and last.state != 'finished' and last.number in session.last_rows:
            row = session.last_rows[last.number]
            newest = {'return': row['return_mean'], 'success': row['success']}
        loop, solvable = session.config.loop, self._suite.task(name).has_success
        return TaskState(
            task=name,
            state=last.state if last else TaskState.FINISHED if name in known else TaskState.NEW,
            has_policy=name in known or (last is not None and last.state == 'running'),
            visits=sum(v.state == 'finished' for v in own),
            iteration=last.finished_iterations if last else 0,
            iterations=last.iterations if last else loop.iterations,
            return_mean=number(newest.get('return')),
            success=number(newest.get('success') if solvable else None),
            return_start=number(scores.get(START, {}).get('return')),
            return_tune=number(scores.get(TUNE, {}).get('return')),
            success_tune=number(scores.get(TUNE, {}).get('success') if solvable else None),
            return_final=number(scores.get(FINAL, {}).get('return')),
        )

    def _on_save(
        self, request: SaveKnowledge.Request, response: SaveKnowledge.Response
    ) -> SaveKnowledge.Response:
        default = self._worker.session.folder.path / 'knowledge.safetensors'
        asked = require_text('path', request.path)
        path = _path(asked) if asked else default.absolute()
        response.path = str(path)
        if problem := _unfit_target(path):
            raise Refused(problem, ErrorCode.FILE)
        self._worker.do(lambda: self._worker.save(path))
        response.success, response.message = True, f'will be written to {path}'
        return response

    async def _on_load(
        self, request: LoadKnowledge.Request, response: LoadKnowledge.Response
    ) -> LoadKnowledge.Response:
        asked, worker = require_text('path', request.path), self._worker
        path, running = _path(asked), worker.session.learner.running
        response.version = worker.knowledge.version
        response.tasks = list(worker.knowledge.tasks)
        if not asked or not _exists(path):
            raise Refused(f"there is no file or run folder '{asked}'", ErrorCode.FILE)
        if running is not None:
            raise Refused(f'{running} is in training; call stop first', ErrorCode.BUSY)
        done: Future = Future(executor=self._node.executor)
        worker.do(lambda: worker.load(path)).add_done_callback(done.set_result)
        if (problem := (await done).exception()) is not None:
            return refuse(response, problem)
        response.success, response.message = True, f'loaded {path}'
        response.version = worker.knowledge.version
        response.tasks = list(worker.knowledge.tasks)
        return response

    def _on_pause(self, response: Trigger.Response, *, paused: bool) -> Trigger.Response:
        worker = self._worker
        worker.do(lambda: worker.pause(paused))
        response.success = True
        response.message = 'pausing after the running rollout' if paused else 'going on'
        return response

    def _on_stop(self, response: Trigger.Response) -> Trigger.Response:
        self._worker.do(self._worker.stop)
        response.success = True
        response.message = 'stopping after the running rollout; the running task is parked'
        return response


def _path(text: str) -> Path:
    """Return the absolute path a request means."""
    try:
        return Path(text).expanduser().absolute()
    except (RuntimeError, OSError) as error:  # the home folder of an unknown user
        raise Refused(f'{text[:80]} is no path: {error}', ErrorCode.FILE) from error


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # not a valid file name
        return False


def _unfit_target(path: Path) -> str:
    """Return why knowledge cannot be written to a path; empty if it can.

    A file of the same name is replaced only if it holds knowledge outside a run's checkpoints.
    """
    if path.suffix != '.safetensors':
        return f'the file must end in .safetensors, got {path.name[:80]}'
    if 'checkpoints' in path.resolve().parts:
        return f'{path.parent} holds the checkpoints of a run; choose another folder'
    try:
        if not path.parent.is_dir():
            return f'there is no folder {path.parent}'
        if path.exists() and not {'method', 'tasks', 'spec'} <= read_info(path).keys():
            return f'{path} is not a knowledge file and is not overwritten'
    except OSError as error:
        return f'{path.name[:80]} cannot be written: {error.strerror}'
    return ''
