//! What a person could not read or reach on a page: contrast, labels, headings, and the keyboard.

use serde_json::Value;
use testkit::Browser;

/// What is wrong with the page that is open, as sentences; empty if nothing is.
const LOOK: &str = include_str!("look.js");

pub fn look(browser: &mut Browser) -> Vec<String> {
    let found = browser.evaluate(LOOK);
    let found = found.as_array().expect("a list");
    found.iter().map(|it| it.as_str().unwrap_or_default().to_owned()).collect()
}

/// Goes through the page by the tab key: each control is reached once, and shows that it has the
/// focus. Returns how many there are.
pub fn tab_reaches_all(browser: &mut Browser) -> u64 {
    const CONTROLS: &str = "document.querySelectorAll('a[href], button, summary, \
        input:not([type=hidden]), [tabindex=\"0\"]')";
    let count = browser.evaluate(&format!("{CONTROLS}.length")).as_u64().expect("a number");
    let mut reached = 0;
    for _ in 0..count {
        browser.press("Tab");
        let is_new = "(() => { const one = document.activeElement; \
            if (one === document.body || one.dataset.reached) return false; \
            one.dataset.reached = 'yes'; const style = getComputedStyle(one); \
            return style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0; })()";
        reached += u64::from(browser.evaluate(is_new) == Value::Bool(true));
    }
    let missed = format!("[...{CONTROLS}].filter(it => !it.dataset.reached).map(it => it.outerHTML)");
    assert_eq!(reached, count, "not reached, or without a mark: {}", browser.evaluate(&missed));
    count
}
