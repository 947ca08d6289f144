"""One step of training on several cores, devices and machines.

cores                                    shards of a batch, one for each core of a CPU
mesh, rules, sharding, stacking          where arrays lie on the devices of a mesh
plan, advice                             what every device will hold, before anything runs
launch, roll_call, lines                 how the processes of a run find each other
watch, workers                           who is lost, and an end for all
together                                 what all processes do at the same time
"""

from .cores import loss_and_grads, suitable_shards

__all__ = ["loss_and_grads", "suitable_shards"]
