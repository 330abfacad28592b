//! The `trunkline` program.
fn main() {}
