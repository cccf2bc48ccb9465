"""Metrics of graphs, mixing matrices, label distributions and models, as numbers and tables."""

from topofl.metrics._columns import columns
from topofl.metrics.averaging.consensus import consensus_distance, mean_model
from topofl.metrics.averaging.dobrushin import dobrushin
from topofl.metrics.averaging.effective_neighbors import effective_neighbors
from topofl.metrics.averaging.kemeny import kemeny_constant
from topofl.metrics.averaging.mixing_time import mixing_time
from topofl.metrics.averaging.perron import perron_skewness, perron_vector, pi_weighted_gap
from topofl.metrics.averaging.spectral import (
    measured_contraction,
    sigma,
    slem,
    smallest_eigenvalue,
    spectral_gap,
)
from topofl.metrics.changing.connectivity import b_connectivity
from topofl.metrics.changing.products import (
    expected_gap,
    product_contraction,
    window_product,
)
from topofl.metrics.compare import compare
from topofl.metrics.cost import Cost, round_cost
from topofl.metrics.data_fit.gradient_mixing import gradient_mixing_error
from topofl.metrics.data_fit.labels import clique_skew, label_distributions
from topofl.metrics.hops.deviation import (
    GradientStatistics,
    PredictedDeviation,
    gradient_statistics,
    predicted_deviation,
)
from topofl.metrics.hops.heterogeneity import neighborhood_heterogeneity
from topofl.metrics.hops.noise import accumulated_noise
from topofl.metrics.hops.spectrum import HeterogeneitySpectrum, heterogeneity_spectrum
from topofl.metrics.over_rounds import over_rounds
from topofl.metrics.plots import plot_contraction
from topofl.metrics.push_sum.constants import GeometricBound, PushSumConstants, push_sum_constants
from topofl.metrics.seconds.hardware import Hardware
from topofl.metrics.seconds.regions import AZURE_REGIONS, azure_latency
from topofl.metrics.seconds.round_time import RoundTime, round_time
from topofl.metrics.seconds.step_seconds import step_seconds
from topofl.metrics.shape.communities import (
    communities,
    label_separation,
    modularity,
    neighbor_label_distance,
)
from topofl.metrics.shape.resistance import effective_resistance, kirchhoff_index
from topofl.metrics.shape.sparsity import reciprocity, sparsity
from topofl.metrics.shape.structure import clustering, edge_connectivity, node_connectivity

__all__ = [
    "AZURE_REGIONS",
    "Cost",
    "GeometricBound",
    "GradientStatistics",
    "Hardware",
    "HeterogeneitySpectrum",
    "PredictedDeviation",
    "PushSumConstants",
    "RoundTime",
    "accumulated_noise",
    "azure_latency",
    "b_connectivity",
    "clique_skew",
    "clustering",
    "columns",
    "communities",
    "compare",
    "consensus_distance",
    "dobrushin",
    "edge_connectivity",
    "effective_neighbors",
    "effective_resistance",
    "expected_gap",
    "gradient_mixing_error",
    "gradient_statistics",
    "heterogeneity_spectrum",
    "kemeny_constant",
    "kirchhoff_index",
    "label_distributions",
    "label_separation",
    "mean_model",
    "measured_contraction",
    "mixing_time",
    "modularity",
    "neighbor_label_distance",
    "neighborhood_heterogeneity",
    "node_connectivity",
    "over_rounds",
    "perron_skewness",
    "perron_vector",
    "pi_weighted_gap",
    "plot_contraction",
    "predicted_deviation",
    "product_contraction",
    "push_sum_constants",
    "reciprocity",
    "round_cost",
    "round_time",
    "sigma",
    "slem",
    "smallest_eigenvalue",
    "sparsity",
    "spectral_gap",
    "step_seconds",
    "window_product",
]
