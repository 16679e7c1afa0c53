"""Budget in, best scheme out: what each part of a model gains, and the best parts that fit.

samples    what candidates are trained on, and judged by
lesson     one candidate: compiled, trained, judged; `cut` lets it share its frozen beginning
analysis   all of them, kept in a `store`, on the processes or the cluster of an `engine`
proxies    cheap guesses at the same
planner    what candidates cost, by the planner
solve      the best sum of gains within a budget; `evolve` does it as it was published
within     the best program within a budget, planned for real
belief     what all outcomes tell of single parts; `company` of whole candidates
finals     whole candidates, tried in rounds
choose     all of that in order
"""

from .choose import contributions, search
from .lesson import Lesson
from .options import Search
from .report import SearchReport

__all__ = ["Lesson", "Search", "SearchReport", "contributions", "search"]
