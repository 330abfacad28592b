//! Tests `trunkline serve --group`: nodes that are processes, share a reply cache, are killed, and
//! listen on each other's addresses.

#[path = "group/at_once.rs"]
mod at_once;
#[path = "group/delegations.rs"]
mod delegations;
#[path = "group/fixtures.rs"]
#[allow(dead_code, reason = "each test program uses a part of it")]
mod fixtures;
#[path = "group/killed.rs"]
mod killed;
#[path = "group/locked.rs"]
mod locked;
#[path = "group/neighbours.rs"]
mod neighbours;
#[path = "../../server/tests/support/peer.rs"]
mod peer;
#[path = "group/refused.rs"]
mod refused;
#[path = "group/session.rs"]
mod session;
#[path = "group/taken_over.rs"]
mod taken_over;
