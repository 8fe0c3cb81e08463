"""Settings of LPG-FTW."""

from dataclasses import dataclass
from typing import Literal

from lpgftw_ros.errors import InvalidConfig
from lpgftw_ros.learning.config import setting, TrainingConfig
from lpgftw_ros.learning.solvers import SOLVERS


@dataclass(frozen=True, kw_only=True, slots=True)
class LpgFtwConfig(TrainingConfig):
    """Settings of LPG-FTW; the defaults are the published code, `PAPER` the text."""

    max_columns: int = setting(5, 'most columns of the shared basis (k)', min=1, max=10_000)
    sparsity: float = setting(1e-5, 'weight of the 1-norm of s (mu)', min=0.0, max=1e3)
    ridge: float = setting(1e-5, 'subtracted from the diagonal of A / T', min=1e-12, max=1e3)
    residual_penalty: float = setting(
        0.0, 'weight of the squared residual while a column is learned', min=0.0, max=1e3
    )
    coefficient_start: Literal['mean', 'latest'] = setting(
        'mean', 'where s of a new task starts, of all earlier s', choices=('mean', 'latest')
    )
    update_every: int = setting(
        0, 'iterations between updates of the basis (M); 0: at the end of a task', min=0
    )
    update_from: Literal['second', 'after_columns'] = setting(
        'second',
        'first task after which the basis is solved for',
        choices=('second', 'after_columns'),
    )
    solver: Literal['dense', 'cg', 'diagonal', 'kronecker'] = setting(
        'dense', 'how the basis is solved for', choices=SOLVERS
    )
    solver_tolerance: float = setting(
        1e-10, 'relative residual at which an iterative solver stops', min=1e-15, max=1e-2
    )
    solver_iterations: int = setting(2000, 'most iterations of such a solver', min=1)
    keep_local_models: bool = setting(
        True, 'keep the local model of each task, so that it can be learned again'
    )

    def __post_init__(self) -> None:
        """Reject values outside their range and solvers that cannot do without local models."""
        TrainingConfig.__post_init__(self)
        if not self.keep_local_models and self.solver in ('cg', 'kronecker'):
            raise InvalidConfig(f"solver '{self.solver}' needs keep_local_models to be true")


PAPER = {'ridge': 2e-5, 'residual_penalty': 1e-5, 'update_from': 'after_columns'}
"""Settings where the text of the paper differs from the published code."""
