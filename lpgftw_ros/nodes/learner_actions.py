"""The learner's actions: train a task, evaluate a task, with feedback and clean cancel.

Every goal is accepted, and a refusal is its result: a rejected goal could not give a reason.
"""

import threading
from typing import Any

import numpy as np
from rclpy.action import ActionServer, CancelResponse, GoalResponse
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.task import Future

from lpgftw_interfaces.action import EvaluateTask, TrainTask
from lpgftw_interfaces.msg import ErrorCode
from lpgftw_ros.domains.suites import Suite
from lpgftw_ros.errors import LpgftwError
from lpgftw_ros.graph.admission import MOST_ITERATIONS, require_batch, require_count
from lpgftw_ros.graph.training import GivenUp, TrainingWorker
from lpgftw_ros.learning.adaptive.recognise import Verdict
from lpgftw_ros.nodes.conversions import code_of, NotActive, Refused, unknown_task
from lpgftw_ros.nodes.lifecycle import LifelongNode
from lpgftw_ros.runs.visits import evaluation_seed

NAN = float('nan')


class LearnerActions:
    """train_task and evaluate_task."""

    def __init__(
        self, node: LifelongNode, worker: TrainingWorker, suite: Suite, *, arm: bool = False
    ) -> None:
        """Offer both; with an arm no policy is tried in a task it was not learned for."""
        self._node, self._worker, self._suite, self._arm = node, worker, suite, arm
        self._training: _Training | None = None
        self._evaluations: dict[bytes, threading.Event] = {}
        """Goal id -> event, set when the evaluation is no longer needed."""
        self._in_work = 0
        self._train = self._server(TrainTask, 'train_task', self._train_one, self._cancel_train)
        self._evaluate = self._server(
            EvaluateTask, 'evaluate_task', self._evaluate_one, self._cancel_evaluate
        )

    def _server(self, kind: Any, name: str, execute: Any, cancel: Any) -> ActionServer:
        """Offer an action whose refusals are results."""

        async def on_goal(handle: Any) -> Any:
            self._in_work += 1
            try:
                return await execute(handle)
            except LpgftwError as error:
                self._node.get_logger().warning(f'{name}: {error}', throttle_duration_sec=1.0)
                handle.abort()
                return _refusal(kind, error)
            finally:
                self._in_work -= 1

        return ActionServer(
            self._node,
            kind,
            name,
            execute_callback=on_goal,
            goal_callback=lambda goal: GoalResponse.ACCEPT,
            cancel_callback=cancel,
            callback_group=ReentrantCallbackGroup(),
        )

    @property
    def busy(self) -> bool:
        """Whether a goal still waits for its answer."""
        return self._in_work > 0

    def end_all(self, why: str) -> None:
        """Give every running goal a result."""
        if self._training is not None:
            self._training.end(why, ErrorCode.NOT_ACTIVE)
        for given_up in self._evaluations.values():
            given_up.set()

    def close(self) -> None:
        """Close both servers; `end_all` has ended all goals."""
        self._train.destroy()
        self._evaluate.destroy()

    def _admit(self, task: str, trajectories: int) -> None:
        """Raise for a goal that cannot be worked on."""
        if not self._node.active:
            raise NotActive(f'the learner is {self._node.state}; activate it first')
        if self._worker.failed:
            raise Refused(f'the learner has failed: {self._worker.failed}')
        if task not in self._suite.task_names:
            raise unknown_task(task, self._suite.task_names)
        require_batch('trajectories', self._suite.task(task), trajectories)

    # -- train_task ----------------------------------------------------------------------

    async def _train_one(self, handle: Any) -> TrainTask.Result:
        goal, worker = handle.request, self._worker
        self._admit(goal.task, goal.trajectories)
        require_count('iterations', goal.iterations, MOST_ITERATIONS)
        if goal.unknown and self._arm:
            raise Refused('an arm is attached: no policy is tried in a task without a name')
        self._make_way(goal)
        training = self._training = _Training(handle, Future(executor=self._node.executor))
        worker.do(lambda: self._begin(training, goal))
        await training.future
        if self._training is training:
            self._training = None
        return self._train_result(training)

    def _make_way(self, goal: TrainTask.Goal) -> None:
        """End another running goal if this one may replace it; raise if not."""
        other = self._training
        if other is None:
            return
        task = other.handle.request.task
        if not goal.preempt:
            text = f'{task} is learned for another goal; cancel it, or ask with preempt'
            raise Refused(text, ErrorCode.BUSY)
        other.end(f'{goal.task} was asked for instead', ErrorCode.SUPERSEDED)

    def _begin(self, training: '_Training', goal: TrainTask.Goal) -> None:
        if training.ended:  # cancelled before it began
            return
        try:
            if goal.unknown and not self._is_new(training, goal.task):
                return
            self._worker.switch(goal.task, True, goal.iterations, goal.trajectories)
        except LpgftwError as error:
            training.end(str(error), code_of(error))
            return
        current = self._worker.session.lifelong.current
        training.visit = current.number if current is not None else -1

    def _is_new(self, training: '_Training', task: str) -> bool:
        """Find out what a task without a name is; return whether it is to be learned."""
        found = self._worker.recognise(task, lambda: training.ended)
        training.verdict = found
        if found.kind == 'known':
            training.end(f'act with the policy of {found.task}; {found}', ErrorCode.NONE)
        elif task in self._worker.knowledge.tasks:
            text = f"this run has a task '{task}' that was not recognised; {found}"
            training.end(text, ErrorCode.FAILED)
        return not training.ended

    def _train_result(self, training: '_Training') -> TrainTask.Result:
        session, handle = self._worker.session, training.handle
        row, visits = session.last_row or {}, session.lifelong.visits
        visit = visits[training.visit] if 0 <= training.visit < len(visits) else None
        verdict = training.verdict
        finished = visit is not None and visit.state == 'finished'
        known = verdict is not None and verdict.kind == 'known'
        if finished or known:
            handle.succeed()
        elif handle.is_cancel_requested:
            handle.canceled()
        else:
            handle.abort()
        return TrainTask.Result(
            success=finished or known,
            error_code=ErrorCode.NONE if finished else training.code,
            message=f'{handle.request.task} is learned' if finished else training.problem,
            verdict=verdict.kind if verdict is not None else '',
            nearest=(verdict.task or '') if verdict is not None else '',
            parked=visit is not None and visit.state == 'parked',
            iteration=visit.finished_iterations if visit else 0,
            return_mean=float(row.get('return_mean', NAN)),
            success_rate=float(row.get('success', NAN)),
            knowledge_version=self._worker.knowledge.version,
        )

    def _cancel_train(self, handle: Any) -> CancelResponse:
        training = self._training
        if training is not None and training.handle is handle:
            self._worker.do(lambda: self._give_up(training))
        return CancelResponse.ACCEPT

    def _give_up(self, training: '_Training') -> None:
        self._worker.give_up(training.handle.request.task)
        self.on_progress()  # its outcome
        training.end('cancelled', ErrorCode.CANCELED)

    def on_progress(self) -> None:
        """Send feedback after each iteration; called by the worker's announcements."""
        training, session = self._training, self._worker.session
        if training is not None and self._worker.failed:
            training.end(self._worker.failed, ErrorCode.FAILED)
        if training is None or training.visit < 0:
            return
        visit = session.lifelong.visits[training.visit]
        if visit.state == 'finished':
            training.end('', ErrorCode.NONE)
        elif visit.state in ('parked', 'cancelled'):
            canceled = training.handle.is_cancel_requested
            code = ErrorCode.CANCELED if canceled else ErrorCode.SUPERSEDED
            training.end(f'{visit.task} was {visit.state}', code)
        elif (row := session.last_row) is not None and row is not training.shown:
            training.shown = row
            if row['visit'] == training.visit and row['kind'] == 'iteration':
                training.handle.publish_feedback(self._feedback(row, visit.iterations))

    def _feedback(self, row: dict[str, Any], iterations: int) -> TrainTask.Feedback:
        return TrainTask.Feedback(
            state=self._worker.state,
            iteration=row['iteration'] + 1,
            iterations=iterations,
            return_mean=row['return_mean'],
            success_rate=row['success'],
            kl=row['kl'],
            steps_per_second=row['steps'] / max(row['timing']['sampling'], 1e-9),
            total_steps=row['total_steps'],
        )

    # -- evaluate_task -------------------------------------------------------------------

    async def _evaluate_one(self, handle: Any) -> EvaluateTask.Result:
        goal, worker = handle.request, self._worker
        self._admit(goal.task, goal.trajectories)
        config, goal_id = worker.session.config, bytes(handle.goal_id.uuid)
        fixed = self._suite.task(goal.task).deterministic_resets and not goal.explore
        n = goal.trajectories or (1 if fixed else config.loop.evaluation_episodes)
        seed = goal.seed or evaluation_seed(config.loop.seed, goal.task)
        handle.publish_feedback(EvaluateTask.Feedback(state='waiting'))
        given_up = self._evaluations[goal_id] = threading.Event()
        done: Future = Future(executor=self._node.executor)

        def evaluate() -> Any:
            return worker.evaluate(goal.task, n, seed, goal.explore, given_up.is_set)

        worker.do(evaluate).add_done_callback(lambda future: done.set_result(future))
        problem = (future := await done).exception()
        del self._evaluations[goal_id]
        if isinstance(problem, GivenUp) and handle.is_cancel_requested:
            handle.canceled()
            return _refusal(EvaluateTask, Refused('cancelled', ErrorCode.CANCELED))
        if problem is not None:
            raise problem if isinstance(problem, LpgftwError) else Refused(str(problem))
        batch, returns = future.result(), future.result().returns
        solvable = self._suite.task(goal.task).has_success
        handle.succeed()
        return EvaluateTask.Result(
            success=True,
            message=f'{n} episodes of {goal.task}',
            n_trajectories=n,
            return_mean=float(np.mean(returns)),
            return_std=float(np.std(returns)),
            return_min=float(np.min(returns)),
            return_max=float(np.max(returns)),
            success_rate=float(np.mean(batch.success)) if solvable else NAN,
            knowledge_version=worker.knowledge.version,
        )

    def _cancel_evaluate(self, handle: Any) -> CancelResponse:
        given_up = self._evaluations.get(bytes(handle.goal_id.uuid))
        if given_up is not None:
            given_up.set()
        return CancelResponse.ACCEPT


def _refusal(kind: Any, error: LpgftwError) -> Any:
    """Return a result without numbers."""
    result = kind.Result(error_code=code_of(error), message=str(error))
    for name, field in kind.Result.get_fields_and_field_types().items():
        if field == 'double':
            setattr(result, name, NAN)
    return result


class _Training:
    """A running train_task goal."""

    def __init__(self, handle: Any, future: Future) -> None:
        self.handle, self.future = handle, future
        self.visit = -1
        self.verdict: Verdict | None = None
        self.shown: dict[str, Any] | None = None
        self.problem, self.code = '', ErrorCode.NONE
        self._lock = threading.Lock()
        self.ended = False

    def end(self, problem: str, code: int) -> None:
        """Let the goal's callback continue; the first reason counts."""
        with self._lock:
            if self.ended:
                return
            self.ended, self.problem, self.code = True, problem, code
        self.future.set_result(None)
