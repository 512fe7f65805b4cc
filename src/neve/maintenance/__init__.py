"""What maintenance decides: retention, orphans, TTL, tags, manifests, statistics, quarantine. Pure."""
