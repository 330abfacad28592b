//! Tests the directory store against the directory beneath, as the current user. `privileged.rs`
//! runs these tests as root and as an ordinary user, and has tests that need root.

#[path = "dir/plain.rs"]
mod again;
#[path = "dir/beneath.rs"]
mod beneath;
#[path = "dir/fixture.rs"]
mod fixture;
#[path = "dir/handles.rs"]
mod handles;
#[path = "dir/listing.rs"]
mod listing;
#[path = "dir/mapped.rs"]
mod mapped;
#[path = "dir/owner.rs"]
mod owner;
#[path = "dir/semantics.rs"]
mod semantics;
#[path = "dir/writers.rs"]
mod writers;
