//! Which node a file is read and written on, and which path connection `i` takes.
//!
//! A hash of the file handle distributes twenty equal files over four nodes as 9, 37, 45 and 11 %;
//! counting files distributes them evenly. There is one placement per mount, behind a lock, and it
//! is asked once per opened file.

use crate::NodeId;
use std::collections::HashMap;

/// Assigns files to nodes. On first use a file is placed on the node with the fewest files, and
/// stays there until it has been released as often as it was placed.
///
/// A file stays placed on a node that goes down: its calls use other nodes in the meantime (see
/// [`crate::Table::pick`]) and return when the node is up again. The map has one entry per file in
/// use.
#[derive(Debug)]
pub struct Placement {
    nodes: Vec<Node>,
    files: HashMap<u64, Placed>,
    start: u16,
}

#[derive(Debug, Clone, Copy)]
struct Node {
    files: u32,
    usable: bool,
}

#[derive(Debug)]
struct Placed {
    node: u16,
    uses: u32,
}

impl Placement {
    /// Creates a placement over `nodes` remote addresses (0 is treated as 1). Ties go to the node
    /// at offset `start`, modulo the number of nodes: if `start` is a hash of the local address,
    /// many clients spread over the nodes.
    #[must_use]
    pub fn new(nodes: u16, start: u16) -> Self {
        let nodes = nodes.max(1);
        Self {
            nodes: vec![Node { files: 0, usable: true }; usize::from(nodes)],
            files: HashMap::new(),
            start: start % nodes,
        }
    }

    /// Returns the node of this file and counts one more use of the file.
    pub fn place(&mut self, file: u64) -> NodeId {
        if let Some(placed) = self.files.get_mut(&file) {
            placed.uses += 1;
            return NodeId(placed.node);
        }
        let node = self.least_loaded();
        self.nodes[usize::from(node)].files += 1;
        self.files.insert(file, Placed { node, uses: 1 });
        NodeId(node)
    }

    /// Undoes one [`Placement::place`] of this file. Releasing a file that is not placed is not an
    /// error.
    pub fn release(&mut self, file: u64) {
        let Some(placed) = self.files.get_mut(&file) else { return };
        placed.uses -= 1;
        if placed.uses == 0 {
            self.nodes[usize::from(placed.node)].files -= 1;
            self.files.remove(&file);
        }
    }

    /// Sets whether new files may be placed on this node. If no node is usable, files are placed on
    /// any node.
    pub fn set_usable(&mut self, node: NodeId, usable: bool) {
        if let Some(node) = self.nodes.get_mut(usize::from(node.0)) {
            node.usable = usable;
        }
    }

    /// The number of files placed on each node.
    pub fn files_by_node(&self) -> impl Iterator<Item = u32> + '_ {
        self.nodes.iter().map(|node| node.files)
    }

    fn least_loaded(&self) -> u16 {
        let any_usable = self.nodes.iter().any(|node| node.usable);
        let count = u16::try_from(self.nodes.len()).unwrap_or(u16::MAX);
        (0..count)
            .map(|step| ((u32::from(self.start) + u32::from(step)) % u32::from(count)) as u16)
            .filter(|&node| !any_usable || self.nodes[usize::from(node)].usable)
            .min_by_key(|&node| self.nodes[usize::from(node)].files)
            .unwrap_or(self.start)
    }
}

/// The remote address of connection `i`: round robin over `remotes` addresses from `start`, which
/// is the hash of the local address or `remoteports_offset`.
#[must_use]
pub const fn remote_of(i: usize, remotes: usize, start: usize) -> usize {
    if remotes == 0 { 0 } else { (start % remotes + i) % remotes }
}

/// The local address of connection `i`: advances by one each time all remote addresses have been
/// used.
#[must_use]
pub const fn local_of(i: usize, remotes: usize, locals: usize) -> usize {
    if remotes == 0 || locals == 0 { 0 } else { (i / remotes) % locals }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twenty_equal_files_on_four_nodes_come_out_even() {
        for start in 0..9 {
            let mut placement = Placement::new(4, start);
            for file in 0..20_u64 {
                placement.place(file.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            }
            assert_eq!(placement.files_by_node().collect::<Vec<_>>(), [5, 5, 5, 5]);
        }
    }

    #[test]
    fn a_file_stays_where_it_is_until_it_is_released() {
        let mut placement = Placement::new(3, 1);
        assert_eq!(placement.place(7), NodeId(1));
        assert_eq!(placement.place(8), NodeId(2));
        assert_eq!(placement.place(7), NodeId(1));
        placement.release(7);
        placement.set_usable(NodeId(1), false);
        assert_eq!(placement.place(7), NodeId(1), "placed files wait for their node");
        for _ in 0..3 {
            placement.release(7);
        }
        assert_eq!(placement.place(7), NodeId(0));
        assert_eq!(placement.files_by_node().collect::<Vec<_>>(), [1, 0, 1]);
    }

    #[test]
    fn new_files_skip_nodes_that_are_down() {
        let mut placement = Placement::new(4, 0);
        placement.set_usable(NodeId(2), false);
        for file in 0..30 {
            placement.place(file);
        }
        assert_eq!(placement.files_by_node().collect::<Vec<_>>(), [10, 10, 0, 10]);
        placement.set_usable(NodeId(2), true);
        for file in 30..40 {
            placement.place(file);
        }
        assert_eq!(placement.files_by_node().collect::<Vec<_>>(), [10, 10, 10, 10]);
    }

    #[test]
    fn with_all_nodes_down_files_are_placed_all_the_same() {
        let mut placement = Placement::new(2, 0);
        placement.set_usable(NodeId(0), false);
        placement.set_usable(NodeId(1), false);
        assert_eq!((placement.place(1), placement.place(2)), (NodeId(0), NodeId(1)));
    }

    #[test]
    fn connections_go_round_the_remotes_and_then_to_the_next_local() {
        let pairs: Vec<_> = (0..8).map(|i| (remote_of(i, 4, 6), local_of(i, 4, 2))).collect();
        assert_eq!(pairs, [(2, 0), (3, 0), (0, 0), (1, 0), (2, 1), (3, 1), (0, 1), (1, 1)]);
    }
}
