//! The WebSocket to the browser: commands, their answers, and the events in between.

use super::TIMEOUT;
use crate::Deadline;
use serde_json::{Value, json};
use std::io::ErrorKind;
use std::net::TcpStream;
use std::time::Duration;
use tungstenite::{Error, Message, WebSocket};

/// How long one read waits before the deadline is looked at again.
const READ_TIMEOUT: Duration = Duration::from_millis(500);

/// A connection to the browser, and to one tab of it.
#[derive(Debug)]
pub(super) struct Connection {
    socket: WebSocket<TcpStream>,
    /// The session with the tab.
    session: Option<String>,
    last_id: u64,
    pub(super) problems: Vec<String>,
    pub(super) requests: Vec<String>,
    /// The downloads that are complete.
    pub(super) downloads: usize,
}

impl Connection {
    /// Connects to the `ws://` URL that the browser has printed.
    ///
    /// # Panics
    /// If that does not work.
    #[track_caller]
    pub(super) fn open(url: &str) -> Self {
        let address = url.trim_start_matches("ws://").split('/').next().unwrap_or_default();
        let stream = TcpStream::connect(address).and_then(|stream| {
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            Ok(stream)
        });
        let stream = stream.unwrap_or_else(|error| panic!("{url}: {error}"));
        let (socket, _) = tungstenite::client(url, stream).unwrap_or_else(|error| panic!("{url}: {error}"));
        let timeout = socket.get_ref().set_read_timeout(Some(READ_TIMEOUT));
        timeout.unwrap_or_else(|error| panic!("{url}: {error}"));
        Self { socket, session: None, last_id: 0, problems: Vec::new(), requests: Vec::new(), downloads: 0 }
    }

    /// Makes a tab, and sends all later commands to it.
    ///
    /// # Panics
    /// If the browser refuses.
    #[track_caller]
    pub(super) fn attach(&mut self) {
        let made = self.call("Target.createTarget", json!({"url": "about:blank"}));
        let target = made.map(|made| made["targetId"].clone());
        let attached = target.and_then(|target| {
            self.call("Target.attachToTarget", json!({"targetId": target, "flatten": true}))
        });
        match attached.map(|attached| attached["sessionId"].as_str().map(str::to_owned)) {
            Ok(Some(session)) => self.session = Some(session),
            other => panic!("no tab: {other:?}"),
        }
    }

    /// Gives a command, and waits for its result.
    pub(super) fn call(&mut self, method: &str, parameters: Value) -> Result<Value, String> {
        self.last_id += 1;
        let id = self.last_id;
        let mut command = json!({"id": id, "method": method, "params": parameters});
        // Downloads are the browser's, not the tab's.
        if let Some(session) = self.session.as_ref().filter(|_| !method.starts_with("Browser.")) {
            command["sessionId"] = session.as_str().into();
        }
        self.socket.send(Message::text(command.to_string())).map_err(|error| error.to_string())?;
        let deadline = Deadline::after(TIMEOUT);
        while deadline.left().is_some() {
            let Some(message) = self.read()? else { continue };
            if message["id"].as_u64() != Some(id) {
                self.note(&message);
                continue;
            }
            return match message.get("error") {
                Some(error) => Err(error.to_string()),
                None => Ok(message["result"].clone()),
            };
        }
        Err(format!("the browser has not answered within {TIMEOUT:?}"))
    }

    /// The next message, if there is one soon.
    fn read(&mut self) -> Result<Option<Value>, String> {
        match self.socket.read() {
            Ok(Message::Text(text)) => {
                serde_json::from_str(&text).map(Some).map_err(|error| error.to_string())
            }
            Ok(_) => Ok(None),
            Err(Error::Io(error)) if is_too_late(error.kind()) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Keeps what an event says.
    fn note(&mut self, event: &Value) {
        let parameters = &event["params"];
        match event["method"].as_str().unwrap_or_default() {
            "Runtime.exceptionThrown" => {
                self.problems.push(exception_text(&parameters["exceptionDetails"]));
            }
            "Runtime.consoleAPICalled"
                if matches!(parameters["type"].as_str(), Some("error" | "warning" | "assert")) =>
            {
                let arguments = parameters["args"].as_array().cloned().unwrap_or_default();
                let words = arguments.iter().map(|one| one.get("value").unwrap_or(one).to_string());
                self.problems.push(words.collect::<Vec<_>>().join(" "));
            }
            "Log.entryAdded"
                if matches!(parameters["entry"]["level"].as_str(), Some("error" | "warning")) =>
            {
                let entry = &parameters["entry"];
                self.problems.push(format!("{}: {}", entry["url"], entry["text"]));
            }
            "Browser.downloadProgress" if parameters["state"] == "completed" => self.downloads += 1,
            "Network.requestWillBeSent" => {
                let url = parameters["request"]["url"].as_str().unwrap_or_default();
                self.requests.push(url.to_owned());
            }
            _ => {}
        }
    }
}

fn is_too_late(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// What an exception says.
pub(super) fn exception_text(details: &Value) -> String {
    let said = details.pointer("/exception/description").or_else(|| details.get("text"));
    said.unwrap_or(details).to_string()
}

/// Bytes from text in base 64, as the browser writes pictures.
pub(super) fn from_base64(text: &str) -> Vec<u8> {
    let digits = text.bytes().filter_map(|byte| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    });
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for digit in digits {
        bits = (bits << 6) | u32::from(digit);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_64_is_read() {
        for (text, bytes) in [
            ("", &b""[..]),
            ("Zg==", b"f"),
            ("Zm8=", b"fo"),
            ("Zm9v", b"foo"),
            ("iVBORw0KGgo=", b"\x89PNG\r\n\x1a\n"),
        ] {
            assert_eq!(from_base64(text), bytes, "{text}");
        }
    }
}
