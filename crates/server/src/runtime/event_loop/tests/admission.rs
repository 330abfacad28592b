//! Tests which connection gives way to a new one.

use super::*;

#[test]
fn of_the_largest_holder_a_connection_gives_way_that_neither_waits_for_room_nor_is_within_a_record() {
    let (_mailboxes, mut loops, clients) = two_loops(3);
    let [first, _] = &mut loops;
    (&clients[1]).write_all(&nfs(Procedure::Null, &())[..20]).unwrap();
    let deadline = clock::now() + Duration::from_secs(120);
    while !first.connections[1].stream.within_record() {
        assert!(clock::now() < deadline, "half a call is received");
        first.serve(1);
    }
    let now = clock::now();
    first.connections[0].wait_for_room(Some(BLOCK as usize), 0, now);
    for (key, ago) in [(0, 30), (1, 20), (2, 10)] {
        first.connections[key].active = now.saturating_sub(Duration::from_secs(ago));
    }
    let mut left = |bound| {
        assert!(first.make_place("127.0.0.2:900".parse().unwrap(), bound));
        ids(first)
    };
    assert_eq!(left(3), [0, 1], "the last one that was active");
    assert_eq!(left(2), [0], "no other is left");
}
