"""The learner's services: they check, answer at once, and leave the work to the worker."""

from collections.abc import Callable
from inspect import isawaitable
from pathlib import Path
from typing import Any

from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.task import Future
from std_srvs.srv import Trigger

from lpgftw_interfaces.msg import TaskState
from lpgftw_interfaces.srv import ListTasks, LoadKnowledge, SaveKnowledge, SwitchTask
from lpgftw_ros.domains.suites import Suite
from lpgftw_ros.nodes.lifecycle import LifelongNode
from lpgftw_ros.nodes.serving import unknown_task
from lpgftw_ros.nodes.status import number
from lpgftw_ros.nodes.training_worker import TrainingWorker
from lpgftw_ros.runs.visits import Visit


class LearnerServices:
    """switch_task, list_tasks, save_knowledge, load_knowledge, pause, resume, stop."""

    def __init__(self, node: LifelongNode, worker: TrainingWorker, suite: Suite) -> None:
        self._node, self._worker, self._suite = node, worker, suite
        self._group = ReentrantCallbackGroup()  # one that waits must not keep the others waiting
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
        """Offer a service that needs a worker to leave the work to."""

        async def on_request(request: Any, response: Any) -> Any:
            if not self._node.active:
                response.message = f'the learner is {self._node.state}; activate it first'
                return response
            answered = answer(request, response)
            return await answered if isawaitable(answered) else answered

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
            response.message = unknown_task(task, names)
        elif not learn and task not in worker.knowledge.tasks and task != running:
            response.message = f"'{task}' has no policy yet; switch with learn to learn it"
        else:
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
        for stage in ('start', 'start_after_update', 'tune', 'update', 'final'):
            newest = scores.get(stage, newest)
        if last is not None and last.state != 'finished' and last.number in session.last_rows:
            row = session.last_rows[last.number]
            newest = {'return': row['return_mean'], 'success': row['success']}
        loop = session.config.loop
        return TaskState(
            task=name,
            state=last.state if last else TaskState.FINISHED if name in known else TaskState.NEW,
            has_policy=name in known or (last is not None and last.state == 'running'),
            visits=sum(v.state == 'finished' for v in own),
            iteration=last.finished_iterations if last else 0,
            iterations=last.iterations if last else loop.iterations,
            return_mean=number(newest.get('return')),
            success=number(newest.get('success')),
            return_start=number(scores.get('start', {}).get('return')),
            return_tune=number(scores.get('tune', {}).get('return')),
            return_final=number(scores.get('final', {}).get('return')),
        )

    def _on_save(
        self, request: SaveKnowledge.Request, response: SaveKnowledge.Response
    ) -> SaveKnowledge.Response:
        default = self._worker.session.folder.path / 'knowledge.safetensors'
        path = Path(request.path).expanduser().absolute() if request.path else default.absolute()
        response.path = str(path)
        if path.suffix != '.safetensors':
            response.message = f'the file must end in .safetensors, got {path.name}'
        elif not path.parent.is_dir():
            response.message = f'there is no folder {path.parent}'
        else:
            self._worker.do(lambda: self._worker.save(path))
            response.success, response.message = True, f'will be written to {path}'
        return response

    async def _on_load(
        self, request: LoadKnowledge.Request, response: LoadKnowledge.Response
    ) -> LoadKnowledge.Response:
        path, worker = Path(request.path).expanduser().absolute(), self._worker
        running = worker.session.learner.running
        if not request.path or not path.exists():
            response.message = f"there is no file or run folder '{request.path}'"
        elif running is not None:
            response.message = f'{running} is in training; call stop first'
        else:
            done: Future = Future(executor=self._node.executor)
            worker.do(lambda: worker.load(path)).add_done_callback(done.set_result)
            problem = (await done).exception()
            response.success = problem is None
            response.message = f'loaded {path}' if problem is None else str(problem)
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
