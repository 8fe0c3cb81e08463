"""Steering: actions are asked for where their answers are read."""

from concurrent.futures import Future, ThreadPoolExecutor
import threading
from types import SimpleNamespace

import pytest

pytest.importorskip('rclpy')

from lpgftw_ros.nodes import steering


def ready(value) -> Future:
    future = Future()
    future.set_result(value)
    return future


def test_an_evaluation_is_asked_for_in_the_thread_that_spins(monkeypatch):
    """An answer that arrives before rclpy knows the question would be lost."""
    asked = []

    def answer(value):
        asked.append(threading.current_thread().name)
        return ready(value)

    result = SimpleNamespace(success=True, success_rate=1.0, n_trajectories=2, return_mean=3.0)
    handle = SimpleNamespace(
        accepted=True, get_result_async=lambda: answer(SimpleNamespace(result=result))
    )
    client = SimpleNamespace(
        wait_for_server=lambda patience: True, send_goal_async=lambda goal: answer(handle)
    )
    monkeypatch.setattr(steering, 'ActionClient', lambda *arguments: client)
    with ThreadPoolExecutor(1, thread_name_prefix='spins') as pool:
        node = SimpleNamespace(
            create_client=lambda kind, name: None,
            executor=SimpleNamespace(create_task=pool.submit),
        )
        told = steering.Steering(node).act('evaluate', 'reach')
    assert (told.success, told.message) == (
        True,
        'reach: return 3.0, success 100% over 2 trajectories',
    )
    assert [name.split('_')[0] for name in asked] == ['spins', 'spins']
