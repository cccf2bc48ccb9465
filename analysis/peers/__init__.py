"""The race: peers of topofl, each in an environment of its own, on their own settings."""
