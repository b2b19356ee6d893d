"""Time of a session: its parts, its deadlines, its goal, and what is left of the budget."""

from .account import LEAST_S, Account, resumed_sessions, session_record, sessions_since
from .costs import Costs, compiling
from .deadlines import Deadlines
from .goal import Goal, goal_of

__all__ = [
    "LEAST_S",
    "Account",
    "Costs",
    "Deadlines",
    "Goal",
    "compiling",
    "goal_of",
    "resumed_sessions",
    "session_record",
    "sessions_since",
]
