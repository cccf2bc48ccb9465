"""Learning tasks: a loss per example, and the scores that evaluations report."""

from topofl.tasks.classification import accuracy as accuracy
from topofl.tasks.classification import classification
from topofl.tasks.classification import cross_entropy as cross_entropy
from topofl.tasks.multi_label import multi_label
from topofl.tasks.next_token import next_token
from topofl.tasks.regression import regression
from topofl.tasks.task import Function as Function
from topofl.tasks.task import Score, Task

__all__ = ["Score", "Task", "classification", "multi_label", "next_token", "regression"]
