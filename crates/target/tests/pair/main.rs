//! Two processes that are the nodes of a pair, on files with their locks: one that is killed, one
//! that hangs, one that returns. Each process is this test program once more.

mod process;

use process::{Directory, Process};
use rustix::process::Signal;
use std::time::Duration;
use target::Node;

/// Both run; volumes 1 and 2, in turn.
fn both(test: &str) -> (Directory, [Process; 2]) {
    let directory = Directory::new();
    let processes = [Node::A, Node::B].map(|node| Process::start(test, &directory, node));
    for process in &processes {
        process.wait_for(1, "A 2 Serving");
        process.wait_for(2, "B 2 Serving");
    }
    (directory, processes)
}

#[test]
fn the_partner_takes_what_a_killed_process_had_and_one_that_returns_takes_nothing_back() {
    Process::be();
    let test = "the_partner_takes_what_a_killed_process_had_and_one_that_returns_takes_nothing_back";
    for killed in [0, 1] {
        let (directory, processes) = both(test);
        let [name, other] = if killed == 0 { ["A", "B"] } else { ["B", "A"] };
        let nsid = [1, 2][killed];
        processes[killed].signal(Signal::KILL);
        let survivor = &processes[1 - killed];
        survivor.wait_for(nsid, &format!("{other} 3 Serving"));
        assert_eq!(directory.record(nsid), (other.to_owned(), 3));
        let again = Process::start(test, &directory, [Node::A, Node::B][killed]);
        again.wait_for(nsid, &format!("{other} 3 Serving"));
        again.wait_for(3 - nsid, &format!("{other} 2 Serving"));
        // It may be asked for.
        again.own(nsid, name);
        again.wait_for(nsid, &format!("{name} 4 Serving"));
        survivor.wait_for(nsid, &format!("{name} 4 Serving"));
    }
}

#[test]
fn a_process_that_hangs_is_killed_and_then_its_volumes_are_taken() {
    Process::be();
    let (_directory, mut processes) = both("a_process_that_hangs_is_killed_and_then_its_volumes_are_taken");
    processes[0].signal(Signal::STOP);
    processes[1].wait_for(1, "B 3 Serving");
    assert_eq!(processes[0].wait(), Some(Signal::KILL.as_raw()), "not before it has ended");
}

#[test]
fn a_volume_goes_to_the_other_node_and_back_again() {
    Process::be();
    let (directory, processes) = both("a_volume_goes_to_the_other_node_and_back_again");
    for (epoch, owner) in [(3, "B"), (4, "A"), (5, "B")] {
        processes[epoch % 2].own(1, owner);
        for process in &processes {
            process.wait_for(1, &format!("{owner} {epoch} Serving"));
        }
        assert_eq!(directory.record(1), (owner.to_owned(), epoch as u64));
    }
    // While it moves, it is served by nobody.
    assert!(processes[0].said().iter().any(|line| line.starts_with("1 ") && line.ends_with("Moving")));
}

#[test]
fn a_node_alone_takes_all_after_a_while_and_is_there_once_only() {
    Process::be();
    let test = "a_node_alone_takes_all_after_a_while_and_is_there_once_only";
    let directory = Directory::new();
    let alone = Process::start_with(test, &directory, Node::B, Duration::from_millis(500));
    alone.wait_for(2, "B 2 Serving");
    alone.wait_for(1, "B 2 Serving");
    let twin = Process::start(test, &directory, Node::B);
    twin.wait_for_line("refused: node B runs already, in another process");
}
