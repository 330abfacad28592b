//! What each client of an experiment with several clients did, and which of them are stragglers.

use serde::{Deserialize, Serialize};

use crate::stats;

/// A client that moved less than this share of what the median client moved is a straggler.
pub const STRAGGLER_SHARE: f64 = 0.5;
/// A client that took this many times as long as the median client to do its part is a straggler.
pub const STRAGGLER_TIMES: f64 = 1.5;

/// One client's part of a workload on a route, over all repeats.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClientResult {
    /// The client's name, as the experiment gives it.
    pub name: String,
    /// The version of Trunkline that ran there.
    pub version: String,
    /// Operations of all repeats.
    pub ops: u64,
    /// Payload bytes of all repeats.
    pub bytes: u64,
    /// The fraction of all clients' bytes.
    pub share: f64,
    /// How much later than the first client this one started, in milliseconds: the greatest of all
    /// repeats.
    pub start_offset_ms: f64,
    /// The error of `start_offset_ms`: half of the shortest round trip to the client.
    pub clock_error_ms: f64,
    /// When its first event loop finished its last operation, in seconds since the start: the
    /// median of the repeats. Absent if it finished none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_done_s: Option<f64>,
    /// The same of its last event loop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_done_s: Option<f64>,
    /// Whether the client is a straggler: [`STRAGGLER_SHARE`] and [`STRAGGLER_TIMES`] define it.
    pub straggler: bool,
    /// Why the client is gone; absent if it took part until the end. A repeat that a client left
    /// does not count for any client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
}

/// Sets the shares, and marks the stragglers. All clients are to have had the same work.
pub fn compare(clients: &mut [ClientResult]) {
    let bytes: Vec<u64> = clients.iter().map(|client| client.bytes).collect();
    let shares = stats::shares(&bytes);
    let median_share = stats::median(&shares).unwrap_or_default();
    let done: Vec<f64> = clients.iter().filter_map(|client| client.last_done_s).collect();
    let median_done = stats::median(&done).unwrap_or(f64::INFINITY);
    for (index, client) in clients.iter_mut().enumerate() {
        client.share = shares.get(index).copied().unwrap_or_default();
        let late = client.last_done_s.is_some_and(|done| done > STRAGGLER_TIMES * median_done);
        client.straggler = client.share < STRAGGLER_SHARE * median_share || late;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clients(of: &[(u64, f64)]) -> Vec<ClientResult> {
        let client = |&(bytes, done): &(u64, f64)| ClientResult {
            bytes,
            last_done_s: Some(done),
            ..ClientResult::default()
        };
        let mut clients: Vec<ClientResult> = of.iter().map(client).collect();
        compare(&mut clients);
        clients
    }

    fn stragglers(of: &[(u64, f64)]) -> Vec<bool> {
        clients(of).iter().map(|client| client.straggler).collect()
    }

    #[test]
    fn a_client_with_less_than_half_of_the_medians_share_is_a_straggler() {
        assert_eq!(stragglers(&[(100, 1.0), (100, 1.0), (49, 1.0), (300, 1.0)]), [false, false, true, false]);
        assert_eq!(stragglers(&[(100, 1.0), (100, 1.0), (51, 1.0)]), [false; 3]);
    }

    #[test]
    fn a_client_that_finishes_its_part_late_is_a_straggler() {
        assert_eq!(stragglers(&[(100, 1.0), (100, 1.1), (100, 1.7)]), [false, false, true]);
        assert_eq!(stragglers(&[(100, 1.0), (100, 1.1), (100, 1.6)]), [false; 3]);
    }

    #[test]
    fn shares_are_of_all_and_nothing_done_marks_nobody() {
        let found = clients(&[(3, 1.0), (1, 1.0)]);
        assert_eq!((found[0].share, found[1].share), (0.75, 0.25));
        assert_eq!(stragglers(&[(0, 0.0), (0, 0.0)]), [false; 2]);
        assert!(clients(&[]).is_empty());
    }
}
