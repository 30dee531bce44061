"""The names of all random streams of the library.

All random numbers are pure functions of the user's seed, the epoch, the batch and the stream, so a resumed training
needs no random state. Two purposes must not share a stream: a new purpose gets a new member here. The value of a member
must never change, because runs would no longer be bitwise reproducible.
"""

from __future__ import annotations

from enum import IntEnum


class RandomStream(IntEnum):
    """The random streams, in three groups that differ in how the stream enters a seed.

    >>> RandomStream.SHUFFLE + 1 > RandomStream.SHUFFLE
    True
    """

    # The third number of a key (seed, epoch, number), see `focuse.objective.randomness.stream_seed`. Numbers below 2⁴⁰
    # are the batches of an epoch, for negatives, dropout and all other random numbers of a training step.
    SHUFFLE = 1 << 40  # order of an epoch's triples; + n for stage n of a partitioned training
    INITIAL_EMBEDDINGS = 1 << 41
    VALIDATION_NEGATIVES = 1 << 42  # drawn by SplitMix64
    # The order of an epoch in a cold-start training; + 1 + n for its batch n. The first value equals that of the
    # validation negatives but seeds torch's generator, so the two streams are different.
    COLD_START = 1 << 42

    # Combined with the seed of a batch by exclusive or, for further random numbers of the same batch.
    INFERRED_TRIPLES = 0x5851F42D4C957F2D
    POOL_NEGATIVES = 0x2545F4914F6CDD1D  # negatives that enter the semi-supervised pool
    POOL_SAMPLES = 0x1B03738712FAD5C9  # samples taken from that pool

    # The last number of a NumPy seed [seed, number] or [seed, epoch, number].
    VALIDATION_PARTS = 0x9A27
    IMPORTANCE_FOLDS = 0x1A90
    KNOWN_NEGATIVES = 0xFA15E  # known false triples that are used in an epoch
    NEW_RELATION_EDGES = 0x4E1
    PARTITION_SCHEDULE = 0x91A7
    PARTITION_ASSIGNMENT = 0xDEA1
    BUCKET_SHUFFLE = 0x317
    PARTITIONED_VALIDATION_CANDIDATES = 0x5A3E  # entities that validation ranks against
    ESTIMATOR_FOLDS = 0xF01D
    DISCOVERY_CALIBRATION = 0xC4A
