//! Hostile clients: what any number of them cost a good client of the same server.
//!
//! Each sort of hostile client is a file in `hostile/` behind the trait [`Hostile`]. In a round,
//! clients of some sorts work against one server process while a good client does a fixed, counted
//! amount of work: every call is answered rightly on the connections that it opened, the memory of
//! the server stays within a bound, and everything is given back afterwards. `cargo xtask test
//! hostile` runs them; `long` has more clients, takes minutes and prints how long the calls of the
//! good client take.
//!
//! Each test runs in a network of its own, so that the server may have the port of rpcbind.

#[path = "hostile/connection_storms.rs"]
mod connection_storms;
#[path = "hostile/datagrams.rs"]
mod datagrams;
#[path = "hostile/duplicated_calls.rs"]
mod duplicated_calls;
#[path = "hostile/garbage_records.rs"]
mod garbage_records;
#[path = "hostile/good_client.rs"]
mod good_client;
#[path = "hostile/half_open.rs"]
mod half_open;
#[path = "hostile/idle_connections.rs"]
mod idle_connections;
#[path = "hostile/long.rs"]
mod long;
#[path = "hostile/long_records.rs"]
mod long_records;
#[path = "hostile/own_network.rs"]
mod own_network;
#[path = "../../server/tests/support/peer.rs"]
mod peer;
#[path = "hostile/refused_calls.rs"]
mod refused_calls;
#[path = "hostile/rounds.rs"]
mod rounds;
#[path = "hostile/short_calls.rs"]
mod short_calls;
#[path = "hostile/slow_readers.rs"]
mod slow_readers;
#[path = "hostile/strangers.rs"]
mod strangers;
#[path = "hostile/target.rs"]
mod target;
#[path = "hostile/unfinished_writes.rs"]
mod unfinished_writes;
#[path = "hostile/unread_replies.rs"]
mod unread_replies;

use target::Target;

/// A sort of hostile client.
pub trait Hostile: Sync {
    /// The name in messages and tables.
    fn name(&self) -> &'static str;

    /// Does harm until [`Target::is_over`]: called on the thread of the client with this number.
    /// Calls [`Target::at_work`] once its first harm is done.
    fn attack(&self, target: &Target, number: usize);
}

/// All sorts.
pub const SORTS: [&dyn Hostile; 13] = [
    &unfinished_writes::UnfinishedWrites,
    &unread_replies::UnreadReplies,
    &slow_readers::SlowReaders,
    &short_calls::ShortCalls,
    &connection_storms::ConnectionStorms,
    &idle_connections::IdleConnections,
    &strangers::Strangers,
    &garbage_records::GarbageRecords,
    &long_records::LongRecords,
    &refused_calls::RefusedCalls,
    &datagrams::Datagrams,
    &duplicated_calls::DuplicatedCalls,
    &half_open::HalfOpen,
];

/// A test for each sort.
macro_rules! beside_a_good_client {
    ($($name:ident: $sort:expr;)*) => { $(
        #[test]
        fn $name() {
            own_network::run(stringify!($name), || rounds::check(&[&$sort]));
        }
    )* };
}

beside_a_good_client! {
    writes_that_are_never_finished_cost_others_nothing: unfinished_writes::UnfinishedWrites;
    replies_that_are_never_read_cost_others_nothing: unread_replies::UnreadReplies;
    replies_that_are_read_slowly_cost_others_nothing: slow_readers::SlowReaders;
    floods_of_short_calls_cost_others_nothing: short_calls::ShortCalls;
    connections_opened_and_reset_cost_others_nothing: connection_storms::ConnectionStorms;
    idle_connections_up_to_the_limit_cost_others_nothing: idle_connections::IdleConnections;
    strangers_that_no_export_admits_cost_others_nothing: strangers::Strangers;
    garbage_records_cost_others_nothing: garbage_records::GarbageRecords;
    records_that_are_too_long_cost_others_nothing: long_records::LongRecords;
    refused_calls_cost_others_nothing: refused_calls::RefusedCalls;
    datagrams_cost_others_nothing: datagrams::Datagrams;
    calls_duplicated_for_ever_cost_others_nothing: duplicated_calls::DuplicatedCalls;
    silent_connections_cost_others_nothing: half_open::HalfOpen;
}

#[test]
fn all_sorts_at_once_cost_others_nothing() {
    own_network::run("all_sorts_at_once_cost_others_nothing", || rounds::check(&SORTS));
}

#[test]
fn long_rounds_of_each_sort_and_of_all_show_what_they_cost() {
    own_network::run("long_rounds_of_each_sort_and_of_all_show_what_they_cost", long::run);
}
