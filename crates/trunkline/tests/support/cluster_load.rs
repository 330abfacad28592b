//! What the guests write: blocks of a text that says who wrote which block of which file, with a
//! number that grows; and what the device holds of it.

use std::fmt;

/// The files, each of which has a writer of its own, because OCFS2 executes the writes of one file
/// one after the other.
pub const FILES: usize = 4;
/// The blocks of each file, of 4 KiB.
pub const BLOCKS: usize = 16;
/// A block has this many lines of 64 bytes.
const LINES: usize = 64;

/// The script that makes the files, each in one piece of the volume.
pub fn make() -> String {
    format!(
        "for file in $(seq 0 {}); do
             dd if=/dev/zero of=/mnt/volume/$file bs={} count=1 oflag=direct 2> /dev/null
         done; sync",
        FILES - 1,
        BLOCKS * 4096
    )
}

/// The script that prints the number of the block of the volume where each file begins.
pub fn places() -> String {
    format!(
        "for file in $(seq 0 {}); do
             filefrag -v -b4096 /mnt/volume/$file > /run/extents
             # A file in several pieces has more lines with this number of blocks before the end.
             awk -F '[:. ]+' '$2 == \"0\" && $3 == \"0\" && $4 == \"{}\" {{ print $5; is_whole = 1 }}
                 END {{ exit !is_whole }}' /run/extents || {{ cat /run/extents >&2; exit 1; }}
         done",
        FILES - 1,
        BLOCKS - 1
    )
}

/// The start of a script: takes the lock of the cluster, which the script has until it ends, and
/// the function `stamp WHO FILE BLOCK NUMBER`, which writes a block past the page cache.
const BEGIN: &str = r#"
    stamp() {
        yes "$(printf '%-63s' "$1 file $2 block $3 number $4")" | dd of=/mnt/volume/$2 bs=4096 count=1 \
            seek=$3 iflag=fullblock oflag=direct conv=notrunc 2> /run/stamp-$2 || { cat /run/stamp-$2 >&2; exit 1; }
    }
    exec 9> /mnt/volume/lock; flock 9
"#;

/// A script that writes each block once for `who`.
pub fn once(who: &str) -> String {
    format!(
        "{BEGIN}for file in $(seq 0 {}); do for block in $(seq 0 {}); do stamp {who} $file $block 0; done; done
         sync",
        FILES - 1,
        BLOCKS - 1
    )
}

/// A script that writes all blocks for `who`, those of each file in turn and all files at once,
/// until it is killed.
pub fn for_ever(who: &str) -> String {
    format!(
        "{BEGIN}writer() {{ number=0; while :; do for block in $(seq 0 {}); do
             number=$((number + 1)); stamp {who} $1 $block $number; done; done; }}
         for file in $(seq 1 {}); do writer $file & done; writer 0",
        BLOCKS - 1,
        FILES - 1
    )
}

/// The lines that a device holds at the places of the files: for each block one line, if the block
/// is whole.
#[derive(Debug, PartialEq, Eq)]
pub struct Content {
    files: Vec<Vec<String>>,
}

impl Content {
    /// Of `uniq -c` of each file, after a line with `file`.
    pub fn parse(text: &str) -> Self {
        let mut files: Vec<Vec<String>> = Vec::new();
        for line in text.lines().map(str::trim) {
            match files.last_mut() {
                _ if line == "file" => files.push(Vec::new()),
                Some(file) => file.push(line.to_owned()),
                None => panic!("{text}"),
            }
        }
        assert_eq!(files.len(), FILES, "{text}");
        Self { files }
    }

    pub fn differs_in(&self, other: &Self, file: usize) -> bool {
        self.files.get(file) != other.files.get(file)
    }

    /// Whether each block is whole and was written last by `who`.
    pub fn is_of(&self, who: &str) -> bool {
        self.files.iter().enumerate().all(|(file, lines)| {
            let is_block = |(block, line): (usize, &String)| {
                line.starts_with(&format!("{LINES} {who} file {file} block {block} number "))
            };
            lines.len() == BLOCKS && lines.iter().enumerate().all(is_block)
        })
    }
}

impl fmt::Display for Content {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.files.iter().flatten().try_for_each(|line| writeln!(out, "{line}"))
    }
}
