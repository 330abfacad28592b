//! Draws the screen.

use super::state::{State, Watched};
use crate::names;
use crate::top::format;
use crate::top::source::whose;
use crate::top::view::View;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Sparkline, Table, TableState, Wrap};
use std::time::{Duration, Instant};

/// The most lines of the list of processes, without its head.
const PROCESSES_MAX: u16 = 8;
/// The lines of the curve.
const LOAD_LINES: u16 = 2;
/// Below this height the curve is left out.
const HEIGHT_WITH_LOAD: u16 = 20;
/// A process that has not answered for this long is shown as silent, even if it was not asked in
/// vain yet.
const SILENT_AFTER: Duration = Duration::from_secs(3);

const KEYS: &str = " q end  Tab next process  Up/Down line  Enter look into  Backspace back  \
    1-7 columns  s sort  p pause  ? help";

const HELP: &str = "
 Tab, Shift-Tab    the next process, the one before
 Up, Down          the line
 Enter             only the operations of this line, told apart by what is not known of them yet
 Backspace         back
 1 to 7            tell operations apart by node, client, export, path, operation, size, file
 s                 sort by ops, bytes, p99, errors, name
 p                 pause, and go on
 q, Ctrl-C         end

 share             the line's part of all bytes, or of all operations where no bytes move
 p50, p99, max     latency within the interval. At a server it counts from the receipt of a call
                   to the end of its reply, at a client from the sending of a call to its reply.

 Any key closes this text.";

/// Draws everything.
pub fn draw(frame: &mut Frame<'_>, state: &State, now: Instant) {
    let processes = state.processes();
    let list = u16::try_from(processes.len()).unwrap_or(PROCESSES_MAX).clamp(1, PROCESSES_MAX) + 1;
    let load = if frame.area().height >= HEIGHT_WITH_LOAD { LOAD_LINES } else { 0 };
    let [list, load, main, keys] = Layout::vertical([
        Constraint::Length(list),
        Constraint::Length(load),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(KEYS).style(Style::new().add_modifier(Modifier::REVERSED)), keys);
    if state.help {
        frame.render_widget(Paragraph::new(HELP).wrap(Wrap { trim: false }), main);
        return;
    }
    let Some((at, chosen)) = state.chosen() else {
        let text = format!(" no trunkline serve, mount, bench or agent{} answers", whose());
        frame.render_widget(Paragraph::new(text), list);
        return;
    };
    draw_processes(frame, state, &processes, at, list, now);
    draw_load(frame, state, chosen, load);
    draw_process(frame, state, chosen, main);
}

fn colour(state: &State, colour: Color) -> Style {
    if state.colour { Style::new().fg(colour) } else { Style::new() }
}

fn draw_processes(
    frame: &mut Frame<'_>,
    state: &State,
    processes: &[(&super::Source, &Watched)],
    chosen: usize,
    area: Rect,
    now: Instant,
) {
    let rows = processes.iter().map(|(_, watched)| {
        let mut row = format::process(&state.whole(watched));
        let age = now.saturating_duration_since(watched.answered_at);
        // A mount answers for a loop that does not.
        let age = age + Duration::from_millis(watched.snapshot.silent_ms);
        let is_silent = !state.is_paused() && (watched.silent.is_some() || age >= SILENT_AFTER);
        if let (true, Some(name)) = (is_silent, row.last_mut()) {
            let cause = watched.silent.as_deref().unwrap_or("it does not answer");
            let cause = names::escaped(cause.as_bytes());
            *name = format!("{cause} for {} s: {name}", age.as_secs());
        }
        (row, if is_silent { colour(state, Color::Red) } else { Style::new() })
    });
    let rows: Vec<_> = rows.collect();
    let columns =
        Columns { head: format::PROCESS_COLUMNS.map(str::to_owned).to_vec(), words: 1, last_is_text: true };
    draw_table(frame, &columns, &rows, Some(chosen), area);
}

fn draw_load(frame: &mut Frame<'_>, state: &State, watched: &Watched, area: Rect) {
    // The newest intervals end at the right edge.
    let wide = usize::from(area.width);
    let skipped = watched.load.len().saturating_sub(wide);
    let mut load = vec![0; wide.saturating_sub(watched.load.len())];
    load.extend(watched.load.iter().skip(skipped));
    frame.render_widget(Sparkline::default().data(load).style(colour(state, Color::Cyan)), area);
}

fn draw_process(frame: &mut Frame<'_>, state: &State, watched: &Watched, area: Rect) {
    let view = state.view(watched);
    let paths = match view.paths.len() {
        0 => 0,
        count => u16::try_from(count + 2).unwrap_or(u16::MAX).min(area.height / 2),
    };
    let [title, operations, paths] =
        Layout::vertical([Constraint::Length(1), Constraint::Fill(1), Constraint::Length(paths)]).areas(area);
    frame.render_widget(Paragraph::new(heading(state, &view)), title);
    let rows: Vec<_> = view.lines.iter().map(|line| (format::operation(line), Style::new())).collect();
    let selected = state.line(&view);
    let columns =
        Columns { head: format::operation_columns(&view), words: view.by.len(), last_is_text: false };
    draw_table(frame, &columns, &rows, selected, operations);
    if paths.height > 0 {
        let rows = view.paths.iter().map(|path| {
            let style = match path.activity.now.state.as_str() {
                "up" => Style::new(),
                "down" => colour(state, Color::Red),
                _ => colour(state, Color::Yellow),
            };
            (format::path(path), style)
        });
        let [_, table] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(paths);
        let rows: Vec<_> = rows.collect();
        let columns =
            Columns { head: format::PATH_COLUMNS.map(str::to_owned).to_vec(), words: 2, last_is_text: false };
        draw_table(frame, &columns, &rows, None, table);
    }
}

/// What the table of operations shows: `by client, where node=node1, sorted by ops`.
fn heading(state: &State, view: &View) -> Line<'static> {
    let by: Vec<_> = view.by.iter().map(|by| by.name()).collect();
    let mut text = format!(" by {}", by.join(", "));
    for (dimension, value) in &state.shown.conditions {
        text.push_str(&format!(", where {dimension}={}", names::escaped(value.as_bytes())));
    }
    text.push_str(&format!(", sorted by {}", state.shown.order.name()));
    if let Some(delegations) = format::delegations(view) {
        text.push_str(&format!("; {delegations}"));
    }
    let mut spans = vec![Span::styled(text, Style::new().add_modifier(Modifier::UNDERLINED))];
    if state.is_paused() {
        spans.push(Span::styled("  paused", colour(state, Color::Yellow)));
    }
    Line::from(spans)
}

/// The columns of a table. Words are aligned to the left, numbers to the right.
struct Columns {
    head: Vec<String>,
    /// The number of columns with words, which come first.
    words: usize,
    /// Whether the last column has words too.
    last_is_text: bool,
}

impl Columns {
    fn is_text(&self, column: usize) -> bool {
        column < self.words || self.last_is_text && column + 1 == self.head.len()
    }
}

fn draw_table(
    frame: &mut Frame<'_>,
    columns: &Columns,
    rows: &[(Vec<String>, Style)],
    selected: Option<usize>,
    area: Rect,
) {
    let head = &columns.head;
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|(row, _)| row.get(column));
        let widths = cells.chain(head.get(column)).map(|cell| cell.chars().count());
        u16::try_from(widths.max().unwrap_or_default()).unwrap_or(u16::MAX)
    };
    let widths: Vec<u16> = (0..head.len()).map(width).collect();
    let row = |cells: &[String]| {
        Row::new(cells.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            let width = usize::from(*width);
            let is_text = columns.is_text(column);
            Cell::new(if is_text { format!("{cell:<width$}") } else { format!("{cell:>width$}") })
        }))
    };
    let table = Table::new(
        rows.iter().map(|(cells, style)| row(cells).style(*style)),
        widths.iter().map(|width| Constraint::Length(*width)),
    );
    let table = table
        .header(row(head).style(Style::new().add_modifier(Modifier::BOLD)))
        .column_spacing(2)
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
        .highlight_symbol("> ")
        .highlight_spacing(ratatui::widgets::HighlightSpacing::Always);
    frame.render_stateful_widget(table, area, &mut TableState::default().with_selected(selected));
}

#[cfg(test)]
mod tests {
    use super::super::Source;
    use super::super::state::tests::state;
    use super::*;
    use crate::top::view::tests::example;
    use metrics::PathState;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::{KeyCode, KeyEvent};

    fn screen(state: &State, width: u16, height: u16, now: Instant) -> Terminal<TestBackend> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, state, now)).unwrap();
        terminal
    }

    fn text(terminal: &Terminal<TestBackend>) -> String {
        terminal.backend().to_string()
    }

    #[test]
    fn the_screen_has_the_processes_and_the_lines_of_the_chosen_one() {
        let mut state = state();
        state.key(KeyEvent::from(KeyCode::Down));
        let shown = text(&screen(&state, 120, 24, Instant::now()));
        for part in [
            "kind   pid  ops/s  in/s    out/s  p50",
            "> serve    7    470   0 B  21.0 MB",
            "/a",
            "by node, operation, sorted by ops",
            "node   operation  ops/s",
            "> node2  GETATTR      450",
            "node1  READ          20",
            "q end",
        ] {
            assert!(shown.contains(part), "{part} is not in\n{shown}");
        }
    }

    #[test]
    fn a_path_that_is_down_is_red_unless_no_colour_is_wanted() {
        let mut snapshot = example();
        let path = |name: &str, state: &str| PathState {
            name: name.into(),
            node: name.into(),
            state: state.into(),
            since_ms: 61_000,
            failovers: 1,
            moved_calls: 0,
            retransmissions: 0,
            deaths: 1,
            gap_worst_ms: 410,
            gap_last_ms: 410,
        };
        snapshot.paths = vec![path("10.0.0.1:2049", "up"), path("10.0.0.2:2049", "down")];
        for colour in [true, false] {
            let mut state = state();
            state.colour = colour;
            state.answered(Source::Process(7), Ok(snapshot.clone()), Instant::now());
            let terminal = screen(&state, 120, 24, Instant::now());
            let shown = text(&terminal);
            assert!(shown.contains("10.0.0.2:2049  down   61 s"), "{shown}");
            let buffer = terminal.backend().buffer();
            let red = buffer.content().iter().any(|cell| cell.fg == Color::Red);
            assert_eq!(red, colour);
        }
    }

    #[test]
    fn a_process_that_does_not_answer_says_so() {
        let state = state();
        let shown = text(&screen(&state, 120, 24, Instant::now() + Duration::from_secs(9)));
        assert!(shown.contains("it does not answer for 9 s"), "{shown}");
    }

    #[test]
    fn a_mount_of_which_a_loop_does_not_answer_says_so() {
        let mut state = state();
        let hung = metrics::Snapshot { silent_ms: 9_000, uptime_ms: 3_000, ..example() };
        state.answered(Source::Process(7), Ok(hung), Instant::now());
        let shown = text(&screen(&state, 120, 24, Instant::now()));
        assert!(shown.contains("it does not answer for 9 s"), "{shown}");
    }

    #[test]
    fn any_size_of_the_terminal_can_be_drawn() {
        let mut state = state();
        for help in [false, true] {
            state.help = help;
            for (width, height) in [(1, 1), (2, 3), (10, 5), (40, 12), (300, 100)] {
                screen(&state, width, height, Instant::now());
            }
        }
        state.keep(|_| false);
        state.help = false;
        assert!(text(&screen(&state, 80, 10, Instant::now())).contains("no trunkline serve"));
    }

    #[test]
    fn the_keys_are_explained() {
        let mut state = state();
        state.key(KeyEvent::from(KeyCode::Char('?')));
        assert!(text(&screen(&state, 110, 24, Instant::now())).contains("tell operations apart by"));
        state.key(KeyEvent::from(KeyCode::Char('s')));
        assert!(!state.help);
    }
}
