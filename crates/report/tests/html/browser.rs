//! A headless Chromium, driven over its DevTools protocol.

use std::collections::VecDeque;
use std::env;
use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use data_encoding::BASE64;
use serde_json::{Value, json};
use tempfile::TempDir;
use tungstenite::{Message, WebSocket};

/// How the browser is called.
const NAMES: [&str; 4] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
];

/// What it may take: far more than it needs, so that a hang ends.
const PATIENCE: Duration = Duration::from_secs(120);

/// The browser, if there is one.
fn find() -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path)
        .flat_map(|folder| NAMES.map(|name| folder.join(name)))
        .find(|candidate| candidate.is_file())
}

/// A page in a browser of its own.
pub(crate) struct Browser {
    process: Child,
    socket: WebSocket<TcpStream>,
    session: Option<String>,
    last: u64,
    events: VecDeque<Value>,
    profile: TempDir,
}

impl Browser {
    /// Starts one; `None`, with a line that says so, where no browser is installed. In CI
    /// there has to be one.
    pub(crate) fn start() -> Option<Self> {
        let Some(program) = find() else {
            assert!(
                env::var_os("CI").is_none(),
                "no browser found: install Debian's chromium"
            );
            let line = "left out: the HTML report in a browser, no chromium found\n";
            std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes()).unwrap();
            return None;
        };
        let profile = tempfile::tempdir().unwrap();
        let process = Command::new(program)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--disable-dev-shm-usage",
                "--remote-debugging-port=0",
                "--window-size=1400,1000",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (port, path) = endpoint(profile.path());
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let address = format!("ws://127.0.0.1:{port}{path}");
        let (socket, _) = tungstenite::client(address, stream).unwrap();
        let mut browser = Self {
            process,
            socket,
            session: None,
            last: 0,
            events: VecDeque::new(),
            profile,
        };
        let target = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let session = browser.call("Target.attachToTarget", attach);
        browser.session = session["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    /// A call of the protocol, and its result.
    pub(crate) fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.last += 1;
        let mut message = json!({"id": self.last, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.socket
            .send(Message::text(message.to_string()))
            .unwrap();
        loop {
            let mut answer = self.receive();
            if answer["id"] == json!(self.last) {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].take();
            }
            self.events.push_back(answer);
        }
    }

    fn receive(&mut self) -> Value {
        loop {
            if let Message::Text(text) = self.socket.read().unwrap() {
                return serde_json::from_str(&text).unwrap();
            }
        }
    }

    /// Opens a page, from a file, and waits until it's loaded.
    pub(crate) fn open(&mut self, page: &str) {
        let path = self.profile.path().join("report.html");
        fs::write(&path, page).unwrap();
        self.goto(&format!("file://{}", path.display()));
    }

    fn goto(&mut self, url: &str) {
        self.events.clear();
        let gone = self.call("Page.navigate", json!({"url": url}));
        assert!(gone["errorText"].is_null(), "{gone}");
        while !self
            .events
            .iter()
            .any(|event| event["method"] == "Page.loadEventFired")
        {
            let event = self.receive();
            self.events.push_back(event);
        }
    }

    /// The value of an expression in the page.
    pub(crate) fn value(&mut self, expression: &str) -> Value {
        let parameters = json!({
            "expression": expression, "returnByValue": true, "awaitPromise": true,
        });
        let result = self.call("Runtime.evaluate", parameters);
        let failed = &result["exceptionDetails"];
        assert!(failed.is_null(), "{expression}: {failed}");
        result["result"]["value"].clone()
    }

    /// A text in the page.
    pub(crate) fn text(&mut self, expression: &str) -> String {
        let value = self.value(expression);
        let text = value.as_str();
        text.unwrap_or_else(|| panic!("{expression} is {value}"))
            .to_owned()
    }

    /// A number in the page.
    pub(crate) fn number(&mut self, expression: &str) -> i64 {
        let value = self.value(expression);
        let number = value.as_f64();
        number.unwrap_or_else(|| panic!("{expression} is {value}")) as i64
    }

    /// Whether something holds in the page.
    pub(crate) fn holds(&mut self, expression: &str) -> bool {
        let value = self.value(expression);
        value
            .as_bool()
            .unwrap_or_else(|| panic!("{expression} is {value}"))
    }

    /// Presses a key, as a person would.
    pub(crate) fn press(&mut self, key: &str) {
        let (code, text) = match key {
            "Enter" => (13, "\r"),
            "Tab" => (9, ""),
            "Escape" => (27, ""),
            "End" => (35, ""),
            "Home" => (36, ""),
            "ArrowLeft" => (37, ""),
            "ArrowUp" => (38, ""),
            "ArrowRight" => (39, ""),
            "ArrowDown" => (40, ""),
            "/" => (191, "/"),
            other => panic!("no code for {other}"),
        };
        let mut event = json!({
            "type": if text.is_empty() { "rawKeyDown" } else { "keyDown" },
            "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text,
        });
        self.call("Input.dispatchKeyEvent", event.clone());
        event["type"] = json!("keyUp");
        self.call("Input.dispatchKeyEvent", event);
    }

    /// Types a text where the focus is.
    pub(crate) fn enter(&mut self, text: &str) {
        self.call("Input.insertText", json!({"text": text}));
    }

    /// Clicks into the middle of an element, after scrolling it into view where it is not.
    pub(crate) fn click(&mut self, selector: &str) {
        let place = self.value(&format!(
            "(async () => {{ const own = document.querySelector({selector:?});
               const middle = () => {{ const box = own.getBoundingClientRect();
                   return [box.x + box.width / 2, box.y + box.height / 2]; }};
               const seen = () => (own.closest('.op') ?? own).contains(document.elementFromPoint(...middle()));
               // What the click before set in motion comes to rest first.
               for (let last = '', tries = 0; tries < 100; tries++) {{
                   if (!seen()) own.scrollIntoView({{block: 'center', behavior: 'instant'}});
                   else if (last === String(middle())) break;
                   last = String(middle());
                   await new Promise((done) => setTimeout(done, 50));
               }}
               return seen() ? middle() : null; }})()"
        ));
        assert!(!place.is_null(), "something lies over {selector}");
        for kind in ["mousePressed", "mouseReleased"] {
            let event = json!({
                "type": kind, "x": place[0], "y": place[1], "button": "left", "clickCount": 1,
            });
            self.call("Input.dispatchMouseEvent", event);
        }
    }

    /// Everything that went wrong on the page, or went out from it.
    pub(crate) fn complaints(&mut self) -> Vec<String> {
        // What was on its way is here once this is answered.
        self.value("new Promise((done) => setTimeout(() => done(1), 0))");
        let complaint = |event: &Value| -> Option<String> {
            let details = &event["params"];
            match event["method"].as_str()? {
                "Runtime.exceptionThrown" | "Runtime.consoleAPICalled" | "Log.entryAdded" => {
                    Some(event.to_string())
                }
                "Network.requestWillBeSent" => {
                    let url = details["request"]["url"].as_str()?;
                    let own = url.ends_with("/report.html") || url.starts_with("data:");
                    (!own).then(|| url.to_owned())
                }
                _ => None,
            }
        };
        self.events.iter().filter_map(complaint).collect()
    }

    /// A file of base64, as the protocol hands pictures and documents over.
    pub(crate) fn file(&mut self, method: &str, parameters: Value) -> Vec<u8> {
        let answer = self.call(method, parameters);
        let data = answer["data"].as_str().unwrap();
        BASE64.decode(data.as_bytes()).unwrap()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It may be gone by itself; then there is nothing to end.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Where a browser that was started with this profile listens.
fn endpoint(profile: &Path) -> (u16, String) {
    let begun = Instant::now();
    loop {
        let text = fs::read_to_string(profile.join("DevToolsActivePort")).unwrap_or_default();
        if let Some((port, path)) = text.split_once('\n')
            && let Ok(port) = port.parse()
        {
            return (port, path.trim().to_owned());
        }
        assert!(begun.elapsed() < PATIENCE, "the browser does not start");
        thread::sleep(Duration::from_millis(20));
    }
}
