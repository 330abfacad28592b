//! The rows of the table: the work that each row measures, and its marks.

use record::{Direction, Pattern};

/// The units of block sizes.
const MIB: u64 = 1 << 20;
const KIB: u64 = 1 << 10;
/// The block sizes of the fairness rows, and the number of the flood's calls in flight.
pub const SMALL: u64 = 4 * KIB;
pub const FLOOD: u64 = MIB;
pub const FLOOD_DEPTH: u32 = 16;

/// The work of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// READ or WRITE of blocks, with one file for each connection.
    Data {
        /// The order of the blocks.
        pattern: Pattern,
        /// The direction of the blocks.
        direction: Direction,
        /// The size of a block in bytes.
        block: u64,
    },
    /// LOOKUP of a name.
    Lookup,
    /// GETATTR of a directory.
    GetAttr,
    /// CREATE and REMOVE of a name, alternating; each call counts.
    CreateRemove,
    /// A listing of a directory with attributes and handles; each name counts.
    Listing,
    /// READ of 4 KiB blocks one at a time, while another client moves blocks of 1 MiB.
    Fairness {
        /// The direction of the large blocks.
        flood: Direction,
    },
}

/// One line of the table.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// The name of the row, as `--row` takes it.
    pub id: &'static str,
    /// The work that is measured.
    pub work: Work,
    /// The number of calls in flight on each connection.
    pub depth: u32,
    /// The number of connections, each with a file of its own.
    pub connections: u32,
    /// The minimum share of the limit.
    pub of_limit: Option<f64>,
    /// The minimum factor of our speed over that with nfs-ganesha.
    pub of_peer: Option<f64>,
    /// The maximum median latency, relative to the limit's time for a call.
    pub latency: Option<f64>,
    /// The maximum 99th percentile of latency, relative to the limit's.
    pub p99: Option<f64>,
    /// The marks of the server's processor time.
    pub cpu: Option<Cpu>,
}

/// The marks of the processor time that the server uses for each operation.
#[derive(Debug, Clone, Copy)]
pub struct Cpu {
    /// The maximum in microseconds.
    pub us_max: Option<f64>,
    /// The maximum relative to the calibrator's server end.
    pub of_limit: Option<f64>,
    /// The maximum relative to the other server.
    pub of_peer: f64,
}

const fn data(
    id: &'static str,
    (pattern, direction, block): (Pattern, Direction, u64),
    (depth, connections): (u32, u32),
    (of_limit, of_peer): (f64, f64),
) -> Row {
    let of_peer = if of_peer > 0.0 { Some(of_peer) } else { None };
    let work = Work::Data { pattern, direction, block };
    Row {
        id,
        work,
        depth,
        connections,
        of_limit: Some(of_limit),
        of_peer,
        latency: None,
        p99: None,
        cpu: None,
    }
}

const fn metadata(id: &'static str, work: Work) -> Row {
    let (depth, connections) = (32, 4);
    Row {
        id,
        work,
        depth,
        connections,
        of_limit: None,
        of_peer: Some(5.0),
        latency: None,
        p99: None,
        cpu: None,
    }
}

/// A fairness row: a small call beside a flood on another connection.
const fn fairness(id: &'static str, flood: Direction) -> Row {
    Row { p99: Some(1.5), of_peer: None, connections: 1, depth: 1, ..metadata(id, Work::Fairness { flood }) }
}

const SEQUENTIAL: Pattern = Pattern::Sequential;
const RANDOM: Pattern = Pattern::Random;
const READ: Direction = Direction::Read;
const WRITE: Direction = Direction::Write;
const LARGE_CPU: Cpu = Cpu { us_max: None, of_limit: Some(1.15), of_peer: 1.0 / 3.0 };
const SMALL_CPU: Cpu = Cpu { us_max: Some(1.5), of_limit: None, of_peer: 0.1 };

/// All rows, in the order of the table.
pub const ROWS: [Row; 19] = [
    data("read-1m-1", (SEQUENTIAL, READ, MIB), (16, 1), (0.90, 1.9)),
    Row { cpu: Some(LARGE_CPU), ..data("read-1m-2", (SEQUENTIAL, READ, MIB), (16, 2), (0.90, 2.4)) },
    data("write-1m-1", (SEQUENTIAL, WRITE, MIB), (16, 1), (0.85, 2.2)),
    Row { cpu: Some(LARGE_CPU), ..data("write-1m-2", (SEQUENTIAL, WRITE, MIB), (16, 2), (0.85, 2.8)) },
    data("read-64k-1", (SEQUENTIAL, READ, 64 * KIB), (32, 1), (0.90, 2.2)),
    data("read-64k-2", (SEQUENTIAL, READ, 64 * KIB), (32, 2), (0.90, 2.2)),
    data("write-64k-1", (SEQUENTIAL, WRITE, 64 * KIB), (32, 1), (0.85, 2.2)),
    data("write-64k-2", (SEQUENTIAL, WRITE, 64 * KIB), (32, 2), (0.85, 2.2)),
    data("read-4k-1", (RANDOM, READ, 4 * KIB), (32, 1), (0.45, 7.0)),
    Row { cpu: Some(SMALL_CPU), ..data("read-4k-4", (RANDOM, READ, 4 * KIB), (32, 4), (0.55, 7.0)) },
    data("write-4k-1", (RANDOM, WRITE, 4 * KIB), (32, 1), (0.40, 7.0)),
    data("write-4k-4", (RANDOM, WRITE, 4 * KIB), (32, 4), (0.50, 7.0)),
    Row { latency: Some(1.3), ..data("read-4k-alone", (RANDOM, READ, 4 * KIB), (1, 1), (0.75, 0.0)) },
    fairness("read-4k-beside-read", READ),
    fairness("read-4k-beside-write", WRITE),
    metadata("lookup", Work::Lookup),
    metadata("getattr", Work::GetAttr),
    metadata("create-remove", Work::CreateRemove),
    metadata("listing", Work::Listing),
];

impl Row {
    /// Returns the text for the row in the table.
    #[must_use]
    pub fn title(&self, names: u32) -> String {
        let Self { depth, connections, .. } = self;
        let plural = if *connections == 1 { "" } else { "s" };
        let what = match self.work {
            Work::Data { pattern, direction, block } => {
                let size = if block >= MIB {
                    format!("{} MiB", block / MIB)
                } else {
                    format!("{} KiB", block / KIB)
                };
                let way = if direction == Direction::Read { "READ" } else { "WRITE" };
                let order = if pattern == Pattern::Random { "random " } else { "" };
                format!("{order}{way} {size}")
            }
            Work::Lookup => "LOOKUP".into(),
            Work::GetAttr => "GETATTR".into(),
            Work::CreateRemove => "CREATE+REMOVE".into(),
            Work::Listing => return format!("READDIRPLUS of {names} names"),
            Work::Fairness { flood } => {
                let way = if flood == Direction::Read { "READ" } else { "WRITE" };
                return format!("random READ 4 KiB beside {way} 1 MiB");
            }
        };
        format!("{what}, depth {depth}, {connections} conn{plural}")
    }

    /// Returns the size of a block in bytes, if the result is a speed of data.
    #[must_use]
    pub const fn block(&self) -> Option<u64> {
        match self.work {
            Work::Data { block, .. } => Some(block),
            Work::Fairness { .. } => Some(SMALL),
            _ => None,
        }
    }

    /// Returns the number of files that the row needs.
    #[must_use]
    pub const fn files(&self) -> u32 {
        match self.work {
            Work::Data { .. } => self.connections,
            Work::Fairness { .. } => 2,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_a_name_of_its_own_and_something_asked_of_it() {
        for (at, row) in ROWS.iter().enumerate() {
            assert!(ROWS[..at].iter().all(|other| other.id != row.id), "{}", row.id);
            let asked = [row.of_limit, row.of_peer, row.p99];
            assert!(asked.iter().any(Option::is_some), "{}", row.id);
        }
    }
}
