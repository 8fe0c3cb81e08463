"""Settings of adaptive LPG-FTW: each part has its own, and each can be turned off."""

from dataclasses import dataclass
from typing import Literal

from lpgftw_ros.errors import InvalidConfig
from lpgftw_ros.learning.config import setting
from lpgftw_ros.learning.lpg_ftw import LpgFtwConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class AdaptiveConfig(LpgFtwConfig):
    """Settings of adaptive LPG-FTW beside those of LPG-FTW."""

    residuals: Literal['stay', 'columns'] = setting(
        'stay',
        'stay: every task keeps a residual of its own; columns: only while columns are learned',
        choices=('stay', 'columns'),
    )
    columns: Literal['first', 'paying'] = setting(
        'first',
        'first: the first k tasks add a column; paying: a residual that explains those of others',
        choices=('first', 'paying'),
    )
    column_share: float = setting(
        0.1, "share of the other tasks' residuals a new column explains", min=0.0, max=1.0
    )
    std_start: Literal['measured', 'mean', 'one'] = setting(
        'measured',
        'log sigma of a new task: the mean of earlier tasks if it earns more, that mean, or '
        'initial_log_std',
        choices=('measured', 'mean', 'one'),
    )
    start_margin: float = setting(
        0.5, 'relative gain at which the carried sigma is taken', min=0.0, max=100.0
    )
    policy_start: Literal['mean', 'measured'] = setting(
        'mean',
        'policy of a new task: L times the mean s, or that of the latest or best task if it earns '
        'more',
        choices=('mean', 'measured'),
    )
    policy_margin: float = setting(
        0.05, "relative gain at which an earlier task's policy is taken", min=0.0, max=100.0
    )
    value_start: Literal['fresh', 'explaining'] = setting(
        'fresh',
        'value function of a new task: a random one, or that of an earlier task that explains '
        'its first batch better',
        choices=('fresh', 'explaining'),
    )
    start_trajectories: int = setting(
        5, 'trajectories per candidate of a measured start', min=2, max=1000
    )
    draws: int = setting(1, 'random starts of the first task', min=1, max=1000)
    draw_iterations: int = setting(
        15, 'iterations of each draw before the first are dropped', min=1, max=100_000
    )
    draw_keep: float = setting(
        0.5,
        'share of the draws kept each time; the kept ones go on half as long',
        min=0.01,
        max=0.9,
    )
    until: Literal['iterations', 'plateau', 'success'] = setting(
        'iterations',
        'what ends a task: its iterations, a plateau of the return, or one with lasting success',
        choices=('iterations', 'plateau', 'success'),
    )
    payback: float = setting(
        0.0,
        'largest share of the iterations of a task that pays for draws and probes; 0: not paid',
        min=0.0,
        max=0.9,
    )
    least_iterations: int = setting(10, 'iterations before a task may end early', min=1)
    plateau_window: int = setting(
        10, 'iterations looked at, the later half against the earlier one', min=2, max=1000
    )
    plateau_gain: float = setting(
        0.02, 'relative gain between the halves below which a task ends', min=0.0, max=10.0
    )
    restart_after: float = setting(
        0.4,
        'share of the iterations after which a task without progress starts anew; 0: never',
        min=0.0,
        max=0.5,
    )
    restart_share: float = setting(
        0.01, 'progress below this share of what finished tasks earn is none', min=0.0, max=1.0
    )
    guard_tolerance: float = setting(
        0.03,
        'relative loss of an old task by an update of L at which it is protected; 0: no guard',
        min=0.0,
        max=1.0,
    )
    guard_share: float = setting(
        0.05, 'most trajectories of the guard per trajectory of all iterations', min=0.0, max=1.0
    )
    guard_certainty: float = setting(
        0.95,
        'certainty that it was the update before a task that lost is protected; 0.5: if in doubt',
        min=0.5,
        max=0.9999,
    )
    guard_trajectories: int = setting(
        3,
        'mean-action trajectories per measurement of a task: reference, guard, its start',
        min=2,
        max=1000,
    )
    inherit_margin: float = setting(
        0.05,
        'relative gain at which an old task adopts a later policy, or a task its start; 0: never',
        min=0.0,
        max=10.0,
    )
    inherit_share: float = setting(
        0.05, 'most trajectories of inheritance per trajectory of all iterations', min=0.0, max=1.0
    )

    signatures: bool = setting(
        False, 'keep how each task answers its policy, to recognise it without its name'
    )

    def __post_init__(self) -> None:
        """Reject values outside their range and combinations that cannot work."""
        LpgFtwConfig.__post_init__(self)
        if self.plateau_window % 2:
            raise InvalidConfig(f'plateau_window must be even, got {self.plateau_window}')
        needs = self.columns == 'paying' or self.inherit_margin > 0.0 or self.guard_tolerance > 0.0
        if needs and not self.keep_local_models:
            raise InvalidConfig(
                'columns: paying, guard_tolerance and inherit_margin above 0 need '
                'keep_local_models to be true'
            )
        if self.update_every and self.residuals == 'stay':
            raise InvalidConfig(
                'residuals: stay needs update_every to be 0: L is solved for at the end of a task'
            )
        if self.update_every and self.guard_tolerance:
            raise InvalidConfig(
                'update_every above 0 needs guard_tolerance to be 0: what L has moved during a '
                'task could not be taken back'
            )
        if self.columns == 'paying' and self.residuals == 'columns':
            raise InvalidConfig('columns: paying needs residuals: stay')
