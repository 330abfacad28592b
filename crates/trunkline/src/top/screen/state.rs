//! What the screen shows, and what each key changes.

use crate::top::source::{Silent, Source};
use crate::top::view::{Order, View, default_by, needs_files};
use metrics::{Dimension, Interval, Kind, Snapshot};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

/// The intervals of which the load is shown as a curve.
const LOAD_INTERVALS: usize = 300;

/// How the operations are shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// By what they are told apart; empty for what fits the process.
    pub by: Vec<Dimension>,
    /// What the others are left out by.
    pub conditions: Vec<(Dimension, String)>,
    /// The order of the lines.
    pub order: Order,
}

/// What a key asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// To go on.
    GoOn,
    /// To end.
    End,
}

/// A process that is watched.
#[derive(Debug, Clone)]
pub struct Watched {
    /// Its last answer.
    pub snapshot: Snapshot,
    /// From the answer before to the last; after the first, from the start of the process.
    pub interval: Interval,
    /// When it answered last.
    pub answered_at: Instant,
    /// Why it does not answer now, if it does not.
    pub silent: Option<String>,
    /// The operations per second of the last intervals, oldest first.
    pub load: VecDeque<u64>,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct State {
    processes: BTreeMap<Source, Watched>,
    /// The processes as they were when the user paused.
    paused: Option<BTreeMap<Source, Watched>>,
    chosen: Option<Source>,
    /// How the operations are shown.
    pub shown: Shown,
    /// How they were shown before each look into a line.
    before: Vec<Shown>,
    /// The values of the line with the cursor, which may move up and down.
    line: Option<Vec<Option<String>>>,
    /// Whether the keys are explained.
    pub help: bool,
    /// Whether there are colours.
    pub colour: bool,
}

impl State {
    /// Nothing is watched yet.
    pub fn new(shown: Shown, colour: bool) -> Self {
        Self {
            processes: BTreeMap::new(),
            paused: None,
            chosen: None,
            shown,
            before: Vec::new(),
            line: None,
            help: false,
            colour,
        }
    }

    /// Takes the answer of a process, or that there is none.
    pub fn answered(&mut self, source: Source, answer: Result<Snapshot, Silent>, now: Instant) {
        let group = Source::Group(Box::new(source.clone()));
        match answer {
            Ok(mut snapshot) => {
                match snapshot.group.take() {
                    Some(counted) => self.counted(group, *counted, now),
                    None => _ = self.processes.remove(&group),
                }
                self.counted(source, snapshot, now);
            }
            Err(silent) => {
                for source in [source, group] {
                    if silent.has_ended {
                        self.processes.remove(&source);
                    } else if let Some(watched) = self.processes.get_mut(&source) {
                        watched.silent = Some(silent.cause.clone());
                    }
                }
            }
        }
    }

    fn counted(&mut self, source: Source, snapshot: Snapshot, now: Instant) {
        let before = self.processes.get(&source);
        let interval = before.and_then(|before| Interval::between(&before.snapshot, &snapshot).ok());
        let mut load = match (&interval, before) {
            (Some(_), Some(before)) => before.load.clone(),
            _ => VecDeque::new(),
        };
        if let Some(interval) = &interval {
            load.push_back((interval.operations.total().count as f64 / interval.seconds) as u64);
        }
        while load.len() > LOAD_INTERVALS {
            load.pop_front();
        }
        let interval = interval.unwrap_or_else(|| Interval::since_start(&snapshot));
        let watched = Watched { snapshot, interval, answered_at: now, silent: None, load };
        self.processes.insert(source, watched);
    }

    /// Whether the operations by file are shown.
    pub fn needs_files(&self) -> bool {
        needs_files(&self.shown.by, &self.shown.conditions)
    }

    /// Forgets the processes that are gone.
    pub fn keep(&mut self, is_there: impl Fn(&Source) -> bool) {
        self.processes.retain(|source, _| is_there(source));
    }

    /// The processes: servers first, then in the order of their numbers.
    pub fn processes(&self) -> Vec<(&Source, &Watched)> {
        let mut all: Vec<_> = self.paused.as_ref().unwrap_or(&self.processes).iter().collect();
        all.sort_by_key(|(_, watched)| (watched.snapshot.process.kind, watched.snapshot.process.pid));
        all
    }

    /// The process whose operations are shown, and its place in the list.
    pub fn chosen(&self) -> Option<(usize, &Watched)> {
        let all = self.processes();
        let at = all.iter().position(|(source, _)| Some(*source) == self.chosen.as_ref()).unwrap_or(0);
        all.get(at).map(|(_, watched)| (at, *watched))
    }

    /// Whether the user has paused.
    pub fn is_paused(&self) -> bool {
        self.paused.is_some()
    }

    /// The operations and paths of a process, as they are to be shown.
    pub fn view(&self, watched: &Watched) -> View {
        let Shown { by, conditions, order } = &self.shown;
        View::new(&watched.snapshot, &watched.interval, by, conditions, *order)
    }

    /// All operations and paths of a process.
    pub fn whole(&self, watched: &Watched) -> View {
        View::new(&watched.snapshot, &watched.interval, &[], &[], Order::Ops)
    }

    /// The place of the line with the cursor.
    pub fn line(&self, view: &View) -> Option<usize> {
        let wanted = self.line.as_ref()?;
        view.lines.iter().position(|line| line.values == *wanted)
    }

    fn chosen_view(&self) -> Option<View> {
        self.chosen().map(|(_, watched)| self.view(watched))
    }

    /// Does what a key stands for.
    pub fn key(&mut self, key: KeyEvent) -> Action {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if std::mem::take(&mut self.help) && key.code != KeyCode::Char('q') && !control {
            return Action::GoOn;
        }
        match key.code {
            KeyCode::Char('q') => return Action::End,
            KeyCode::Char('c' | 'd') if control => return Action::End,
            _ if control => {}
            KeyCode::Tab | KeyCode::Right => self.choose(1),
            KeyCode::BackTab | KeyCode::Left => self.choose(-1),
            KeyCode::Down | KeyCode::Char('j') => self.move_line(1),
            KeyCode::Up | KeyCode::Char('k') => self.move_line(-1),
            KeyCode::Enter => self.look_into(),
            KeyCode::Backspace | KeyCode::Esc => self.look_back(),
            KeyCode::Char('s') => self.shown.order = self.shown.order.next(),
            KeyCode::Char('p' | ' ') => self.pause(),
            KeyCode::Char('?' | 'h') => self.help = true,
            KeyCode::Char(digit) => self.toggle(digit),
            _ => {}
        }
        Action::GoOn
    }

    fn choose(&mut self, by: isize) {
        let all = self.processes();
        let Some((at, _)) = self.chosen() else { return };
        let next = at.checked_add_signed(by).unwrap_or(all.len().saturating_sub(1));
        let next = if next >= all.len() { 0 } else { next };
        self.chosen = all.get(next).map(|(source, _)| (*source).clone());
        self.line = None;
        // What was looked into is of another process.
        if !self.before.is_empty() {
            self.shown = Shown { order: self.shown.order, ..self.before.swap_remove(0) };
            self.before.clear();
        }
    }

    fn move_line(&mut self, by: isize) {
        let Some(view) = self.chosen_view() else { return };
        let last = view.lines.len().saturating_sub(1);
        let next = match self.line(&view) {
            Some(at) => at.saturating_add_signed(by).min(last),
            None => 0,
        };
        self.line = view.lines.get(next).map(|line| line.values.clone());
    }

    /// Shows only the operations of the line with the cursor, told apart by what is not known of
    /// them yet.
    fn look_into(&mut self) {
        let Some(view) = self.chosen_view() else { return };
        let Some(line) = self.line(&view).and_then(|at| view.lines.get(at)) else { return };
        let mut next = self.shown.clone();
        for (dimension, value) in view.by.iter().zip(&line.values) {
            next.conditions.retain(|(other, _)| other != dimension);
            next.conditions.extend(value.clone().map(|value| (*dimension, value)));
        }
        let known = |dimension: Dimension| next.conditions.iter().any(|(other, _)| *other == dimension);
        let mut there_are = view.snapshot.operations.dimensions();
        if view.snapshot.process.kind == Kind::Serve {
            there_are.push(Dimension::File);
        }
        let Some(by) = Dimension::next(&there_are, known) else { return };
        next.by = vec![by];
        self.before.push(std::mem::replace(&mut self.shown, next));
        self.line = None;
    }

    fn look_back(&mut self) {
        if let Some(before) = self.before.pop() {
            self.shown = Shown { order: self.shown.order, ..before };
            self.line = None;
        }
    }

    fn pause(&mut self) {
        self.paused = match self.paused {
            Some(_) => None,
            None => Some(self.processes.clone()),
        };
    }

    /// `1` to `7`: tells operations apart by that dimension, or no longer. One always remains.
    fn toggle(&mut self, digit: char) {
        let number = digit.to_digit(10).and_then(|digit| usize::try_from(digit).ok()?.checked_sub(1));
        let Some(dimension) = number.and_then(|number| Dimension::ALL.get(number)) else { return };
        let Some((_, watched)) = self.chosen() else { return };
        if self.shown.by.is_empty() {
            self.shown.by = default_by(&watched.snapshot);
        }
        let by = &mut self.shown.by;
        match by.iter().position(|other| other == dimension) {
            Some(at) if by.len() > 1 => _ = by.remove(at),
            Some(_) => {}
            None => by.push(*dimension),
        }
        by.sort_unstable();
        self.line = None;
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::top::view::tests::{example, snapshot};

    pub fn state() -> State {
        let shown = Shown { by: Vec::new(), conditions: Vec::new(), order: Order::Ops };
        let mut state = State::new(shown, true);
        state.answered(Source::Process(7), Ok(example()), Instant::now());
        state
    }

    fn press(state: &mut State, keys: &[KeyCode]) {
        for key in keys {
            assert_eq!(state.key(KeyEvent::from(*key)), Action::GoOn);
        }
    }

    fn lines(state: &State) -> Vec<String> {
        state.chosen_view().unwrap().lines.iter().map(|line| line.names.join(" ")).collect()
    }

    #[test]
    fn enter_looks_into_a_line_and_backspace_leads_back() {
        let mut state = state();
        assert_eq!(lines(&state), ["node2 GETATTR", "node1 READ"]);
        press(&mut state, &[KeyCode::Down, KeyCode::Down, KeyCode::Enter]);
        let conditions = [(Dimension::Node, "node1".to_owned()), (Dimension::Operation, "READ".to_owned())];
        assert_eq!(state.shown.conditions, conditions);
        assert_eq!(lines(&state), ["10.0.0.7", "10.0.0.8"]);
        press(&mut state, &[KeyCode::Down, KeyCode::Enter]);
        assert_eq!(state.shown.by, [Dimension::Size]);
        press(&mut state, &[KeyCode::Backspace, KeyCode::Esc]);
        assert_eq!(lines(&state), ["node2 GETATTR", "node1 READ"]);
        press(&mut state, &[KeyCode::Backspace]);
        assert!(state.shown.conditions.is_empty());
    }

    #[test]
    fn the_cursor_stays_on_its_line_when_the_order_changes() {
        let mut state = state();
        press(&mut state, &[KeyCode::Down]);
        let at = |state: &State| state.line(&state.chosen_view().unwrap());
        assert_eq!(at(&state), Some(0));
        press(&mut state, &[KeyCode::Char('s')]);
        assert_eq!((state.shown.order, at(&state)), (Order::Bytes, Some(1)));
    }

    #[test]
    fn digits_choose_the_dimensions_and_one_remains() {
        let mut state = state();
        press(&mut state, &[KeyCode::Char('2'), KeyCode::Char('1'), KeyCode::Char('5')]);
        assert_eq!(state.shown.by, [Dimension::Client]);
        press(&mut state, &[KeyCode::Char('2'), KeyCode::Char('9'), KeyCode::Char('0')]);
        assert_eq!(state.shown.by, [Dimension::Client]);
    }

    #[test]
    fn a_pause_shows_what_was_and_counting_goes_on() {
        let mut state = state();
        press(&mut state, &[KeyCode::Char('p')]);
        let mut later = snapshot(&[("node1", "10.0.0.7", "READ", 130, 1 << 20)]);
        later.uptime_ms += 1000;
        state.answered(Source::Process(7), Ok(later), Instant::now());
        assert!(state.is_paused());
        assert_eq!(lines(&state).len(), 2);
        press(&mut state, &[KeyCode::Char(' ')]);
        assert_eq!(lines(&state), ["node1 READ"]);
        assert_eq!(state.chosen().unwrap().1.load, [100]);
    }

    #[test]
    fn a_silent_process_stays_with_its_cause_and_an_ended_one_leaves() {
        let mut state = state();
        let silent = |has_ended| Silent::for_test("it does not answer", has_ended);
        state.answered(Source::Process(7), Err(silent(false)), Instant::now());
        let watched = state.chosen().unwrap().1;
        assert_eq!(watched.silent.as_deref(), Some("it does not answer"));
        state.answered(Source::Process(7), Err(silent(true)), Instant::now());
        assert!(state.chosen().is_none());
        press(&mut state, &[KeyCode::Down, KeyCode::Enter, KeyCode::Tab, KeyCode::Char('1')]);
    }

    #[test]
    fn tab_goes_round_the_processes() {
        let mut state = state();
        let mut other = example();
        other.process.pid = 9;
        state.answered(Source::Process(9), Ok(other), Instant::now());
        let pid = |state: &State| state.chosen().unwrap().1.snapshot.process.pid;
        assert_eq!(pid(&state), 7);
        press(&mut state, &[KeyCode::Down, KeyCode::Enter, KeyCode::Tab]);
        assert_eq!(pid(&state), 9);
        assert!(state.shown.conditions.is_empty(), "what was looked into is of another process");
        press(&mut state, &[KeyCode::Tab]);
        assert_eq!(pid(&state), 7);
        press(&mut state, &[KeyCode::BackTab]);
        assert_eq!(pid(&state), 9);
        state.keep(|source| *source == Source::Process(7));
        assert_eq!(pid(&state), 7);
    }

    #[test]
    fn q_and_control_c_end() {
        let mut state = state();
        assert_eq!(state.key(KeyEvent::from(KeyCode::Char('q'))), Action::End);
        let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(state.key(control_c), Action::End);
        state.help = true;
        assert_eq!(state.key(control_c), Action::End);
    }
}
