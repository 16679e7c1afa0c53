"""Search for the best scheme within a memory budget; see `run` for the procedure.

candidate   candidates, and the contributions of their parts
trials      compile, train and validate candidates; stored, and run by workers
proxies     contributions from gradients alone
pooling     gains of like layers, pooled
solve       the largest sum of gains within a budget, exactly or by evolution
run         the procedure, and its options
report      its results
"""

from .candidate import Contributions
from .report import SearchReport
from .run import Search, contributions, search
from .trials import TrialSettings

__all__ = [
    "Contributions", "Search", "SearchReport", "TrialSettings", "contributions", "search",
]  # fmt: skip
