//! A headless Chromium that a test drives as a person would: it opens pages, clicks and types. The
//! browser's own messages of errors are collected.
//!
//! The browser is told what to do by the DevTools protocol, over a WebSocket on loopback. It needs
//! Debian's package `chromium`.

mod connection;

use crate::{Process, TempDir, require_program, temp_dir};
use connection::Connection;
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// How long the browser may take to start, or to answer, on a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(120);

/// What the browser prints when it can be driven.
const LISTENING: &str = "DevTools listening on ";

/// The options of Chromium. Root needs `--no-sandbox`; the others keep the browser from asking the
/// network for anything, from using more shared memory than a container has, and from complaints
/// about a desktop that is not there.
const OPTIONS: [&str; 12] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--log-level=3",
    "--no-default-browser-check",
    "--no-first-run",
    "--remote-debugging-port=0",
];

/// One tab of a browser of its own, with an empty profile. It ends when dropped.
#[derive(Debug)]
pub struct Browser {
    connection: Connection,
    _process: Process,
    _profile: TempDir,
}

impl Browser {
    /// Starts a browser whose window has this many pixels inside.
    ///
    /// # Panics
    /// If Chromium is missing or does not start.
    #[must_use]
    #[track_caller]
    pub fn start(width: u32, height: u32) -> Self {
        Self::start_by(|command| command, width, height)
    }

    /// Starts a browser by a command that runs this one, such as one that runs it in a network of
    /// its own. The calling thread must reach that network's loopback.
    ///
    /// # Panics
    /// As [`Browser::start`].
    #[must_use]
    #[track_caller]
    pub fn start_by(wrap: impl FnOnce(Command) -> Command, width: u32, height: u32) -> Self {
        let profile = temp_dir("browser");
        let mut command = Command::new(require_program("chromium"));
        command.args(OPTIONS).arg(format!("--user-data-dir={}", profile.path().display()));
        command.arg("about:blank").env("HOME", profile.path()).env_remove("http_proxy");
        let process = Process::spawn(wrap(command));
        let line = process.wait_for_line(LISTENING, TIMEOUT);
        let url = line.trim_start_matches(LISTENING).trim();
        let mut browser = Self { connection: Connection::open(url), _process: process, _profile: profile };
        browser.connection.attach();
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser.resize(width, height);
        browser
    }

    /// Gives a command of the DevTools protocol, and returns its result.
    ///
    /// # Panics
    /// If the browser refuses the command or does not answer.
    #[track_caller]
    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        match self.connection.call(method, parameters) {
            Ok(result) => result,
            Err(error) => panic!("{method}: {error}"),
        }
    }

    /// Makes the window this large.
    #[track_caller]
    pub fn resize(&mut self, width: u32, height: u32) {
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", metrics);
    }

    /// Tells pages that the user prefers dark colours, or light ones.
    #[track_caller]
    pub fn prefer_dark(&mut self, is_dark: bool) {
        let value = if is_dark { "dark" } else { "light" };
        let features = json!([{"name": "prefers-color-scheme", "value": value}]);
        self.call("Emulation.setEmulatedMedia", json!({"features": features}));
    }

    /// Forbids pages to run scripts, from the next page on, or allows it.
    #[track_caller]
    pub fn forbid_scripts(&mut self, is_forbidden: bool) {
        self.call("Emulation.setScriptExecutionDisabled", json!({"value": is_forbidden}));
    }

    /// Puts downloads into this directory, under the names that the server gives.
    /// [`Browser::wait_for_download`] waits for each.
    #[track_caller]
    pub fn save_downloads(&mut self, directory: &Path) {
        let parameters = json!({"behavior": "allow", "downloadPath": directory, "eventsEnabled": true});
        self.call("Browser.setDownloadBehavior", parameters);
    }

    /// Waits until a download is complete that no other call has waited for.
    ///
    /// # Panics
    /// If that takes longer than two minutes.
    #[track_caller]
    pub fn wait_for_download(&mut self) {
        crate::Deadline::wait_until("a complete download", TIMEOUT, || {
            // Reads the events so far.
            self.evaluate("0");
            let left = self.connection.downloads.checked_sub(1)?;
            self.connection.downloads = left;
            Some(())
        });
    }

    /// Opens a URL, and waits until it is loaded with all that it contains.
    ///
    /// # Panics
    /// If it cannot be opened.
    #[track_caller]
    pub fn open(&mut self, url: &str) {
        let opened = self.call("Page.navigate", json!({"url": url}));
        if let Some(error) = opened.get("errorText") {
            panic!("{url} cannot be opened: {error}");
        }
        self.wait_for(&format!("{url} to be loaded"), "document.readyState === 'complete'");
    }

    /// Opens a file.
    ///
    /// # Panics
    /// As [`Browser::open`]; also if the file does not exist.
    #[track_caller]
    pub fn open_file(&mut self, file: &Path) {
        match file.canonicalize() {
            Ok(file) => self.open(&format!("file://{}", file.display())),
            Err(error) => panic!("{}: {error}", file.display()),
        }
    }

    /// The value of an expression of JavaScript. A promise is waited for.
    ///
    /// # Panics
    /// If the expression throws.
    #[track_caller]
    pub fn evaluate(&mut self, script: &str) -> Value {
        match self.try_evaluate(script) {
            Ok(value) => value,
            Err(error) => panic!("{script}: {error}"),
        }
    }

    /// The same as text; empty if the value is no text.
    #[track_caller]
    pub fn text(&mut self, script: &str) -> String {
        self.evaluate(script).as_str().unwrap_or_default().to_owned()
    }

    fn try_evaluate(&mut self, script: &str) -> Result<Value, String> {
        let parameters = json!({"expression": script, "awaitPromise": true, "returnByValue": true});
        let answer = self.connection.call("Runtime.evaluate", parameters)?;
        match answer.get("exceptionDetails") {
            Some(exception) => Err(connection::exception_text(exception)),
            None => Ok(answer.pointer("/result/value").cloned().unwrap_or(Value::Null)),
        }
    }

    /// Waits until an expression is true in the sense of JavaScript, and returns its value. While
    /// one page follows another, an expression may fail.
    ///
    /// # Panics
    /// If that takes longer than two minutes; the message has the last value or error, the text of
    /// the page, and the problems so far.
    #[track_caller]
    pub fn wait_for(&mut self, what: &str, script: &str) -> Value {
        let deadline = crate::Deadline::after(TIMEOUT);
        loop {
            let last = self.try_evaluate(script);
            match &last {
                Ok(Value::Null | Value::Bool(false)) | Err(_) => {}
                Ok(Value::String(text)) if text.is_empty() => {}
                Ok(Value::Number(number)) if number.as_f64() == Some(0.0) => {}
                Ok(value) => return value.clone(),
            }
            if deadline.left().is_none() {
                let page = self.try_evaluate("document.body && document.body.innerText");
                let problems = self.problems();
                panic!(
                    "waited {TIMEOUT:?} in vain for {what}: {script} is {last:?}\n\
                     the page: {page:?}\nproblems: {problems:#?}"
                );
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Clicks in the middle of the element of this selector, with the mouse, once the page is
    /// loaded. The element must be the one that a person would hit there.
    ///
    /// # Panics
    /// If there is no such element within two minutes, or another element covers it.
    #[track_caller]
    pub fn click(&mut self, selector: &str) {
        let quoted = Value::from(selector);
        let find = format!(
            "(() => {{ const one = document.querySelector({quoted}); \
             if (!one || document.readyState !== 'complete') return null; \
             one.scrollIntoView({{block: 'center', behavior: 'instant'}}); \
             const box = one.getClientRects()[0]; if (!box) return null; \
             const x = box.x + box.width / 2, y = box.y + box.height / 2; \
             const hit = document.elementFromPoint(x, y); \
             return one.contains(hit) || (hit && hit.contains(one)) ? [x, y] : null; }})()"
        );
        let place = self.wait_for(&format!("{selector} to be there and uncovered"), &find);
        let (x, y) = (place[0].clone(), place[1].clone());
        for (kind, buttons) in [("mouseMoved", 0), ("mousePressed", 1), ("mouseReleased", 0)] {
            let event = json!({"type": kind, "x": x, "y": y, "button": "left", "buttons": buttons,
                "clickCount": 1});
            self.call("Input.dispatchMouseEvent", event);
        }
    }

    /// Presses a key and lets it go: `Tab`, `Enter`, `ArrowLeft`, `Escape`, or a character.
    #[track_caller]
    pub fn press(&mut self, key: &str) {
        let (code, text) = match key {
            "Tab" => (9, None),
            "Enter" => (13, Some("\r")),
            "Escape" => (27, None),
            " " => (32, Some(" ")),
            "Home" => (36, None),
            "End" => (35, None),
            "ArrowLeft" => (37, None),
            "ArrowUp" => (38, None),
            "ArrowRight" => (39, None),
            "ArrowDown" => (40, None),
            other => (0, Some(other)),
        };
        let mut event = json!({"type": "keyDown", "key": key, "windowsVirtualKeyCode": code});
        if let Some(text) = text {
            event["text"] = text.into();
        }
        self.call("Input.dispatchKeyEvent", event);
        let event = json!({"type": "keyUp", "key": key, "windowsVirtualKeyCode": code});
        self.call("Input.dispatchKeyEvent", event);
    }

    /// Types a text into the element that has the focus.
    #[track_caller]
    pub fn type_text(&mut self, text: &str) {
        self.call("Input.insertText", json!({"text": text}));
    }

    /// What went wrong in the browser so far: exceptions, errors and warnings of scripts, what the
    /// page's policy forbids, and what could not be loaded.
    #[must_use]
    pub fn problems(&self) -> &[String] {
        &self.connection.problems
    }

    /// Forgets the problems so far.
    pub fn forget_problems(&mut self) {
        self.connection.problems.clear();
    }

    /// The URLs that were asked for so far.
    #[must_use]
    pub fn requests(&self) -> &[String] {
        &self.connection.requests
    }

    /// Writes a picture of the whole page as PNG.
    ///
    /// # Panics
    /// If the file cannot be written.
    #[track_caller]
    pub fn screenshot(&mut self, file: &Path) {
        self.capture(file, json!({"format": "png", "captureBeyondViewport": true}));
    }

    /// Writes a picture of what the window shows as PNG.
    ///
    /// # Panics
    /// If the file cannot be written.
    #[track_caller]
    pub fn screenshot_of_window(&mut self, file: &Path) {
        self.capture(file, json!({"format": "png", "captureBeyondViewport": false}));
    }

    #[track_caller]
    fn capture(&mut self, file: &Path, parameters: Value) {
        let answer = self.call("Page.captureScreenshot", parameters);
        let bytes = connection::from_base64(answer["data"].as_str().unwrap_or_default());
        if let Err(error) = std::fs::write(file, bytes) {
            panic!("{}: {error}", file.display());
        }
    }
}
