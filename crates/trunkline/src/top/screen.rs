//! The full screen of `trunkline top`: processes, the operations of the one that is chosen, and its
//! paths.

mod draw;
mod state;

pub use self::state::Shown;
use self::state::{Action, State};
use super::TopArgs;
use super::source::{Silent, Source};
use crate::error::Error;
use crate::{live, output};
use metrics::Snapshot;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use signal_hook::consts::{SIGHUP, SIGTERM};
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// How often keys and signals are looked for.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The exit status once nobody can see the screen.
const TERMINAL_IS_CLOSED: i32 = 1;

/// Whether the full screen can be shown: standard output is a terminal that can move its cursor.
pub fn is_possible() -> bool {
    output::stdout_is_terminal() && std::env::var_os("TERM").is_some_and(|term| term != "dumb")
}

/// Shows the full screen until the user ends it.
///
/// # Errors
/// There is nothing to watch, or the terminal cannot be used.
pub fn run(args: &TopArgs) -> Result<(), Error> {
    // What cannot be watched at all is an error on the ordinary screen.
    let first = args.ask(&super::Previous::new())?;
    let mut state = State::new(args.view(), output::stdout_has_colour());
    let now = Instant::now();
    for snapshot in first.snapshots {
        let source = args.source_of(&snapshot);
        state.answered(source, Ok(snapshot), now);
    }
    for silent in first.silent {
        tracing::debug!(cause = silent.cause, "{} tells nothing", silent.who);
    }
    let ended = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&ended)).map_err(Error::Signals)?;
    }
    end_with_terminal();
    let shown = ratatui::try_init().map_err(no_terminal).and_then(|mut terminal| {
        let watched = watch(&mut terminal, args, &mut state, &ended);
        let restored = ratatui::try_restore().map_err(no_terminal);
        watched.and(restored)
    });
    // This thread may meet the closed terminal before the one that waits for it.
    if shown.is_err() && output::is_hung_up() {
        std::process::exit(TERMINAL_IS_CLOSED);
    }
    shown
}

/// Ends the process once its terminal is closed. The library that reads keys then reads the end of
/// its input again and again, and never returns.
fn end_with_terminal() {
    let thread = std::thread::Builder::new().name("tl-terminal".into());
    let spawned = thread.spawn(|| {
        output::wait_for_hangup();
        std::process::exit(TERMINAL_IS_CLOSED);
    });
    if let Err(error) = spawned {
        tracing::debug!(%error, "a closed terminal will not be noticed");
    }
}

fn no_terminal(error: io::Error) -> Error {
    Error::Usage {
        sentence: "the terminal cannot be used".to_owned(),
        cause: error.to_string(),
        advice: "`trunkline top --batch N` prints lines".to_owned(),
    }
}

fn watch(
    terminal: &mut DefaultTerminal,
    args: &TopArgs,
    state: &mut State,
    ended: &AtomicBool,
) -> Result<(), Error> {
    let token = args.token.as_deref().map(live::read_token).transpose()?;
    let mut asker = Asker::new(token);
    let mut next = Instant::now() + args.interval;
    let mut is_changed = true;
    while !ended.load(Ordering::Relaxed) {
        if Instant::now() >= next {
            // After a stop, the rounds that are over are left out.
            next = (next + args.interval).max(Instant::now());
            let sources = args.target().sources();
            state.keep(|source| {
                let process = source.process();
                sources.contains(process) || asker.waits_for(process)
            });
            asker.ask(sources, state.needs_files().then(|| args.files_time()));
            is_changed = true;
        }
        while let Some((source, answer)) = asker.answer() {
            state.answered(source, answer, Instant::now());
            is_changed = true;
        }
        if is_changed {
            terminal.draw(|frame| draw::draw(frame, state, Instant::now())).map_err(no_terminal)?;
            is_changed = false;
        }
        if event::poll(POLL_INTERVAL).map_err(no_terminal)? {
            is_changed = true;
            if let Event::Key(key) = event::read().map_err(no_terminal)?
                && key.kind == KeyEventKind::Press
                && state.key(key) == Action::End
            {
                return Ok(());
            }
        }
    }
    Ok(())
}

type Answer = (Source, Result<Snapshot, Silent>);

/// Asks processes on threads of their own, so that the screen never waits for one.
struct Asker {
    token: Option<Arc<str>>,
    /// Those that have not answered yet.
    asked: BTreeSet<Source>,
    sender: Sender<Answer>,
    answers: Receiver<Answer>,
}

impl Asker {
    fn new(token: Option<String>) -> Self {
        let (sender, answers) = channel();
        Self { token: token.map(Arc::from), asked: BTreeSet::new(), sender, answers }
    }

    fn ask(&mut self, sources: Vec<Source>, by_file: Option<Duration>) {
        for source in sources {
            if self.asked.contains(&source) {
                continue;
            }
            let (sender, token, whom) = (self.sender.clone(), self.token.clone(), source.clone());
            let thread = std::thread::Builder::new().name("tl-ask".into());
            let spawned = thread.spawn(move || {
                let answer = whom.ask(token.as_deref(), by_file);
                // The screen may have ended.
                let _ = sender.send((whom, answer));
            });
            // Without a thread, the process is asked the next time.
            if spawned.is_ok() {
                self.asked.insert(source);
            }
        }
    }

    fn waits_for(&self, source: &Source) -> bool {
        self.asked.contains(source)
    }

    fn answer(&mut self) -> Option<Answer> {
        let answer = self.answers.try_recv().ok()?;
        self.asked.remove(&answer.0);
        Some(answer)
    }
}
