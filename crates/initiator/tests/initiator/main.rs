//! Hosts attach to targets in this process, over relays that can be silenced and cut.

mod attach;
mod authentication;
mod failover;
mod fixture;
mod pair;
mod tasks;
