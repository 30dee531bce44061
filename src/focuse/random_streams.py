"""The names of all random streams of the library.

Every random number is a pure function of the user's seed and of a key: an epoch, a batch and a stream. A resumed run
therefore needs no random state, and two purposes must not share a stream. A new purpose gets a new member here. The
values must never change, because stored runs could then not be reproduced bit by bit.
"""

from __future__ import annotations

from enum import IntEnum


class RandomStream(IntEnum):
    """The random streams, in three groups that differ in how the stream enters a seed.

    >>> RandomStream.SHUFFLE + 1 > RandomStream.SHUFFLE
    True
    """

    # These are the third number of (seed, epoch, number), see `focuse.objective.randomness.stream_seed`. The numbers
    # below 2⁴⁰ are the batches of an epoch: their negatives, dropout and everything else that a training step draws.
    SHUFFLE = 1 << 40  # order of an epoch's triples; + n for stage n of partitioned training
    INITIAL_EMBEDDINGS = 1 << 41
    VALIDATION_NEGATIVES = 1 << 42  # read through SplitMix64
    # This is the order of an epoch when new entities are added; + 1 + n is its batch n. The order shares its number
    # with the validation negatives but uses torch's generator, so the two draw different numbers.
    COLD_START = 1 << 42

    # These are combined with the seed of a batch by exclusive or, for further draws of the same batch.
    INFERRED_TRIPLES = 0x5851F42D4C957F2D
    POOL_NEGATIVES = 0x2545F4914F6CDD1D  # negatives that enter the semi-supervised pool
    POOL_SAMPLES = 0x1B03738712FAD5C9  # samples taken from that pool

    # These are the last number of a NumPy seed [seed, number] or [seed, epoch, number].
    VALIDATION_PARTS = 0x9A27
    IMPORTANCE_FOLDS = 0x1A90
    FALSE_TRIPLES = 0xFA15E  # known false triples that are used in an epoch
    NEW_EDGES_HELD_OUT = 0x4E1D
    NEW_ENTITY_SIBLINGS = 0x51B  # known entities whose mean row initializes a new entity
    NEW_RELATION_TRIALS = 0x4E1
    PARTITION_SCHEDULE = 0x91A7
    PARTITION_OF_ENTITY = 0xDEA1
    EDGES_IN_BUCKET = 0x317
    PARTITIONED_CANDIDATES = 0x5A3E  # candidate entities of validation
    ESTIMATOR_FOLDS = 0xF01D
    DISCOVERY_CALIBRATION = 0xC4A
