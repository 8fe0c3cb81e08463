"""The learner's actions: train a task, evaluate a task, with feedback and clean cancel."""

from typing import Any

import numpy as np
from rclpy.action import ActionServer, CancelResponse, GoalResponse
from rclpy.task import Future

from lpgftw_interfaces.action import EvaluateTask, TrainTask
from lpgftw_ros.domains.suites import Suite
from lpgftw_ros.errors import LpgftwError
from lpgftw_ros.nodes.lifecycle import LifelongNode
from lpgftw_ros.nodes.serving import unknown_task
from lpgftw_ros.nodes.training_worker import TrainingWorker
from lpgftw_ros.runs.visits import evaluation_seed

NAN = float('nan')


class LearnerActions:
    """train_task and evaluate_task."""

    def __init__(self, node: LifelongNode, worker: TrainingWorker, suite: Suite) -> None:
        self._node, self._worker, self._suite = node, worker, suite
        self._training: _Training | None = None
        self._train = ActionServer(
            node,
            TrainTask,
            'train_task',
            execute_callback=self._execute_train,
            goal_callback=self._judge_train,
            cancel_callback=self._cancel_train,
        )
        self._evaluate = ActionServer(
            node,
            EvaluateTask,
            'evaluate_task',
            execute_callback=self._execute_evaluate,
            goal_callback=self._judge_evaluate,
            cancel_callback=lambda goal: CancelResponse.REJECT,
        )

    @property
    def busy(self) -> bool:
        """Whether a goal still waits for its answer."""
        return self._training is not None

    def close(self) -> None:
        """End what waits and close both servers."""
        if self._training is not None:
            self._training.end('the learner is shutting down')
        self._train.destroy()
        self._evaluate.destroy()

    # -- train_task ----------------------------------------------------------------------

    def _judge_train(self, goal: TrainTask.Goal) -> GoalResponse:
        if self._training is not None:
            return self._reject('train_task: another goal is in work')
        return self._judge('train_task')

    def _judge_evaluate(self, goal: EvaluateTask.Goal) -> GoalResponse:
        return self._judge('evaluate_task')

    def _judge(self, name: str) -> GoalResponse:
        if not self._node.active:
            return self._reject(f'{name}: the learner is {self._node.state}; activate it first')
        return GoalResponse.ACCEPT

    def _reject(self, why: str) -> GoalResponse:
        self._node.get_logger().warning(why)
        return GoalResponse.REJECT

    async def _execute_train(self, handle: Any) -> TrainTask.Result:
        goal, worker = handle.request, self._worker
        if goal.task not in self._suite.task_names:
            handle.abort()
            problem = unknown_task(goal.task, self._suite.task_names)
            return TrainTask.Result(message=problem, return_mean=NAN, success_rate=NAN)
        training = self._training = _Training(handle, Future(executor=self._node.executor))
        worker.do(lambda: self._begin(training, goal.task, goal.iterations, goal.trajectories))
        problem = await training.future
        self._training = None
        return self._train_result(training, problem)

    def _begin(self, training: '_Training', task: str, iterations: int, trajectories: int) -> None:
        try:
            self._worker.switch(task, True, iterations, trajectories)
        except LpgftwError as error:
            training.end(str(error))
            return
        current = self._worker.session.lifelong.current
        training.visit = current.number if current is not None else -1

    def _train_result(self, training: '_Training', problem: str) -> TrainTask.Result:
        session, handle = self._worker.session, training.handle
        row, visits = session.last_row or {}, session.lifelong.visits
        visit = visits[training.visit] if 0 <= training.visit < len(visits) else None
        finished = visit is not None and visit.state == 'finished'
        if finished:
            handle.succeed()
        elif handle.is_cancel_requested:
            handle.canceled()
        else:
            handle.abort()
        return TrainTask.Result(
            success=finished,
            message=problem or f'{handle.request.task} is learned',
            parked=visit is not None and visit.state == 'parked',
            iteration=visit.finished_iterations if visit else 0,
            return_mean=float(row.get('return_mean', NAN)),
            success_rate=float(row.get('success', NAN)),
            knowledge_version=self._worker.knowledge.version,
        )

    def _cancel_train(self, handle: Any) -> CancelResponse:
        training = self._training
        if training is not None:
            self._worker.do(lambda: self._give_up(training))
        return CancelResponse.ACCEPT

    def _give_up(self, training: '_Training') -> None:
        self._worker.give_up(training.handle.request.task)
        self.on_progress()  # what it came to
        training.end('cancelled')

    def on_progress(self) -> None:
        """Send feedback after each iteration; called by the worker's announcements."""
        training, session = self._training, self._worker.session
        if training is not None and self._worker.failed:
            training.end(self._worker.failed)
        if training is None or training.visit < 0:
            return
        visit = session.lifelong.visits[training.visit]
        if visit.state == 'finished':
            training.end('')
        elif visit.state in ('parked', 'cancelled'):
            training.end(f'{visit.task} was {visit.state}')
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

    async def _execute_evaluate(self, handle: Any) -> EvaluateTask.Result:
        goal, worker = handle.request, self._worker
        if goal.task not in self._suite.task_names:
            handle.abort()
            return _not_evaluated(unknown_task(goal.task, self._suite.task_names))
        config = worker.session.config
        fixed = self._suite.task(goal.task).deterministic_resets and not goal.explore
        n = goal.trajectories or (1 if fixed else config.loop.evaluation_episodes)
        seed = goal.seed or evaluation_seed(config.loop.seed, goal.task)
        handle.publish_feedback(EvaluateTask.Feedback(state='waiting'))
        done: Future = Future(executor=self._node.executor)
        worker.do(lambda: worker.evaluate(goal.task, n, seed, goal.explore)).add_done_callback(
            lambda future: done.set_result(future)
        )
        future = await done
        if future.exception() is not None:
            handle.abort()
            return _not_evaluated(str(future.exception()))
        batch, returns = future.result(), future.result().returns
        handle.succeed()
        return EvaluateTask.Result(
            success=True,
            message=f'{n} episodes of {goal.task}',
            n_trajectories=n,
            return_mean=float(np.mean(returns)),
            return_std=float(np.std(returns)),
            return_min=float(np.min(returns)),
            return_max=float(np.max(returns)),
            success_rate=float(np.mean(batch.success)),
            knowledge_version=worker.knowledge.version,
        )


def _not_evaluated(problem: str) -> EvaluateTask.Result:
    """Return a result without numbers."""
    numbers = ('return_mean', 'return_std', 'return_min', 'return_max', 'success_rate')
    return EvaluateTask.Result(message=problem, **dict.fromkeys(numbers, NAN))


class _Training:
    """A train_task goal in work."""

    def __init__(self, handle: Any, future: Future) -> None:
        self.handle, self.future = handle, future
        self.visit = -1
        self.shown: dict[str, Any] | None = None

    def end(self, problem: str) -> None:
        """Let the goal's callback go on."""
        if not self.future.done():
            self.future.set_result(problem)
