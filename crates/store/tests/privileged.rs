//! Tests the directory store where root serves: callers with their own identities, file systems
//! mounted for the test, and everything that `dir.rs` tests, as root and as an ordinary user. Needs
//! root and mount namespaces; `cargo xtask test` runs it in the suite `dir`.

#[path = "dir/again.rs"]
mod again;
#[path = "dir/beneath.rs"]
mod beneath;
#[path = "dir/changing.rs"]
mod changing;
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
#[path = "dir/mapped.rs"]
mod mapped;
#[path = "dir/mounts.rs"]
mod mounts;
#[path = "dir/owner.rs"]
mod owner;
#[path = "dir/semantics.rs"]
mod semantics;
