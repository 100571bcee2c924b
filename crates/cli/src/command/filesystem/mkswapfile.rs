//! `larder filesystem mkswapfile`.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, ensure};
use clap::Args;
use larder::{AllocateMode, Uuid};
use larder_copy::new_inode;
use rustix::fs::{FallocateFlags, IFlags};

use crate::global::Global;
use crate::operand::parse_uuid;
use crate::outcome::Outcome;
use crate::output::stdout;
use crate::source::{PathSource, Writing, on_image};
use crate::target::Target;
use crate::units::Units;
use larder_objects::parse_size;

/// Make a file for swapping
///
/// The file is written in place, its space is allocated, and it has the header of mkswap(8). The
/// kernel swaps to it on its own btrfs; it does not swap to files on FUSE mounts.
///
/// Examples:
///   larder filesystem mkswapfile -s 4G ~/mnt/swapfile
///   larder filesystem mkswapfile -s 512M disk.img:/swapfile
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Mkswapfile {
    /// Its size
    #[arg(short, long, value_name = "SIZE", default_value = "2G", value_parser = parse_size)]
    size: u64,
    /// Its uuid: one, or random (default), time or clear
    #[arg(
        short = 'U',
        long,
        value_name = "UUID",
        default_value = "random",
        hide_default_value = true
    )]
    uuid: SwapUuid,
    #[command(flatten)]
    source: PathSource,
    /// The new file, in an image or in a file system that is mounted
    #[arg(value_name = "IMAGE:/PATH or PATH")]
    path: OsString,
}

/// The uuid of swap space.
#[derive(Clone, Copy, Debug)]
struct SwapUuid(Uuid);

impl FromStr for SwapUuid {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(match text {
            "clear" => Uuid::nil(),
            "random" => Uuid::new_v4(),
            "time" => time_based(),
            text => parse_uuid(text)?,
        }))
    }
}

/// The least that mkswap(8) accepts.
const LEAST_BYTES: u64 = 40 << 10;
/// Only the owner may look into memory that was swapped out.
const PERMISSIONS: u32 = 0o600;

impl Mkswapfile {
    pub fn run(self, global: &Global) -> Outcome {
        ensure!(self.size >= LEAST_BYTES, "a swapfile has 40 KiB at least");
        let page = rustix::param::page_size() as u64;
        let len_bytes = self.size - self.size % page;
        let header = header(len_bytes / page, page as usize, self.uuid.0);
        let code = match self.source.mounted_path(&self.path)? {
            Some(path) => {
                let made = make(path, len_bytes, &header);
                made.with_context(|| path.display().to_string())?;
                ExitCode::SUCCESS
            }
            None => {
                let mut made = Ok(());
                let code = self.source.change(&self.path, |writing| {
                    made = make_on_image(writing, &self.path, len_bytes, &header);
                    // A file that was begun is gone then, and that is committed too.
                    Ok(usize::from(made.is_err()))
                })?;
                made.map(|()| code)?
            }
        };
        if !global.is_quiet() {
            let (shown, human) = (self.path.display(), Units::default().show(len_bytes));
            writeln!(stdout(), "create swapfile {shown} size {human} ({len_bytes})")?;
        }
        Ok(code)
    }
}

/// A uuid of version 1: the time, and random numbers in place of the address of this machine.
fn time_based() -> Uuid {
    /// Steps of 100 ns between the beginning of the Gregorian calendar and 1970.
    const BEFORE_1970: u64 = 0x01B2_1DD2_1381_4000;
    const VERSION_1: u16 = 1 << 12;
    /// The address is none of a network card.
    const MULTICAST: u8 = 1;
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let time = (since_1970.as_nanos() / 100) as u64 + BEFORE_1970;
    let mut rest = *Uuid::new_v4().as_fields().3;
    rest[2] |= MULTICAST;
    let version = (time >> 48) as u16 & 0x0FFF | VERSION_1;
    Uuid::from_fields(time as u32, (time >> 32) as u16, version, &rest)
}

/// The first page of a swapfile: `union swap_header` of the kernel.
fn header(pages: u64, page_bytes: usize, uuid: Uuid) -> Vec<u8> {
    const MAGIC: &[u8] = b"SWAPSPACE2";
    const INFO_AT: usize = 1024;
    const VERSION: u32 = 1;
    let last_page = u32::try_from(pages - 1).unwrap_or(u32::MAX);
    // Version, last page, number of bad pages.
    let numbers = [VERSION, last_page, 0].map(u32::to_ne_bytes).concat();
    let info = [&numbers[..], uuid.as_bytes()].concat();
    let mut page = vec![0; page_bytes];
    page[INFO_AT..INFO_AT + info.len()].copy_from_slice(&info);
    page[page_bytes - MAGIC.len()..].copy_from_slice(MAGIC);
    page
}

/// Makes the file on a mount.
fn make(path: &Path, len_bytes: u64, header: &[u8]) -> anyhow::Result<()> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(PERMISSIONS).open(path)?;
    fill(&file, len_bytes, header).inspect_err(|_| {
        let _ = fs::remove_file(path);
    })
}

fn fill(file: &File, len_bytes: u64, header: &[u8]) -> anyhow::Result<()> {
    let flags = rustix::fs::ioctl_getflags(file).map_err(io::Error::from);
    let in_place = |flags| rustix::fs::ioctl_setflags(file, flags | IFlags::NOCOW);
    let set = flags.and_then(|flags| in_place(flags).map_err(Into::into));
    set.context("cannot be written in place")?;
    rustix::fs::fallocate(file, FallocateFlags::empty(), 0, len_bytes).map_err(io::Error::from)?;
    file.write_all_at(header, 0)?;
    Ok(file.sync_all()?)
}

/// Makes the file in an image.
fn make_on_image(
    writing: &Writing,
    text: &OsStr,
    len_bytes: u64,
    header: &[u8],
) -> anyhow::Result<()> {
    let path = writing.path(text)?;
    let inode = writing.start.create_inode(&path, &new_inode(0o100_000 | PERMISSIONS, 0))?;
    let file = inode.into_file()?;
    let fill = || {
        let flags = file.metadata().ioctl_flags() | IFlags::NOCOW.bits();
        file.set_ioctl_flags(flags)?;
        file.allocate(0, len_bytes, AllocateMode::Grow)?;
        file.write_at(header, 0)
    };
    let filled = fill();
    if filled.is_err() {
        writing.start.remove_file(&path)?;
    }
    filled.with_context(|| on_image(&Target::parse(text).image))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_that_of_mkswap() {
        let page = header(2560, 4096, Uuid::from_u128(1));
        assert_eq!(page[1024..1036], [1, 0, 0, 0, 0xFF, 9, 0, 0, 0, 0, 0, 0]);
        assert_eq!(page[1051], 1);
        assert!(page.ends_with(b"SWAPSPACE2"));
        assert_eq!(time_based().get_version_num(), 1);
    }
}
