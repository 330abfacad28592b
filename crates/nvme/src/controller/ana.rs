//! Which ANA state a node reports for the namespaces of an owner. NVMe Base, "Asymmetric Namespace
//! Access Reporting".

use crate::log_page::AnaState;

/// A node of the pair, from 0 on. Its ANA group is one more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Node(pub u32);

impl Node {
    /// ANAGRPID of the namespaces that the node owns.
    #[must_use]
    pub const fn group(self) -> u32 {
        self.0 + 1
    }
}

/// How the owner of namespaces is reached from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// It serves: here itself, or over there and commands are forwarded to it.
    Serving,
    /// Ownership moves; bounded by ANATT, after which the state is inaccessible.
    Moving,
    /// It does not serve now.
    Unreachable,
    /// It will not serve again.
    Lost,
}

/// The state that the node `here` reports for namespaces of `owner`: the only place that decides
/// it. A node that can serve never says that it cannot.
#[must_use]
pub const fn state(owner: Node, here: Node, reach: Reach) -> AnaState {
    match reach {
        Reach::Serving if owner.0 == here.0 => AnaState::OPTIMIZED,
        Reach::Serving => AnaState::NON_OPTIMIZED,
        Reach::Moving => AnaState::CHANGE,
        Reach::Unreachable => AnaState::INACCESSIBLE,
        Reach::Lost => AnaState::PERSISTENT_LOSS,
    }
}
