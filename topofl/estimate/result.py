"""The result of an estimate, and its text."""

from dataclasses import dataclass, field

from topofl._support.notebook import paragraph
from topofl._support.table import Table
from topofl.engine.footprint import in_gib, peak

__all__ = ["OTHER_DISK", "Estimate"]

_MIB = 2**20

OTHER_DISK = "use a folder on another disk"
"""What to do if a disk has too little space for the file of the models."""

MEMORY_PARTS = (
    "parameters",
    "state",
    "fine_tuning",
    "gradients",
    "minibatches",
    "activations",
    "statistics",
    "float64",
    "phases",
    "mixing",
    "evaluation",
    "matrices",
    "data",
    "torch",
)
"""Fields of an estimate that are bytes of memory, except for the history."""


@dataclass(frozen=True)
class Estimate:
    """Memory of a run, messages and bytes sent per round, and seconds if a probe was run.

    Memory is in bytes.

    Parameters
    ----------
    name
        Algorithm and topology.
    n, d
        Number of nodes, and of parameters of one model.
    executor, chunk, workers
        The plan of the estimate: executor, nodes per call (1 for the looped executor), and threads
        that process chunks in parallel.
    parameters
        Memory of all models; with models in a file (``Compute(scratch=...)``), of the part of it
        that is in memory.
    state
        Memory of the algorithm's state, such as momentum.
    fine_tuning
        Memory of the copies of models that are fine-tuned before an evaluation, and of their
        momentum.
    gradients
        Memory of the gradients of the chunks in progress, and, if the algorithm mixes gradients, of
        all nodes' gradients or of the means over groups.
    minibatches
        Memory of the examples and labels gathered for these chunks.
    activations
        Peak memory of their forward and backward passes, without gradients.
    statistics
        Memory of the sums of gradients in rounds with an evaluation.
    float64
        Memory of the blocks that gradient diversity and consensus distance convert to float64 in
        these rounds.
    phases
        Temporary memory of phases outside of training, such as copies of the models.
    mixing, evaluation
        Memory of the buffers of all workers for mixing and for evaluation.
    matrices
        Memory of the mixing matrices of the rounds that were simulated.
    history
        Memory of the record of all rounds, including mixing matrices; 0 if `rounds` was not given.
    data
        Memory of the dataset.
    torch
        Memory that torch allocates on first use in any run, and of the network itself.
    beyond
        Memory on the CPU that a probe used beyond its prediction, negative if it used less:
        temporary memory of kernels, and fragments held by the allocator. 0 without a probe.
    held
        The part of `data` that is already in memory.
    returned
        Whether memory is returned to the system between training and evaluation.
    free
        Free memory on the device now; None if unknown.
    remedy
        What would fit, if the run does not fit into memory, or else not on the disk.
    file
        Bytes of the file of the models with ``Compute(scratch=folder)``; otherwise 0.
    disk
        Free bytes on the disk of that folder; None without such a file.
    messages, bytes, messages_paper, bytes_paper
        Messages and bytes that all nodes send per round; the latter two as the D-Cliques paper
        counts them. As in :class:`topofl.History`.
    busiest_messages, busiest_bytes
        Incoming and outgoing traffic of the node with the most.
    seconds_per_round, seconds_per_evaluation
        Measured by the probe; None without one. Neither includes fine-tuning.
    drawn
        If a method draws its messages at random: (number of rounds in the mean, fewest and most
        messages per round); otherwise None.

    Examples
    --------
    >>> import topofl
    >>> from topofl import algorithms, data, models, topologies
    >>> clients = data.iid(data.digits(), n=4, seed=0)
    >>> found = topofl.estimate(
    ...     algorithms.dsgd(lr=0.1),
    ...     model=models.logistic_regression(64),
    ...     clients=clients,
    ...     topology=topologies.ring(4),
    ... )
    >>> found.d, found.messages, found.bytes  # each of 8 messages is 650 numbers of 4 bytes
    (650, 8, 20800)
    """

    name: str
    n: int
    d: int
    executor: str
    chunk: int
    workers: int
    parameters: int
    state: int
    fine_tuning: int
    gradients: int
    minibatches: int
    activations: int
    statistics: int
    float64: int
    phases: int
    mixing: int
    evaluation: int
    matrices: int
    data: int
    torch: int
    beyond: int
    held: int
    returned: bool
    free: int | None = field(compare=False)
    remedy: str = field(compare=False)
    messages: float
    bytes: float
    messages_paper: float
    bytes_paper: float
    busiest_messages: int
    busiest_bytes: int
    seconds_per_round: float | None = None
    seconds_per_evaluation: float | None = None
    history: int = 0
    drawn: tuple[int, int, int] | None = None
    file: int = 0
    disk: int | None = field(default=None, compare=False)

    @property
    def total(self) -> int:
        """Peak memory in bytes; less than the sum of its parts, which do not all exist at once."""
        return max(0, peak(self._memory(), self.returned) + self.beyond)

    @property
    def added(self) -> int:
        """Memory in bytes that the run adds to the memory in use before it."""
        return self.total - self.held

    @property
    def fits(self) -> bool:
        """Whether enough memory is free, or unknown, and the disk has space for the models."""
        return self._fits_into_memory and (self.disk is None or self.file <= self.disk)

    @property
    def _fits_into_memory(self) -> bool:
        return self.free is None or self.added <= self.free

    def _memory(self) -> dict[str, int]:
        parts = {name: getattr(self, name) for name in MEMORY_PARTS}
        return parts | ({"history": self.history} if self.history else {})

    def __str__(self) -> str:
        """Return the estimate as tables of memory, messages and times."""
        return "\n\n".join(map(str, self._blocks()))

    def _repr_html_(self) -> str:
        return "".join(
            block._repr_html_() if isinstance(block, Table) else paragraph(block)
            for block in self._blocks()
        )

    def _blocks(self) -> list[Table | str]:
        """Return the tables and sentences of the estimate."""
        title = f"{self.name}: n={self.n:,} models of d={self.d:,} parameters, "
        title += f"{self.executor}, chunk={self.chunk}"
        title += f", workers={self.workers}" if self.workers > 1 else ""
        sizes = [(name, value / _MIB) for name, value in self._memory().items()]
        compared = "more" if self.beyond > 0 else "less"
        sizes += [(f"a probe took {compared}", self.beyond / _MIB)] if self.beyond else []
        sizes += [("at once, at most", self.total / _MIB)]
        sent = (
            ("all nodes", self.messages, self.bytes / _MIB),
            (
                "all nodes, as the D-Cliques paper counts",
                self.messages_paper,
                self.bytes_paper / _MIB,
            ),
            ("busiest node, in and out", self.busiest_messages, self.busiest_bytes / _MIB),
        )
        blocks: list[Table | str] = [
            Table(("memory", "MiB"), tuple(sizes), title),
            self._free_text(),
            *self._disk_text(),
            Table(("per round", "messages", "MiB"), sent),
        ]
        if self.drawn is not None:
            blocks.append(self._drawn_text(*self.drawn))
        if self.seconds_per_round is not None and self.seconds_per_evaluation is not None:
            times = (
                ("per round", self.seconds_per_round),
                ("per evaluation", self.seconds_per_evaluation),
            )
            blocks.append(Table(("measured by a probe", "seconds"), times))
        return blocks

    def _free_text(self) -> str:
        if self.free is None:
            return f"adds {in_gib(self.added)}; free memory is unknown"
        text = f"adds {in_gib(self.added)} of {in_gib(self.free)} free"
        return text if self._fits_into_memory else f"{text}: DOES NOT FIT; {self.remedy}"

    def _disk_text(self) -> list[str]:
        if self.disk is None:
            return []
        if self.file <= self.disk:
            return [f"the file of the models takes {in_gib(self.file)} of {in_gib(self.disk)} free"]
        return [
            f"the file of the models takes {self.file:,} bytes of {self.disk:,} free: DOES NOT "
            f"FIT; {OTHER_DISK}"
        ]

    def _drawn_text(self, rounds: int, fewest: int, most: int) -> str:
        if fewest == most:
            return (
                "which nodes send messages is drawn at random: maxima are those of "
                f"{rounds} rounds; the busiest node of a run may have more"
            )
        return (
            f"messages are drawn at random: means over {rounds} rounds, with {fewest:,} to "
            f"{most:,} messages each; a run draws others, and its busiest node may have more"
        )
