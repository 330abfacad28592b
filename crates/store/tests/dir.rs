//! The directory store against the directory beneath it: as root and as an ordinary user.
//!
//! A test that needs another user, or mounts of its own, runs itself again in a child that has them. Where that
//! cannot be had the test says so and has shown nothing.

#[path = "dir/again.rs"]
mod again;
#[path = "dir/beneath.rs"]
mod beneath;
#[path = "dir/faults.rs"]
mod faults;
#[path = "dir/fixture.rs"]
mod fixture;
#[path = "dir/handles.rs"]
mod handles;
#[path = "dir/identities.rs"]
mod identities;
#[path = "dir/listing.rs"]
mod listing;
#[path = "dir/semantics.rs"]
mod semantics;
