"""Every random stream of the library by name.

All random numbers are pure functions of the user's seed and of a place: an epoch, a batch, a stream. So a resumed
training needs no random state, and two purposes must not share a stream. A new purpose gets a new member here; a value
never changes, because runs would no longer be reproduced bit by bit.
"""

from __future__ import annotations

from enum import IntEnum


class RandomStream(IntEnum):
    """Names of random streams, in three groups by how they enter a seed.

    >>> RandomStream.SHUFFLE + 1 > RandomStream.SHUFFLE
    True
    """

    # Third number of (seed, epoch, number), see `focuse.objective.randomness.stream_seed`. The numbers below 2⁴⁰ are
    # the batches of an epoch: their negatives, dropout and everything else that a training step draws.
    SHUFFLE = 1 << 40  # order of an epoch's triples; + n for stage n of a partitioned training
    INITIAL_EMBEDDINGS = 1 << 41
    VALIDATION_NEGATIVES = 1 << 42  # read through SplitMix64
    # The order of an epoch and, + 1 + n, batch n when new entities are added. The first shares its number with the
    # validation negatives but goes through torch's generator, so the two draw different numbers.
    COLD_START = 1 << 42

    # Exclusive or with the seed of a batch: further draws for the same batch.
    INFERRED_TRIPLES = 0x5851F42D4C957F2D
    POOL_NEGATIVES = 0x2545F4914F6CDD1D  # negatives that enter the semi-supervised pool
    POOL_SAMPLES = 0x1B03738712FAD5C9  # samples taken from it

    # Last number of a NumPy seed [seed, number] or [seed, epoch, number].
    VALIDATION_PARTS = 0x9A27
    IMPORTANCE_FOLDS = 0x1A90
    KNOWN_NEGATIVES = 0xFA15E  # known false triples that take part in an epoch
    NEW_EDGES_SPLIT = 0x4E1D
    NEW_ENTITY_SIBLINGS = 0x51B  # known entities whose mean row a new entity starts with
    NEW_RELATION_EDGES = 0x4E1
    PARTITION_SCHEDULE = 0x91A7
    PARTITION_ASSIGNMENT = 0xDEA1
    BUCKET_SHUFFLE = 0x317
    PARTITIONED_VALIDATION_CANDIDATES = 0x5A3E  # entities that validation ranks against
    ESTIMATOR_FOLDS = 0xF01D
    DISCOVERY_CALIBRATION = 0xC4A
