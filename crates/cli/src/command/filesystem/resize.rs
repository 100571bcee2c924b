//! `larder filesystem resize`.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, anyhow, ensure};
use clap::Args;
use larder::device::{Device as _, FileDevice};
use larder_objects::parse_size;
use rustix::io::Errno;

use crate::command::device::on::{Device, judge, of_mount, shown, with_progress};
use crate::command::enqueue::Enqueue;
use crate::outcome::Outcome;
use crate::source::Source;
use crate::target::Target;
use crate::units::Units;

/// Change the size of a file system on one of its devices
///
/// What lies after a new end is moved first; that can be interrupted and begun again. An image file
/// gets the new length too: it grows before, and is cut after. A partition or the disk in a qcow2
/// image keeps its size, which limits that of the file system.
///
/// `min` moves content together, cuts block groups after it, and moves them down. It needs a free
/// space tree, without which what is free between files stays.
///
/// Examples:
///   larder filesystem resize +10G disk.img
///   larder filesystem resize min disk.img
///   larder filesystem resize 2:max /mnt
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Resize {
    #[command(flatten)]
    enqueue: Enqueue,
    #[command(flatten)]
    source: Source,
    /// Bytes, or with k, m, g, ... after it of their powers of 1024; with + or - before it to add
    /// or take as many; `max` for all of the device; `min` for as little as possible; `cancel` to
    /// end a resize of a mount. Before it, the id of a device and a colon: 1 unless given
    #[arg(
        value_name = "[DEVID:][+/-]SIZE or [DEVID:]max or min or cancel",
        allow_hyphen_values = true
    )]
    size: String,
    /// An image of the file system, which must not be mounted; or a directory of one that is
    /// mounted, by larder or by the kernel
    #[arg(value_name = "IMAGE or PATH")]
    image: OsString,
}

/// The new size of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Max,
    Min,
    Cancel,
    Exactly(u64),
    More(u64),
    Less(u64),
}

impl Resize {
    pub fn run(self) -> Outcome {
        self.resize().with_context(|| shown(&self.image))?;
        Ok(ExitCode::SUCCESS)
    }

    fn resize(&self) -> anyhow::Result<()> {
        let (devid, wanted) = parse(&self.size)?;
        let image = Target::parse(&self.image).image;
        if let Some(path) = self.source.mounted_directory(&self.image)? {
            let directory = File::open(path)?;
            let resize = |text: &str| {
                self.enqueue.wait(|| {
                    larder_ioctl::resize_device(&directory, devid, text).map_err(of_word(text))
                })
            };
            if let Some(text) = wanted.word().filter(|_| wanted != Wanted::Max) {
                return resize(text);
            }
            let device =
                device_in(larder_ioctl::devices(&directory)?.into_iter().map(Into::into), devid)?;
            tell(&device, wanted, wanted.apply(device.total_bytes, u64::MAX)?);
            let text = match wanted {
                Wanted::Max => "max".to_owned(),
                _ => wanted.apply(device.total_bytes, u64::MAX)?.to_string(),
            };
            return resize(&text);
        }
        // No file changes while another program has it open.
        let before = self.enqueue.wait(|| self.source.open_for_writing(&image))?;
        let device = device_in(before.devices().into_iter().map(Into::into), devid)?;
        drop(before);
        ensure!(wanted != Wanted::Cancel, "an image that is not mounted has no resize to cancel");
        if wanted == Wanted::Min {
            return minimize(&self.source, &image, &device);
        }
        let path = device.path.clone().context("the device is missing")?;
        let (room, is_file) = self.source.room(&path)?;
        let new_bytes = wanted.apply(device.total_bytes, room)?;
        ensure!(
            new_bytes <= room || is_file,
            "{}: it has only {room} bytes, and keeps them",
            path.display()
        );
        tell(&device, wanted, new_bytes);
        let (filesystem, file) = self.source.open_for_resizing(&image, &path)?;
        let lengthened = Lengthened::new(file.as_deref(), new_bytes)?;
        judge(&with_progress(|tell| filesystem.resize_device(devid, new_bytes, tell))?)?;
        filesystem.close()?;
        lengthened.keep();
        cut(file.as_deref(), new_bytes)
    }
}

/// Makes the file system on a device of an image as small as it can be, and cuts the file.
pub fn minimize(source: &Source, image: &Path, device: &Device) -> anyhow::Result<()> {
    let path = device.path.clone().context("the device is missing")?;
    let (filesystem, file) = source.open_for_resizing(image, &path)?;
    let (new_bytes, moved) = with_progress(|tell| filesystem.minimize_device(device.id, tell))?;
    judge(&moved)?;
    filesystem.close()?;
    tell(device, Wanted::Min, new_bytes);
    if file.is_none() {
        let (room, _) = source.room(&path)?;
        eprintln!("{}: keeps its length of {room} bytes", path.display());
    }
    cut(file.as_deref(), new_bytes)
}

/// Cuts an image file after the end of its file system.
fn cut(file: Option<&FileDevice>, new_bytes: u64) -> anyhow::Result<()> {
    match file {
        Some(file) if new_bytes < file.len_bytes() => Ok(file.set_len(new_bytes)?),
        _ => Ok(()),
    }
}

/// The error of a mount that was asked for a word.
fn of_word(word: &str) -> impl Fn(io::Error) -> anyhow::Error + '_ {
    move |error| match Errno::from_io_error(&error) {
        Some(Errno::INVAL) if word == "min" => {
            anyhow!("the kernel knows no 'min': unmount it, and name the image")
        }
        Some(Errno::NOTCONN) => anyhow!("no resize is in progress"),
        _ => of_mount(error),
    }
}

fn device_in(mut devices: impl Iterator<Item = Device>, devid: u64) -> anyhow::Result<Device> {
    let found = devices.find(|device| device.id == devid);
    found.with_context(|| format!("there is no device {devid}"))
}

fn tell(device: &Device, wanted: Wanted, new_bytes: u64) {
    let units = Units::default();
    let new = match wanted {
        Wanted::Max => "max".to_owned(),
        _ => units.show(new_bytes),
    };
    let (id, path) = (device.id, device.path.as_deref().unwrap_or(Path::new("missing")).display());
    println!("Resize device id {id} ({path}) from {} to {new}", units.show(device.total_bytes));
}

/// Reads a device id and a size.
fn parse(text: &str) -> anyhow::Result<(u64, Wanted)> {
    let (devid, size) = text.split_once(':').unwrap_or(("1", text));
    let devid = devid.parse().with_context(|| format!("'{devid}' is no device id"))?;
    let parsed = |digits: &str| parse_size(digits).map_err(|error| anyhow!(error));
    let wanted = match size.as_bytes().first() {
        _ if size == "max" => Wanted::Max,
        _ if size == "min" => Wanted::Min,
        _ if size == "cancel" => Wanted::Cancel,
        Some(b'+') => Wanted::More(parsed(&size[1..])?),
        Some(b'-') => Wanted::Less(parsed(&size[1..])?),
        _ => Wanted::Exactly(parsed(size)?),
    };
    Ok((devid, wanted))
}

impl Wanted {
    /// What the kernel calls it, if it is a word.
    fn word(self) -> Option<&'static str> {
        match self {
            Self::Max => Some("max"),
            Self::Min => Some("min"),
            Self::Cancel => Some("cancel"),
            _ => None,
        }
    }

    /// The new size of a device that has `before` bytes and could have `room`.
    fn apply(self, before: u64, room: u64) -> anyhow::Result<u64> {
        match self {
            Self::Max => Ok(room),
            Self::Min | Self::Cancel => Ok(before),
            Self::Exactly(bytes) => Ok(bytes),
            Self::More(bytes) => before.checked_add(bytes).context("more than any device holds"),
            Self::Less(bytes) => before.checked_sub(bytes).context("less than nothing"),
        }
    }
}

/// An image file that was made longer. It gets its length back if this is dropped before
/// [`keep`](Self::keep).
struct Lengthened<'f>(Option<(&'f FileDevice, u64)>);

impl<'f> Lengthened<'f> {
    fn new(file: Option<&'f FileDevice>, wanted: u64) -> anyhow::Result<Self> {
        let Some(file) = file.filter(|file| file.len_bytes() < wanted) else {
            return Ok(Self(None));
        };
        let before = file.len_bytes();
        file.set_len(wanted)?;
        Ok(Self(Some((file, before))))
    }

    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for Lengthened<'_> {
    fn drop(&mut self) {
        if let Some((file, before)) = self.0 {
            // The caller hears of the first error.
            let _ = file.set_len(before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_btrfs_progs_reads_them() {
        assert_eq!(parse("10g").unwrap(), (1, Wanted::Exactly(10 << 30)));
        assert_eq!(parse("3:+1m").unwrap(), (3, Wanted::More(1 << 20)));
        assert_eq!(parse("-4096").unwrap(), (1, Wanted::Less(4096)));
        assert_eq!(parse("2:max").unwrap(), (2, Wanted::Max));
        assert_eq!(parse("2:min").unwrap(), (2, Wanted::Min));
        assert_eq!(parse("cancel").unwrap(), (1, Wanted::Cancel));
        for bad in ["", "x", "1:", "a:1g", "+", "max:1"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
