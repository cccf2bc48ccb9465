"""The setting by decent-bench: adapt, then combine, on quadratics."""

import networkx as nx
import numpy as np
import protocol
from decent_bench.agents import Agent
from decent_bench.algorithms.p2p import ATC
from decent_bench.costs import QuadraticCost
from decent_bench.networks import P2PNetwork


def main() -> None:
    """Run the setting of the command line."""
    spec, arrays = protocol.read()
    clock = protocol.Clock()
    pairs = zip(arrays["matrices"], arrays["vectors"], strict=True)
    agents = [Agent(QuadraticCost(a.astype(float), b.astype(float))) for a, b in pairs]
    links = (arrays["weights"] > 0) & ~np.eye(len(agents), dtype=bool)
    network = P2PNetwork(nx.from_numpy_array(links.astype(int)), agents)
    algorithm = ATC(iterations=spec["rounds"], step_size=spec["lr"])
    algorithm.run(network, progress_callback=lambda _: clock.tick())
    protocol.report(clock, spec, arrays, np.stack([agent.x for agent in agents]))


if __name__ == "__main__":
    main()
