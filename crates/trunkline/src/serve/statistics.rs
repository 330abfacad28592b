//! Statistics as a table: each node and each procedure.

use crate::table::{bytes, lay_out};
use server::Statistics;
use server::statistics::{NodeStatistics, ProcedureStatistics};

const HEAD: [&str; 10] =
    ["node", "procedure", "calls", "errors", "replayed", "received", "sent", "p50 us", "p99 us", "max us"];
/// The number of left-aligned columns; the others have numbers.
const WORDS: usize = 2;

/// A line for each procedure that was called, and a line about the connections of each node.
pub fn table(statistics: &Statistics) -> String {
    let mut rows = vec![HEAD.map(str::to_owned)];
    for node in &statistics.nodes {
        rows.extend(node.procedures.iter().map(|(name, of)| row(&node.name, name, of)));
    }
    let mut text = String::new();
    if rows.len() > 1 {
        lay_out(&mut text, &rows, WORDS);
    } else {
        text.push_str("no calls yet\n");
    }
    statistics.nodes.iter().for_each(|node| text.push_str(&connections(node)));
    let sum =
        |of: fn(&server::statistics::LoopStatistics) -> u64| statistics.loops.iter().map(of).sum::<u64>();
    text.push_str(&format!(
        "{} loops: {:.3} s of CPU, {} wakeups, {} stalls, {} moves of connections, {} connections ended by a bug of ours\n",
        statistics.loops.len(),
        statistics.cpu_ns() as f64 / 1e9,
        sum(|one| one.wakeups),
        sum(|one| one.stalls),
        sum(|one| one.moved),
        sum(|one| one.bugs),
    ));
    text
}

fn row(node: &str, procedure: &str, of: &ProcedureStatistics) -> [String; 10] {
    let us = |ns: u64| format!("{:.1}", ns as f64 / 1e3);
    let quantile = |quantile| us(of.latency_ns.value_at_quantile(quantile));
    [
        node.to_owned(),
        procedure.to_owned(),
        of.count.to_string(),
        of.errors.to_string(),
        of.replayed.to_string(),
        bytes(of.received_bytes),
        bytes(of.sent_bytes),
        quantile(0.5),
        quantile(0.99),
        us(of.latency_ns.max()),
    ]
}

fn connections(node: &NodeStatistics) -> String {
    let queued: usize = node.connections.iter().map(|connection| connection.queued_bytes).sum();
    format!(
        "{}: {} connections open, {} accepted since the start, {} calls refused, {} of replies queued\n",
        node.name,
        node.connections.len(),
        node.accepted,
        node.refused_calls,
        bytes(queued as u64),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_without_calls_says_so() {
        let nodes = vec![NodeStatistics { name: "node1".to_owned(), ..NodeStatistics::default() }];
        let text = table(&Statistics { nodes, ..Statistics::default() });
        assert!(text.starts_with("no calls yet\nnode1: 0 connections open"), "{text}");
    }
}
