"""What an adaptive learner decided, told from metrics."""

from lpgftw_ros.experiments.explain import decisions


def test_every_decision_is_told_once_with_the_task_it_concerns():
    rows = [
        {'kind': 'iteration', 'visit': 0, 'task': 'a', 'iteration': 0, 'draws_left': 3},
        {'kind': 'iteration', 'visit': 0, 'task': 'a', 'iteration': 1, 'draws_left': 3},
        {'kind': 'update', 'visit': 0, 'task': 'a', 'columns': 1},
        {'kind': 'probe', 'visit': 1, 'task': 'b', 'purpose': 'start'},
        {'kind': 'probe', 'visit': 1, 'task': 'b', 'carried': 1.0, 'best_policy': 0.0},
        {'kind': 'iteration', 'visit': 1, 'task': 'b', 'iteration': 0},
        {'kind': 'iteration', 'visit': 1, 'task': 'b', 'iteration': 9, 'restarted': 9.0},
        {'kind': 'probe', 'visit': 2, 'task': 'c', 'carried': 0.0, 'latest_policy': 1.0},
        {'kind': 'probe', 'visit': 3, 'task': 'd', 'carried': 0.0, 'latest_policy': 0.0},
        {'kind': 'update', 'visit': 1, 'task': 'b', 'columns': 1},
        {'kind': 'probe', 'visit': 1, 'task': 'a', 'purpose': 'guard', 'shortened': 0.5},
        {'kind': 'probe', 'visit': 1, 'task': 'a', 'purpose': 'guard', 'shortened': 0.0},
        {'kind': 'probe', 'visit': 1, 'task': 'a', 'purpose': 'guard', 'kept': 1.0},
        {'kind': 'probe', 'visit': 1, 'task': 'a', 'purpose': 'adopt', 'adopted': 1.0},
    ]
    assert decisions(rows) == [
        ('a', '3 random starts were drawn'),
        ('a', 'L has 1 columns, before 0'),
        ('b', 'sigma was carried over'),
        ('b', 'started anew: 9 iterations came to nothing'),
        ('c', 'starts from the policy of the task before'),
        ('d', 'sigma starts anew: carrying it did not pay'),
        ('b', 'its update of L was shortened to 0.5: it cost a too much'),
        ('b', 'its update of L was taken back: it cost a too much'),
        ('a', 'kept its parameters: the update of L after b cost it too much'),
        ('a', 'adopted the policy of b'),
    ]
