"""What is known about replicas from outside the data path: load reports, health, model cards, device memory.

Nothing here decides anything: what was seen is posted as events, and the brain draws its conclusions. A report that is
late, odd or missing costs that replica's freshness and nothing else.
"""

from headway.observe.config import ObserveConfig
from headway.observe.observer import Observer

__all__ = ["ObserveConfig", "Observer"]
