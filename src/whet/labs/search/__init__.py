"""Search for the best scheme within a memory budget; see `run` for the procedure.

candidate   candidates, and the contributions of their parts
trial       one trial: compile, train, validate
trials      many of them, stored and run by workers
proxies     contributions from gradients alone
pooling     gains of like layers, pooled
costs       bytes of candidates, by the planner
solve       the largest sum of gains within a budget, exactly or by evolution
run         the procedure, and its options
report      its results
"""

from .candidate import Contributions
from .report import SearchReport
from .run import Search, contributions, search
from .trial import TrialSettings

__all__ = [
    "Contributions", "Search", "SearchReport", "TrialSettings", "contributions", "search",
]  # fmt: skip
