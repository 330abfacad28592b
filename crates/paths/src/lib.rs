//! Which path takes the next call: placement, health, failover, failback.
