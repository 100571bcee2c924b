//! `larder filesystem usage`.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;
use larder::{DeviceInfo, GlobalReserve, Overview, Space, SpaceKind};
use serde::Serialize;

use crate::global::Global;
use crate::outcome::Outcome;
use crate::output::stdout;
use crate::print::{Cell, write_json, write_table};
use crate::space::{
    DeviceSpace, Shown, kind_name, known_spaces, own_devices, profile_name, shown_name, slack,
    unallocated,
};

/// Show how space is used, on which devices, and what is left
///
/// Slack is what a device has past the end of its part of the file system. The global reserve is
/// space for trees that is set aside for deletions and commits; it is in memory, so that only a
/// mounted file system has it. Of a mounted file system only root, or the user who mounted it with
/// larder, gets all of this.
///
/// Examples:
///   larder filesystem usage disk.img
///   larder filesystem usage -T ~/mnt
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Usage {
    /// Show devices and kinds of space as a table
    #[arg(short = 'T')]
    table: bool,
    #[command(flatten)]
    shown: Shown,
}

impl Usage {
    pub fn run(self, global: &Global) -> Outcome {
        if global.is_json() {
            let filesystems = self.shown.describe_each(Object::new)?;
            write_json(&mut stdout(), "filesystem-usage", &filesystems)?;
            return Ok(ExitCode::SUCCESS);
        }
        for (number, filesystem) in self.shown.open_each().enumerate() {
            let filesystem = filesystem?;
            if number > 0 {
                writeln!(stdout())?;
            }
            self.show(&*filesystem)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    fn show(&self, filesystem: &dyn Overview) -> anyhow::Result<()> {
        let spaces = known_spaces(filesystem)?;
        let devices = own_devices(filesystem)?;
        let mut out = stdout();
        let memory = InMemory::of(filesystem)?;
        self.overall(&mut out, &Sums::new(&spaces, &devices), &devices, memory)?;
        if self.table {
            writeln!(out)?;
            return Ok(write_table(&mut out, &self.rows(&spaces, &devices))?);
        }
        for space in &spaces {
            self.space(&mut out, space, &devices)?;
        }
        Ok(self.unallocated(&mut out, &devices)?)
    }

    /// The table: a column for each kind of space, and a row for each device.
    fn rows(&self, spaces: &[Space], devices: &[DeviceInfo]) -> Vec<Vec<Cell>> {
        let left = |text: &str| Cell::Left(text.to_owned());
        let size = |bytes: u64| Cell::Right(self.shown.units.show(bytes));
        let size_or_dash = |bytes: u64| match bytes {
            0 => Cell::Right("-".into()),
            bytes => size(bytes),
        };
        let row = |first: [Cell; 2], columns: &dyn Fn(&Space) -> Cell, last: [Cell; 3]| {
            first.into_iter().chain(spaces.iter().map(columns)).chain(last).collect()
        };
        let rule = || row([Cell::Rule, Cell::Rule], &|_| Cell::Rule, [const { Cell::Rule }; 3]);
        let none = || [left(""), left(""), left("")];
        let kind = |space: &Space| left(kind_name(space.kind));
        let profile = |space: &Space| Cell::Left(profile_name(space.profile));
        let last = [left("Unallocated"), left("Total"), left("Slack")];
        let mut rows = vec![
            row([left(""), left("")], &kind, none()),
            row([left("Id"), left("Path")], &profile, last),
            rule(),
        ];
        for device in devices {
            let name = shown_name(device);
            let here = |space: &Space| {
                size_or_dash(space.device_bytes.get(&device.id).copied().unwrap_or(0))
            };
            let last = [unallocated(device), device.total_bytes, slack(device)].map(size_or_dash);
            rows.push(row([Cell::Right(device.id.to_string()), left(name)], &here, last));
        }
        let sum = |of: fn(&DeviceInfo) -> u64| size(devices.iter().map(of).sum());
        let sums = [sum(unallocated), sum(|device| device.total_bytes), sum(slack)];
        rows.push(rule());
        rows.push(row([left(""), left("Total")], &|space| size(space.total_bytes), sums));
        rows.push(row([left(""), left("Used")], &|space| size(space.used_bytes), none()));
        rows
    }

    fn overall(
        &self,
        out: &mut impl Write,
        sums: &Sums,
        devices: &[DeviceInfo],
        memory: InMemory,
    ) -> io::Result<()> {
        writeln!(out, "Overall:")?;
        let width = if self.shown.units.are_human_binary() { 10 } else { 18 };
        let mut line =
            |name: &str, tabs: &str, value: &str| writeln!(out, "    {name}:{tabs}{value:>width$}");
        let show = |bytes: u64| self.shown.units.show(bytes);
        line("Device size", "\t\t", &show(sums.size))?;
        line("Device allocated", "\t\t", &show(sums.allocated))?;
        line("Device unallocated", "\t\t", &show(sums.size.saturating_sub(sums.allocated)))?;
        line("Device missing", "\t\t", &show(sums.missing))?;
        line("Device slack", "\t\t", &show(devices.iter().map(slack).sum()))?;
        line("Used", "\t\t\t", &show(sums.used))?;
        let free = format!("{:>width$}\t(min: {})", show(sums.free()), show(sums.least_free()));
        line("Free (estimated)", "\t\t", &free)?;
        line("Free (statfs, df)", "\t\t", &show(memory.available_bytes))?;
        line("Data ratio", "\t\t\t", &format!("{:.2}", sums.data_ratio))?;
        line("Metadata ratio", "\t\t", &format!("{:.2}", sums.metadata_ratio))?;
        if let Some(GlobalReserve { total_bytes, used_bytes }) = memory.global_reserve {
            let reserve = format!("{:>width$}\t(used: {})", show(total_bytes), show(used_bytes));
            line("Global reserve", "\t\t", &reserve)?;
        }
        line("Multiple profiles", "\t\t", if sums.several_profiles { "yes" } else { "no" })
    }

    fn space(&self, out: &mut impl Write, space: &Space, devices: &[DeviceInfo]) -> io::Result<()> {
        let percent = if space.total_bytes == 0 {
            0.0
        } else {
            100.0 * space.used_bytes as f64 / space.total_bytes as f64
        };
        writeln!(
            out,
            "\n{},{}: Size:{}, Used:{} ({percent:.2}%)",
            kind_name(space.kind),
            profile_name(space.profile),
            self.shown.units.show(space.total_bytes),
            self.shown.units.show(space.used_bytes),
        )?;
        for device in devices {
            if let Some(bytes) = space.device_bytes.get(&device.id) {
                self.device(out, device, *bytes)?;
            }
        }
        Ok(())
    }

    fn unallocated(&self, out: &mut impl Write, devices: &[DeviceInfo]) -> io::Result<()> {
        writeln!(out, "\nUnallocated:")?;
        devices.iter().try_for_each(|device| self.device(out, device, unallocated(device)))
    }

    fn device(&self, out: &mut impl Write, device: &DeviceInfo, bytes: u64) -> io::Result<()> {
        let name = shown_name(device);
        writeln!(out, "   {name}\t{:>10}", self.shown.units.show(bytes))
    }
}

/// What is no sum of block groups.
#[derive(Clone, Copy)]
struct InMemory {
    /// Bytes for more data, as df(1) shows them.
    available_bytes: u64,
    global_reserve: Option<GlobalReserve>,
}

impl InMemory {
    fn of(filesystem: &dyn Overview) -> larder::Result<Self> {
        Ok(Self {
            available_bytes: filesystem.capacity()?.available_bytes,
            global_reserve: filesystem.global_reserve()?,
        })
    }
}

/// The sums of block groups and devices, in bytes.
struct Sums {
    size: u64,
    missing: u64,
    allocated: u64,
    used: u64,
    /// Free bytes in data chunks, in bytes of data.
    data_free: u64,
    /// Bytes on devices for each byte of data.
    data_ratio: f64,
    /// Bytes on devices for each byte of metadata.
    metadata_ratio: f64,
    /// The greatest of all ratios.
    worst_ratio: f64,
    several_profiles: bool,
}

impl Sums {
    fn new(spaces: &[Space], devices: &[DeviceInfo]) -> Self {
        let holds_data = |kind| matches!(kind, SpaceKind::Data | SpaceKind::DataAndMetadata);
        let ratio_of = |wanted: &dyn Fn(SpaceKind) -> bool| {
            let chosen = || spaces.iter().filter(|space| wanted(space.kind));
            let total: u64 = chosen().map(|space| space.total_bytes).sum();
            let raw: u64 = chosen().map(|space| space.raw_bytes).sum();
            if total == 0 { 1.0 } else { raw as f64 / total as f64 }
        };
        let used_raw = |space: &Space| (space.used_bytes as f64 * ratio(space)) as u64;
        let mut kinds: Vec<_> = spaces.iter().map(|space| space.kind).collect();
        kinds.dedup();
        let missing = devices.iter().filter(|device| device.name.is_none());
        Self {
            size: devices.iter().map(|device| device.total_bytes).sum(),
            missing: missing.map(|device| device.total_bytes).sum(),
            allocated: spaces.iter().map(|space| space.raw_bytes).sum(),
            used: spaces.iter().map(used_raw).sum(),
            data_free: spaces
                .iter()
                .filter(|space| holds_data(space.kind))
                .map(|space| space.total_bytes.saturating_sub(space.used_bytes))
                .sum(),
            data_ratio: ratio_of(&holds_data),
            metadata_ratio: ratio_of(&|kind| kind != SpaceKind::Data && kind != SpaceKind::System),
            worst_ratio: spaces.iter().map(ratio).fold(1.0, f64::max),
            several_profiles: kinds.len() < spaces.len(),
        }
    }

    /// Bytes of data that still fit if all unallocated space becomes data of the present profile.
    fn free(&self) -> u64 {
        self.data_free + (self.unallocated() / self.data_ratio) as u64
    }

    /// The same if it becomes data of the profile that takes most.
    fn least_free(&self) -> u64 {
        self.data_free + (self.unallocated() / self.worst_ratio) as u64
    }

    fn unallocated(&self) -> f64 {
        self.size.saturating_sub(self.allocated) as f64
    }
}

/// Bytes on devices for each byte of block groups.
fn ratio(space: &Space) -> f64 {
    if space.total_bytes == 0 { 1.0 } else { space.raw_bytes as f64 / space.total_bytes as f64 }
}

/// What is shown of a file system, as JSON; sizes are in bytes.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Object {
    device_size: u64,
    device_allocated: u64,
    device_unallocated: u64,
    device_missing: u64,
    device_slack: u64,
    used: u64,
    free_estimated: u64,
    free_min: u64,
    free_statfs: u64,
    data_ratio: f64,
    metadata_ratio: f64,
    /// None where no such reserve is known.
    global_reserve: Option<Reserve>,
    multiple_profiles: bool,
    block_groups: Vec<BlockGroups>,
    devices: Vec<DeviceSpace>,
}

/// Space for trees that is set aside.
#[derive(Serialize)]
struct Reserve {
    total: u64,
    used: u64,
}

/// The block groups of one kind and profile.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct BlockGroups {
    bg_type: &'static str,
    bg_profile: String,
    total: u64,
    used: u64,
    devices: Vec<OnDevice>,
}

/// Bytes of them on a device.
#[derive(Serialize)]
struct OnDevice {
    devid: u64,
    size: u64,
}

impl Object {
    fn new(filesystem: &dyn Overview) -> anyhow::Result<Self> {
        let (spaces, devices) = (known_spaces(filesystem)?, own_devices(filesystem)?);
        let (sums, memory) = (Sums::new(&spaces, &devices), InMemory::of(filesystem)?);
        let reserve = |GlobalReserve { total_bytes, used_bytes }| Reserve {
            total: total_bytes,
            used: used_bytes,
        };
        Ok(Self {
            device_size: sums.size,
            device_allocated: sums.allocated,
            device_unallocated: sums.size.saturating_sub(sums.allocated),
            device_missing: sums.missing,
            device_slack: devices.iter().map(slack).sum(),
            used: sums.used,
            free_estimated: sums.free(),
            free_min: sums.least_free(),
            free_statfs: memory.available_bytes,
            data_ratio: sums.data_ratio,
            metadata_ratio: sums.metadata_ratio,
            global_reserve: memory.global_reserve.map(reserve),
            multiple_profiles: sums.several_profiles,
            block_groups: spaces.iter().map(BlockGroups::new).collect(),
            devices: devices.iter().map(DeviceSpace::new).collect(),
        })
    }
}

impl BlockGroups {
    fn new(space: &Space) -> Self {
        let on_device = |(devid, size): (&u64, &u64)| OnDevice { devid: *devid, size: *size };
        Self {
            bg_type: kind_name(space.kind),
            bg_profile: profile_name(space.profile),
            total: space.total_bytes,
            used: space.used_bytes,
            devices: space.device_bytes.iter().map(on_device).collect(),
        }
    }
}
