//! A program in a terminal of its own, and what it shows as a drawing.

use std::fmt::Write as _;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use testkit::Deadline;

/// The place of a character, in the units of the drawing.
const COLUMN: f64 = 8.4;
const ROW: f64 = 17.0;
const MARGIN: f64 = 10.0;
const PAPER: &str = "#16181d";
const INK: &str = "#d8dbe2";
/// The eight colours of a terminal.
const COLOURS: [&str; 8] =
    ["#16181d", "#ef6b6b", "#8cc265", "#e5c07b", "#6aa5e8", "#c586d8", "#56c3cf", "#d8dbe2"];

pub struct Terminal {
    child: Child,
    screen: Arc<Mutex<vt100::Parser>>,
}

impl Terminal {
    /// Starts a program in a terminal of this size, by script(1).
    pub fn start(program: &Command, rows: u16, columns: u16) -> Self {
        let words = std::iter::once(program.get_program()).chain(program.get_args());
        let words: Vec<_> = words.map(|word| word.to_string_lossy().into_owned()).collect();
        let command = format!("stty rows {rows} cols {columns}; exec {}", words.join(" "));
        let mut script = Command::new("script");
        script
            .args(["--quiet", "--return", "--command", &command, "/dev/null"])
            .env("TERM", "xterm-256color");
        let script = script.env_remove("NO_COLOR").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = script.spawn().unwrap_or_else(|error| panic!("script(1) of util-linux: {error}"));
        let screen = Arc::new(Mutex::new(vt100::Parser::new(rows, columns, 0)));
        let (mut output, seen) = (child.stdout.take().unwrap(), Arc::clone(&screen));
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = output.read(&mut buffer) {
                seen.lock().unwrap().process(&buffer[..count]);
            }
        });
        Self { child, screen }
    }

    /// Waits until the screen shows what is wanted.
    pub fn wait_for(&mut self, what: &str, timeout: Duration, is_shown: impl Fn(&str) -> bool) {
        Deadline::wait_until(what, timeout, || {
            is_shown(&self.screen.lock().unwrap().screen().contents()).then_some(())
        });
    }

    /// The screen as a drawing.
    pub fn svg(&self) -> String {
        let parser = self.screen.lock().unwrap();
        let screen = parser.screen();
        let (rows, columns) = screen.size();
        let width = f64::from(columns) * COLUMN + 2.0 * MARGIN;
        let height = f64::from(rows) * ROW + 2.0 * MARGIN;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
             aria-label=\"trunkline top\">\n<rect width=\"{width}\" height=\"{height}\" rx=\"8\" \
             fill=\"{PAPER}\"/>\n<g font-family=\"ui-monospace,Menlo,Consolas,monospace\" \
             font-size=\"14\">\n"
        );
        for row in 0..rows {
            let cells: Vec<Shown> = (0..columns).map(|column| Shown::of(screen.cell(row, column))).collect();
            let mut column = 0;
            for run in cells.chunk_by(|a, b| a.style == b.style) {
                draw(&mut svg, row, column, run);
                column += run.len();
            }
        }
        svg.push_str("</g>\n</svg>\n");
        svg
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The program ends with its terminal.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Style {
    ink: &'static str,
    paper: &'static str,
    is_bold: bool,
    is_underlined: bool,
}

#[derive(Debug, Clone)]
struct Shown {
    text: String,
    style: Style,
}

impl Shown {
    fn of(cell: Option<&vt100::Cell>) -> Self {
        let colour = |colour, or| match colour {
            vt100::Color::Idx(number) => COLOURS.get(usize::from(number % 8)).copied().unwrap_or(or),
            _ => or,
        };
        let Some(cell) = cell else {
            let style = Style { ink: INK, paper: PAPER, is_bold: false, is_underlined: false };
            return Self { text: " ".to_owned(), style };
        };
        let (mut ink, mut paper) = (colour(cell.fgcolor(), INK), colour(cell.bgcolor(), PAPER));
        if cell.inverse() {
            (ink, paper) = (paper, ink);
        }
        let text = if cell.has_contents() { cell.contents().to_owned() } else { " ".to_owned() };
        let style = Style { ink, paper, is_bold: cell.bold(), is_underlined: cell.underline() };
        Self { text, style }
    }
}

/// Draws characters of one style.
fn draw(svg: &mut String, row: u16, column: usize, run: &[Shown]) {
    let Some(Shown { style, .. }) = run.first() else { return };
    let (x, y) = (MARGIN + column as f64 * COLUMN, MARGIN + f64::from(row) * ROW);
    let width = run.len() as f64 * COLUMN;
    if style.paper != PAPER {
        let paper = style.paper;
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{ROW}\" fill=\"{paper}\"/>"
        );
    }
    let text: String = run.iter().map(|shown| shown.text.as_str()).collect();
    let text = text.trim_end();
    if text.is_empty() {
        return;
    }
    let width = text.chars().count() as f64 * COLUMN;
    let bold = if style.is_bold { " font-weight=\"bold\"" } else { "" };
    let underline = if style.is_underlined { " text-decoration=\"underline\"" } else { "" };
    let (ink, y) = (style.ink, y + 13.0);
    // Browsers put spaces of a drawing together, unless they do not break.
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace(' ', "\u{a0}");
    // The length keeps columns below each other in any font.
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" textLength=\"{width:.1}\" fill=\"{ink}\"{bold}{underline}>{text}</text>"
    );
}
