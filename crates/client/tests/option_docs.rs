//! Tests that `docs/MOUNT-OPTIONS.md` is generated from the table of options.

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/MOUNT-OPTIONS.md");

#[test]
fn the_documentation_of_mount_options_is_generated_from_the_table() {
    let wanted = client::options::document::markdown();
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(PATH, &wanted).unwrap();
    }
    let there = std::fs::read_to_string(PATH).unwrap_or_default();
    let first = wanted.lines().zip(there.lines()).find(|(wanted, there)| wanted != there);
    assert!(
        wanted == there,
        "docs/MOUNT-OPTIONS.md differs from the table, first in {first:?}; regenerate it with\n\
         UPDATE=1 cargo test -p client --test option_docs"
    );
}
