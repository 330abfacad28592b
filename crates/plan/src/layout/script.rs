//! The SMcli commands that create a layout, the same as in figures 11 (pools) and 13 (RAID 6
//! groups) of "Deploying NetApp EF600" (Lenovo Press, 2021).

use super::{Group, Layout};
use crate::Scheme;
use crate::ef600::cite;
use crate::error::{Result, refuse};
use std::fmt::Write;

/// The number of slots on one line of a command.
const SLOTS_PER_LINE: usize = 12;

pub(super) fn script(layout: &Layout) -> Result<String> {
    if layout.groups.iter().any(|group| group.scheme == Scheme::Raid1) {
        return refuse(
            "cannot write the commands for mirrored pairs",
            "the EF600 guide shows commands for pools and RAID 6 groups only",
            cite("figures 11 and 13"),
            "leave --mirrors out, and make the pairs by hand",
        );
    }
    if layout
        .groups
        .iter()
        .flat_map(|group| &group.volumes)
        .any(|volume| volume.gib.is_none_or(|gib| gib == 0))
    {
        return refuse(
            "cannot write the commands for volumes without a capacity",
            "create volume needs capacity=",
            cite("figures 11 and 13"),
            "--drive-tb 1.92 to use what the drives hold, or --volume 4096GiB",
        );
    }
    let mut text = String::from("// SMcli ARRAY -k -u admin -p PASSWORD -f THIS-FILE\n");
    text.push_str("// GB are GiB here: SMcli counts in powers of two.\n\non error stop;\n\nshow \"Creating groups...\";\n");
    for group in &layout.groups {
        text.push_str(&create_group(group));
    }
    text.push_str("\nshow \"Creating volumes...\";\n");
    for group in &layout.groups {
        text.push_str(&create_volumes(group, layout.stripe.segment_kib));
    }
    text.push_str(&settings(layout));
    Ok(text)
}

/// The commands that set how existing volumes are checked and cached.
pub(super) fn settings(layout: &Layout) -> String {
    let mut text = String::from("\nshow \"Setting redundancy checks...\";\n");
    for volume in layout.groups.iter().flat_map(|group| &group.volumes) {
        let _ = writeln!(text, "set volume [\"{}\"] redundancyCheckEnabled=true;", volume.name);
    }
    text.push_str(SETTINGS);
    text
}

/// The settings of all volumes.
const SETTINGS: &str = "\nshow \"Setting all volumes...\";
set allVolumes cacheFlushModifier=10;
set allVolumes cacheWithoutBatteryEnabled=false; // true loses data when the power fails
set allVolumes mediaScanEnabled=true;
set allVolumes mirrorCacheEnabled=true;
set allVolumes readCacheEnabled=true;
set allVolumes writeCacheEnabled=true;
set allVolumes cacheReadPrefetch=false; // the file system prefetches

show \"Done.\";
";

fn create_group(group: &Group) -> String {
    let slots: Vec<_> = group.slots.iter().map(|slot| format!("0,{slot}")).collect();
    let lines: Vec<_> = slots.chunks(SLOTS_PER_LINE).map(|line| line.join(" ")).collect();
    let slots = lines.join("\n  ");
    if group.scheme == Scheme::Ddp {
        return format!(
            "create diskPool drives=(\n  {slots})\n  userLabel=\"{}\" trayLossProtect=false\n  drawerLossProtect=false \
             criticalThreshold=0\n  securityType=none dataAssurance=none;\n",
            group.name
        );
    }
    format!(
        "create volumeGroup\n  drives=({slots})\n  raidLevel=6 userLabel=\"{}\"\n  drawerLossProtect=false \
         trayLossProtect=false\n  securityType=none dataAssurance=none;\n",
        group.name
    )
}

fn create_volumes(group: &Group, segment_kib: Option<u32>) -> String {
    let mut text = String::new();
    for volume in &group.volumes {
        let (name, gib, owner) = (&volume.name, volume.gib.unwrap_or_default(), volume.owner);
        let _ = if group.scheme == Scheme::Ddp {
            writeln!(
                text,
                "create volume diskPool=\"{}\" userLabel=\"{name}\"\n  capacity={gib}GB owner={owner} thinProvisioned=false\n  \
                 cacheReadPrefetch=false dataAssurance=none;",
                group.name
            )
        } else {
            writeln!(
                text,
                "create volume volumeGroup=\"{}\" userLabel=\"{name}\"\n  capacity={gib}GB owner={owner} segmentSize={} \
                 cacheReadPrefetch=false\n  dssPreAllocate=false securityType=none dataAssurance=none;",
                group.name,
                segment_kib.unwrap_or_default()
            )
        };
    }
    text
}
