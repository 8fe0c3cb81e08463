"""The tasks: suites, vector environments and samplers. Importing it starts no simulator."""

from lpgftw_ros.domains.registration import register_all
from lpgftw_ros.domains.rollout import collect, Rollout
from lpgftw_ros.domains.sampler import make_env, Sampler
from lpgftw_ros.domains.suites import load_suite, Suite, suite_names, TaskSpec
from lpgftw_ros.domains.vector_env import TaskVectorEnv

__all__ = [
    'Rollout',
    'Sampler',
    'Suite',
    'TaskSpec',
    'TaskVectorEnv',
    'collect',
    'load_suite',
    'make_env',
    'register_all',
    'suite_names',
]

register_all()
