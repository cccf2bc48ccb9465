"""The contract of algorithms: phases, rounds, local training, schedules and requirements."""
