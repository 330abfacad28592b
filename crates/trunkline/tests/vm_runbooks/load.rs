//! Verified I/O on both volumes of the host: rounds of fio, which writes blocks with checksums at
//! random places, reads all of them back, and fails at the first that is wrong or lost.

use crate::{VOLUME, client, sh};

/// Rounds run until the load is ended; a file has the number of complete ones.
const ROUNDS: &str = r#"
cd /dev/shm; round=0; echo 0 > round
one=$(volume 1); two=$(volume 2)
while [ ! -e enough ]; do
    round=$((round + 1))
    fio --direct=1 --rw=randwrite --bs=16k --size=2m --ioengine=libaio --iodepth=4 --thread \
        --verify=crc32c --verify_fatal=1 --verify_state_save=0 --randseed=$round \
        --name=one --filename=$one --name=two --filename=$two || break
    echo $round > round.new; mv round.new round
done
"#;

/// The load, until ended.
pub struct Load(());

impl Load {
    /// Starts, and waits for the first rounds.
    #[track_caller]
    pub fn start() -> Self {
        // The quotes of the script are double ones.
        let script = format!("{VOLUME}{ROUNDS}");
        sh(
            client(),
            &format!(
                "cat > /dev/shm/rounds.sh <<'END'\n{script}END
                 echo 0 > /dev/shm/round; rm -f /dev/shm/enough /dev/shm/ended
                 (bash /dev/shm/rounds.sh > /dev/shm/rounds.log 2>&1; touch /dev/shm/ended) \
                     </dev/null >/dev/null 2>&1 &"
            ),
        );
        let load = Self(());
        load.goes_on();
        load
    }

    /// Waits until a round that began after this call is complete.
    #[track_caller]
    pub fn goes_on(&self) {
        sh(
            client(),
            "cd /dev/shm; read was < round
             for attempt in $(seq 600); do
                 [ ! -e ended ] || { echo 'it has ended'; cat rounds.log; exit 1; }
                 read now < round
                 [ $now -lt $((was + 2)) ] || exit 0
                 sleep 1
             done
             echo \"round $now is not complete\"; tail -n 50 rounds.log; exit 1",
        );
    }

    /// Ends it after the round under way. Every round must have succeeded.
    #[track_caller]
    pub fn end(self) {
        let log = sh(
            client(),
            "cd /dev/shm; touch enough
             for attempt in $(seq 600); do [ ! -e ended ] || break; sleep 1; done
             [ -e ended ]; echo \"complete: $(cat round)\"; cat rounds.log",
        );
        let complete = log.lines().find_map(|line| line.strip_prefix("complete: ")?.parse::<usize>().ok());
        let rounds = log.matches("Run status group").count();
        assert!(rounds > 8 && complete == Some(rounds), "{log}");
        assert_eq!(log.matches("err= 0").count(), 2 * rounds, "two volumes in each round: {log}");
        println!("{rounds} rounds of verified I/O");
    }
}
