//! Tests that the driver of the browser sees what the other tests here rely on.

use testkit::{Browser, temp_dir};

const PAGE: &str = "<!doctype html><meta charset=utf-8><title>driver</title>\
    <p id=said>nothing</p><button id=one>One</button>\
    <div style='position:relative'><button id=under>Under</button>\
    <div style='position:absolute;inset:0;background:red'></div></div>\
    <input id=field aria-label=field>\
    <script>document.getElementById('one').onclick = () => {\
    document.getElementById('said').textContent = 'clicked'; };\
    console.error('on purpose', 7); setTimeout(() => { throw new Error('thrown') }, 0);\
    </script><img src='absent.png' alt=''>";

#[test]
fn errors_are_seen_and_clicks_and_keys_arrive() {
    let directory = temp_dir("driver");
    let file = directory.path().join("page.html");
    std::fs::write(&file, PAGE).unwrap();
    let mut browser = Browser::start(640, 480);
    browser.open_file(&file);
    assert_eq!(browser.evaluate("innerWidth"), 640);
    browser.click("#one");
    browser.wait_for("the click", "document.getElementById('said').textContent === 'clicked'");
    browser.click("#field");
    browser.type_text("ab");
    browser.press("c");
    assert_eq!(browser.text("document.getElementById('field').value"), "abc");
    let problems = browser.problems().join("\n");
    for part in ["\"on purpose\" 7", "Error: thrown", "absent.png"] {
        assert!(problems.contains(part), "{part} is not in {problems}");
    }
    assert!(browser.requests().iter().any(|url| url.ends_with("absent.png")));
    // An element that another one covers is not there for a person.
    let covered = "(() => { const box = document.getElementById('under').getBoundingClientRect(); \
        return document.elementFromPoint(box.x + 5, box.y + 5).id === 'under'; })()";
    assert_eq!(browser.evaluate(covered), false);
}

#[test]
fn colours_and_scripts_are_as_the_test_says() {
    let directory = temp_dir("driver");
    let file = directory.path().join("page.html");
    std::fs::write(&file, PAGE).unwrap();
    let mut browser = Browser::start(640, 480);
    browser.prefer_dark(true);
    browser.forbid_scripts(true);
    browser.open_file(&file);
    assert_eq!(browser.evaluate("matchMedia('(prefers-color-scheme: dark)').matches"), true);
    assert!(browser.problems().iter().all(|problem| !problem.contains("on purpose")));
    let picture = directory.path().join("picture.png");
    browser.screenshot(&picture);
    assert!(std::fs::read(picture).unwrap().starts_with(b"\x89PNG"));
}
