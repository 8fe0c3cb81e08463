from lpgftw_ros.api import evaluate as evaluate
from lpgftw_ros.api import load as load
from lpgftw_ros.api import Policy as Policy
from lpgftw_ros.api import register_method as register_method
from lpgftw_ros.api import Run as Run
from lpgftw_ros.api import train as train

__version__: str
ARITHMETIC: str
