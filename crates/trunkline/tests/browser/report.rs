//! Tests the page of `trunkline report`.

use std::path::Path;
use testkit::Browser;

/// The page that the tests of `report` compare with what the program writes.
fn page() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../report/goldens/record.html")
}

#[test]
fn the_page_opens_without_an_error_and_asks_for_nothing_else() {
    let mut browser = Browser::start(1280, 900);
    browser.open_file(&page());
    let title = browser.text("document.title");
    assert!(title.starts_with("trunkline bench"), "{title}");
    assert_ne!(browser.evaluate("document.querySelectorAll('table tr').length"), 0);
    assert!(browser.problems().is_empty(), "{:#?}", browser.problems());
    let others: Vec<_> = browser.requests().iter().filter(|url| !url.ends_with("record.html")).collect();
    assert!(others.is_empty(), "{others:?}");
}
