"""What environments have in common whose rows are hosted: in this process or in workers."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from lpgftw_ros.domains.shared_arrays import Layout
from lpgftw_ros.domains.vector_env import TaskVectorEnv
from lpgftw_ros.domains.worker_pool import HostedRows
from lpgftw_ros.learning.arrays import Array, Integers


class HostedVectorEnv(TaskVectorEnv):
    """Speaks to its rows through shared arrays and two requests: reset and step."""

    _hosted: HostedRows | None = None

    @abstractmethod
    def _build_rows(self) -> HostedRows:
        """Build the rows, here or in workers."""

    @property
    def _host(self) -> HostedRows:
        """The rows, built when they are first needed."""
        if self._hosted is None:
            self._hosted = self._build_rows()
        return self._hosted

    def close_extras(self, **kwargs: Any) -> None:
        """Let go of the rows; the workers belong to the pool."""
        if self._hosted is not None:
            self._hosted.close()
            self._hosted = None

    def _layout(self, *more: tuple[str, str]) -> Layout:
        """Return the arrays rows are told and answer in, and more of one number per row."""
        n = self.num_envs
        return (
            ('actions', 'float64', (n, self.act_dim)),
            ('observations', 'float64', (n, self.obs_dim)),
            ('rewards', 'float64', (n,)),
            *((name, dtype, (n,)) for name, dtype in more),
            ('active', 'bool', (n,)),
        )

    def _request_reset(self, rows: Integers) -> Array:
        """Reset these rows and return what they see."""
        arrays = self._mark(rows)
        self._host.reset()
        return arrays['observations'][rows].copy()

    def _request_step(self, actions: Array, rows: Integers) -> Mapping[str, NDArray[Any]]:
        """Step these rows and return the arrays they answered in."""
        arrays = self._mark(rows)
        arrays['actions'][rows] = actions
        self._host.step()
        return arrays

    def _mark(self, rows: Integers) -> Mapping[str, NDArray[Any]]:
        """Tell the rows which of them the next request concerns."""
        arrays = self._host.arrays
        arrays['active'][:] = False
        arrays['active'][rows] = True
        return arrays
