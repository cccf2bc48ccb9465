"""Constants of push-sum over directed, changing graphs: bounds and measurements."""
