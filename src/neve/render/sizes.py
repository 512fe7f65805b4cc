"""Which buckets of a histogram are worth drawing, and which of them are too small or hold the target."""

from __future__ import annotations

from neve.health.inspection import Inspection, SizeBucket


def drawn_buckets(inspection: Inspection) -> tuple[SizeBucket, ...]:
    """The buckets from the first to the last that holds a file or the target: the gap to the target is the message."""
    buckets = inspection.histogram or ()
    held = [index for index, bucket in enumerate(buckets) if bucket.files]
    if not held:
        return ()
    aims = [index for index, bucket in enumerate(buckets) if holds(bucket, inspection.target_file_size_bytes)]
    return buckets[min(held + aims) : max(held + aims) + 1]


def is_small(bucket: SizeBucket, inspection: Inspection) -> bool:
    """Whether every file in the bucket is below the small-file threshold."""
    return bucket.high_bytes is not None and bucket.high_bytes <= inspection.small_file_threshold_bytes


def holds(bucket: SizeBucket, size_bytes: int) -> bool:
    """Whether a file of this size would fall into the bucket."""
    return bucket.low_bytes <= size_bytes and (bucket.high_bytes is None or size_bytes < bucket.high_bytes)
