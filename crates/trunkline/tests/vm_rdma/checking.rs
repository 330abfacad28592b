//! `trunkline check` from one machine of another: a clock that differs, and frames that vanish on
//! the way.

use crate::findings::bad_findings;
use crate::pair::{GuestServer, alone, pair, sh};

/// The two clocks are set by emulated devices with whole seconds, so they may differ from the
/// start.
const CLOCK: &str = "warn server.clock";

#[test]
fn check_finds_another_clock_and_frames_that_vanish_between_two_machines() {
    let _alone = alone();
    let (client, server) = (pair().client(), pair().server());
    let _serving = GuestServer::start();
    let program = env!("CARGO_BIN_EXE_trunkline");
    let check = || {
        let arguments = "--json --mtu 9000 --interface n1 --write -o proto=rdma 10.77.1.2:/export";
        bad_findings(&sh(client, &format!("{program} check {arguments} || [ $? = 1 ]")))
    };
    let mut sound = check();
    sound.retain(|finding| finding != CLOCK);
    assert_eq!(sound, [""; 0], "two sound machines");
    let found = |make: &str, mend: &str, expected: &str| {
        sh(server, make);
        let mut bad = check();
        sh(server, mend);
        bad.retain(|finding| finding == expected || finding != CLOCK);
        assert_eq!(bad, [expected], "after: {make}");
    };
    found("date -s '1 hour'", "date -s '1 hour ago'", CLOCK);
    // As at a switch whose port takes shorter frames. RDMA packets have 4096 bytes.
    found(
        "nft 'add table ip short; add chain ip short in { type filter hook prerouting priority 0; }
              add rule ip short in ip length > 8000 drop'",
        "nft 'delete table ip short'",
        "fail server.mtu",
    );
}
