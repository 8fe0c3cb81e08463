"""Numbers published with LPG-FTW (Mendez, Wang, Eaton, NeurIPS 2020).

Meta-World: mean return and standard error over five seeds, from the authors' README.
Gym bodies: the paper's table of EWC variants, the only numeric Gym results; no standard error.
NaN: the published run diverged.
"""

from dataclasses import dataclass
from itertools import product
from math import nan

STAGES = ('start', 'tune', 'update', 'final')
PUBLISHED_STAGE = {
    'start': 'start_after_update',
    'tune': 'tune',
    'update': 'update',
    'final': 'final',
}
"""Stage of a run folder that was measured as the published stage was."""


def named(stage: str) -> str:
    """Return how reports call a published stage; its start is not ours, docs/metrics.md says."""
    return stage if PUBLISHED_STAGE[stage] == stage else f'{stage}, as published'


@dataclass(frozen=True, slots=True)
class Published:
    """One published mean return."""

    suite: str
    label: str
    stage: str
    mean: float
    standard_error: float | None

    def __str__(self) -> str:
        error = '' if self.standard_error is None else f' ± {self.standard_error:,.0f}'
        return 'diverged' if self.mean != self.mean else f'{self.mean:,.0f}{error}'


_MT = {
    ('mt10', 'lpg-ftw'): ((4523, 508), (160553, 2847), (161142, 3415), (154873, 5415)),
    ('mt10', 'stl'): ((5217, 100), (135328, 8534), None, None),
    ('mt10', 'ewc'): ((5009, 407), (145060, 12859), None, (22202, 5065)),
    ('mt10', 'er'): ((3679, 650), (48495, 7141), None, (5083, 1710)),
    ('mt10', 'pg-ella'): (None, None, (44796, 4606), (12546, 5448)),
    ('mt50', 'lpg-ftw'): ((2505, 166), (161047, 3497), (161060, 3892), (160739, 3933)),
    ('mt50', 'stl'): ((4308, 128), (136837, 2888), None, None),
    ('mt50', 'ewc'): ((1001, 150), (71168, 16915), None, (567, 120)),
    ('mt50', 'er'): ((3373, 310), (33323, 2229), None, (25389, 1910)),
    ('mt50', 'pg-ella'): (None, None, (10292, 1113), (125, 130)),
}

BODY_SUITES = (
    'halfcheetah-gravity',
    'halfcheetah-bodyparts',
    'hopper-gravity',
    'hopper-bodyparts',
    'walker2d-gravity',
    'walker2d-bodyparts',
)
_EWC = {  # start, tune, final per suite, in the order of BODY_SUITES
    'ewc-1-1': (
        (-1245, -2917, -3.97e4),
        (1029, 1748, 1522),
        (1301, 2252, 1522),
        (613, 1508, 793),
        (1293, 2052, 303),
        (1237, 3055, 1382),
    ),
    'ewc-1-2': (
        (1796, 2409, 2603),
        (1132, 1769, 1588),
        (1339, 2322, 1836),
        (385, 920, 43),
        (-2132, -2181, nan),
        (1148, 2800, 1306),
    ),
    'ewc-1-3': (
        (1666, 2225, 2254),
        (1077, 1716, 1571),
        (1434, 2488, 1732),
        (424, 936, 31),
        (2192, 3901, 2325),
        (744, 2000, -128),
    ),
    'ewc-2-1': (
        (-778, 1384, 1797),
        (-892, 1308, 1521),
        (872, 2616, 2089),
        (615, 2142, 1011),
        (-2269, -1915, -2490),
        (nan, nan, nan),
    ),
    'ewc-2-2': (
        (-762, 1565, 2238),
        (-1.79e5, -2.16e5, -1.53e6),
        (930, 2582, 1900),
        (620, 2119, 1120),
        (-3.12e4, -3.23e4, -1.15e5),
        (1027, 3687, 1416),
    ),
    'ewc-2-3': (
        (-6.58e5, -7e5, -1.05e7),
        (-1.1e6, -1.01e6, -5.23e6),
        (939, 2520, 2029),
        (613, 2138, 928),
        (-8.98e4, -9.65e4, -1.59e5),
        (nan, nan, nan),
    ),
}
MAIN_EWC = 'ewc-1-3'
"""The variant behind the name EWC in the paper's Gym figures."""


def _build() -> dict[tuple[str, str, str], Published]:
    table = {}
    for (suite, label), values in _MT.items():
        for stage, pair in zip(STAGES, values, strict=True):
            if pair is not None:
                table[suite, label, stage] = Published(suite, label, stage, *map(float, pair))
    for label, (index, suite) in product(_EWC, enumerate(BODY_SUITES)):
        for stage, mean in zip(('start', 'tune', 'final'), _EWC[label][index], strict=True):
            table[suite, label, stage] = Published(suite, label, stage, float(mean), None)
            if label == MAIN_EWC:
                table[suite, 'ewc', stage] = Published(suite, 'ewc', stage, float(mean), None)
    return table


PUBLISHED = _build()


def published(suite: str, label: str, stage: str) -> Published | None:
    """Return the published mean return of a method at a stage, if there is one."""
    return PUBLISHED.get((suite, label, stage))
