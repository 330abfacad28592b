//! `cargo xtask pictures`: makes the pictures of the documents in docs/pictures: a report,
//! `trunkline top` and the web page of an embedded group under load, and the steps of kept records.
//!
//! The suite `pictures` makes them, here and in a directory that is removed when it runs as a test.

use crate::error::{Error, Result};
use crate::test;
use crate::workspace::root;
use std::fs;

/// The variable that tells the suite where the pictures go.
const DIRECTORY: &str = "TRUNKLINE_PICTURES";
/// Where the README expects them, from the root.
const PICTURES: &str = "docs/pictures";

/// Makes the pictures, and names them with their sizes.
pub(crate) fn run() -> Result<bool> {
    let directory = root().join(PICTURES);
    fs::create_dir_all(&directory).map_err(|source| Error::Make { directory: directory.clone(), source })?;
    let is_made = test::run_with("pictures", (DIRECTORY, &directory))?;
    let failed = |source| Error::Read { file: directory.clone(), source };
    for entry in fs::read_dir(&directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let bytes = entry.metadata().map_err(failed)?.len();
        println!("{PICTURES}/{}  {bytes} bytes", entry.file_name().to_string_lossy());
    }
    Ok(is_made)
}
