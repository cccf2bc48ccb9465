"""The setting by decent-bench: adapt, then combine, on quadratics."""

# pyright: reportMissingImports=false

import networkx as nx
import numpy as np
import protocol
from decent_array import interoperability as arrays_of_peer
from decent_bench.agents import Agent
from decent_bench.algorithms.p2p import ATC
from decent_bench.costs import QuadraticCost
from decent_bench.networks import P2PNetwork


def main() -> None:
    """Run the setting of the command line."""
    spec, arrays = protocol.read()
    clock = protocol.Clock()
    arrays_of_peer.set_backend("numpy")
    pairs = zip(arrays["matrices"], arrays["vectors"], strict=True)
    exact = [[arrays_of_peer.from_numpy(x.astype(float)) for x in pair] for pair in pairs]
    agents = [Agent(QuadraticCost(*pair)) for pair in exact]
    links = (arrays["weights"] > 0) & ~np.eye(len(agents), dtype=bool)
    network = P2PNetwork(nx.from_numpy_array(links.astype(int)), agents)
    algorithm = ATC(step_size=spec["lr"])
    algorithm.run(network, spec["rounds"], progress_callback=lambda _: clock.tick())
    protocol.report(
        clock, spec, arrays, np.stack([arrays_of_peer.to_numpy(agent.x) for agent in agents])
    )


if __name__ == "__main__":
    main()
