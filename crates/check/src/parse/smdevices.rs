//! The output of `nvme netapp smdevices`.

/// A volume of an E-Series array, as one device shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Volume {
    pub device: String,
    pub array: String,
    pub volume: String,
    pub id: String,
    /// The controller that owns it: `A` or `B`.
    pub controller: String,
}

/// All volumes. The command prints each on a line of fields with commas; long lines may have been
/// wrapped where they were copied.
pub(crate) fn volumes(text: &str) -> Vec<Volume> {
    let mut records = Vec::<String>::new();
    for line in text.lines().map(str::trim) {
        match records.last_mut() {
            _ if line.starts_with("/dev/") => records.push(line.to_owned()),
            Some(record) if line.contains("Volume ID") || record.ends_with(',') => {
                record.push(' ');
                record.push_str(line);
            }
            _ => {}
        }
    }
    records.iter().filter_map(|record| volume(record)).collect()
}

fn volume(record: &str) -> Option<Volume> {
    let mut fields = record.split(',').map(str::trim);
    let device = fields.next()?.to_owned();
    let rest: Vec<_> = fields.collect();
    let field = |name: &str| {
        let value = rest.iter().find_map(|field| field.strip_prefix(name));
        value.map(|value| value.trim().to_owned())
    };
    Some(Volume {
        device,
        array: field("Array Name")?,
        volume: field("Volume Name")?,
        id: field("Volume ID")?,
        controller: field("Controller")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_are_read_from_whole_and_from_wrapped_lines() {
        let first = "/dev/nvme0n1, Array Name de0704-ef600, Volume Name de0704a01v1, NSID 1,";
        let second = "Volume ID 00004edf5c0b4a01d039ea00003ef510, Controller A, Access State unknown, 5.36TB";
        let expected = Volume {
            device: "/dev/nvme0n1".into(),
            array: "de0704-ef600".into(),
            volume: "de0704a01v1".into(),
            id: "00004edf5c0b4a01d039ea00003ef510".into(),
            controller: "A".into(),
        };
        for between in [" ", "\n", "\n  "] {
            let found = volumes(&format!("{first}{between}{second}\n\n"));
            assert_eq!(found, std::slice::from_ref(&expected));
        }
        assert!(volumes("No NetApp SMdevices detected.\n").is_empty());
    }
}
