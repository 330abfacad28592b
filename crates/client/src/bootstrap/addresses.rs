//! Which address a mount begins at: the first that answers, in the order of preference.
//!
//! Addresses are tried one after the other, each a moment after the one before and not only when
//! that has failed, in the manner of RFC 8305 s5: otherwise the time limits of dead addresses would
//! add up. An address that answers ends the attempts. A refusal is an answer too, but only once all
//! addresses before it have failed: the preferred one may answer otherwise.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use super::{PathKind, Root, bootstrap, nfs4};
use crate::error::MountError;
use crate::options::Remote;
use crate::settings::{OtherAddress, Settings};

/// An address has this long before the next one is tried as well. RFC 8305 s8
const STAGGER: Duration = Duration::from_millis(250);
/// All addresses are tried within this time, however many there are: that in which an address must
/// accept a connection.
const ALL_STARTED: Duration = Duration::from_secs(2);

/// One attempt: the settings for an address, and whom to ask first.
type Candidate = (Settings, Remote);
/// What a mount begins with: the settings for the address, the root, and a session in version 4.
pub(crate) type Outcome = Result<(Settings, Root, Option<nfs4::Begun>), MountError>;

/// Mounts from the first address that answers, and returns the settings for it. If none answers,
/// the error is that of the first address, which the user named.
pub(crate) fn bootstrap_at_any_address(settings: Settings, kind: PathKind, credential: &[u8]) -> Outcome {
    let mut candidates = candidates(settings);
    if candidates.len() == 1
        && let Some(candidate) = candidates.pop()
    {
        return attempt(candidate, kind, credential);
    }
    let stagger = STAGGER.min(ALL_STARTED / u32::try_from(candidates.len().max(1)).unwrap_or(u32::MAX));
    let (sender, receiver) = channel();
    let mut outcomes: Vec<Option<Outcome>> = candidates.iter().map(|_| None).collect();
    let mut waiting = candidates.into_iter().enumerate();
    let mut running = 0;
    loop {
        let next = waiting.next();
        let is_last = next.is_none();
        if let Some((at, candidate)) = next {
            start(at, candidate, kind, credential, &sender)?;
            running += 1;
        }
        while running > 0 {
            let wait = if is_last { Duration::MAX } else { stagger };
            match receiver.recv_timeout(wait) {
                Ok((at, outcome)) => {
                    running -= 1;
                    if let Some(place) = outcomes.get_mut(at) {
                        *place = Some(outcome);
                    }
                    if let Some(decision) = decide(&mut outcomes) {
                        return decision;
                    }
                }
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return Err(MountError::Local(LOST.to_owned())),
            }
            // One that failed needs no more time.
            if !is_last {
                break;
            }
        }
        if is_last {
            return Err(MountError::Local(LOST.to_owned()));
        }
    }
}

/// Every attempt reports its outcome, and the last one decides.
const LOST: &str = "the attempts to mount ended without an outcome";

/// The addresses in the order of preference, each with its settings: the remotes of the settings,
/// then the other addresses of the server's name.
fn candidates(mut settings: Settings) -> Vec<Candidate> {
    let others = std::mem::take(&mut settings.other_addresses);
    let first = first_asked(&settings).into_iter().map(|remote| (settings.clone(), remote));
    let mut all: Vec<Candidate> = first.collect();
    for OtherAddress { address, locals, congestion } in others {
        let remotes = vec![address.into()];
        let settings = Settings { server: address, remotes, locals, congestion, ..settings.clone() };
        all.push((settings, address.into()));
    }
    all
}

/// The remotes, starting with those at the address that the user named; that address comes first
/// even if it is none of them.
pub(crate) fn first_asked(settings: &Settings) -> Vec<Remote> {
    let is_named = |remote: &Remote| remote.address == settings.server;
    let (mut first, others): (Vec<Remote>, Vec<Remote>) =
        settings.remotes.iter().partition(|it| is_named(it));
    if first.is_empty() {
        first.push(settings.server.into());
    }
    first.extend(others);
    first
}

/// Starts an attempt on a thread of its own, which ends with the attempt's time limits at the
/// latest: nobody waits for an attempt that came too late.
fn start(
    at: usize,
    candidate: Candidate,
    kind: PathKind,
    credential: &[u8],
    sender: &Sender<(usize, Outcome)>,
) -> Result<(), MountError> {
    let (sender, credential) = (sender.clone(), credential.to_vec());
    let run = move || {
        // The mount may have begun elsewhere.
        let _ = sender.send((at, attempt(candidate, kind, &credential)));
    };
    let named = std::thread::Builder::new().name("tl-mount".to_owned());
    named.spawn(run).map(drop).map_err(|error| MountError::Local(error.to_string()))
}

fn attempt((settings, remote): Candidate, kind: PathKind, credential: &[u8]) -> Outcome {
    let root = bootstrap(&settings, &remote, kind, credential);
    if let Err(error) = &root {
        tracing::info!(address = %remote.address, %error, "an address of the server fails");
    }
    let (root, begun) = root?;
    Ok((settings, root, begun))
}

/// The outcome of all attempts, if it is known: a success, or a refusal or the last failure if all
/// attempts before it have failed.
fn decide(outcomes: &mut [Option<Outcome>]) -> Option<Outcome> {
    let fails = |outcome: &Option<Outcome>| matches!(outcome, Some(Err(error)) if error.is_of_address());
    let success = outcomes.iter().position(|outcome| matches!(outcome, Some(Ok(_))));
    let first_open = || outcomes.iter().position(|outcome| !fails(outcome));
    let at = success.or_else(first_open).unwrap_or(0);
    outcomes.get_mut(at)?.take()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(what: &str) -> Option<Outcome> {
        Some(Err(MountError::Local(what.to_owned())))
    }

    fn refused() -> Option<Outcome> {
        let address = ([127, 0, 0, 1], 1).into();
        Some(Err(MountError::NoExport { address, path: String::new(), exports: String::new() }))
    }

    #[test]
    fn a_refusal_decides_only_when_all_before_it_have_failed_and_the_first_error_is_told() {
        let text = |outcome: Option<Outcome>| outcome.map(|outcome| outcome.unwrap_err().to_string());
        assert_eq!(text(decide(&mut [failed("a"), None, None])), None);
        assert_eq!(text(decide(&mut [None, refused(), None])), None);
        assert_eq!(text(decide(&mut [failed("a"), refused(), None])), text(refused()));
        let all = text(decide(&mut [failed("a"), failed("b")])).unwrap();
        assert!(all.contains('a'), "{all}");
    }
}
