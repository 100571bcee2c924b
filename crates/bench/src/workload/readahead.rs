//! Ablation: readahead of a full send.

use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use clap::Args;
use larder_btree::Readahead as Mode;
use larder_device::{Access, Device, DeviceError, FileDevice, PrefetchingDevice};
use larder_filesystem::{Filesystem, Subvolume};
use larder_format::objectid;
use larder_stream::{Reading, SendOptions};
use larder_test_devices::{Geometry, SpinningDisk};
use larder_testkit::KernelMount;
use larder_volume::{OpenOptions, Volume};

use crate::image::InlineFiles;
use crate::measure::drop_caches;

/// The snapshot to send.
const SNAPSHOT: &str = "sent";
/// Tree blocks in memory.
const CACHE_BYTES: usize = 64 << 20;
/// The most bytes that are read ahead and unused.
const PREFETCH_BYTES: u64 = 16 << 20;
const PREFETCH_THREADS: usize = 4;
/// About the bytes of a small file in its leaf besides its data.
const ITEMS_BYTES: usize = 300;

const MODES: [(&str, Mode); 4] = [
    ("none", Mode::None),
    ("back", Mode::Back),
    ("forward", Mode::Forward),
    ("forward-always", Mode::ForwardAlways),
];

/// Ablation: readahead of a full send, in four modes
///
/// Sends a snapshot of small files that the kernel wrote, once from the image read around the page
/// cache and once from a model of a spinning disk, whose clock does not depend on this machine;
/// each time with nothing in memory, and with about every other leaf: then forward stops reading
/// ahead wherever the wanted block is in memory, and forward-always continues.
/// ahead wherever the wanted block is in memory, and forward-always goes on.
#[derive(Debug, Args)]
pub struct Readahead {
    /// Files in the image
    #[arg(long, default_value_t = 300_000)]
    files: usize,
    /// Bytes in each file; up to 2048 are inline
    #[arg(long, default_value_t = 2000)]
    file_bytes: usize,
    /// Keep the image here, or use the existing one: on a file system with direct I/O
    #[arg(long, value_name = "FILE")]
    image: PathBuf,
    /// On the spinning disk: microseconds of work for each block that is read
    #[arg(long, default_value_t = 60)]
    work_micros: u64,
}

/// A device, and its modelled disk if there is one.
type WithDisk = (Arc<dyn Device>, Option<Arc<SpinningDisk>>);

/// The medium of the device for a send.
#[derive(Clone, Copy)]
enum Medium {
    Direct,
    Spinning,
}

impl Readahead {
    pub fn run(self) -> anyhow::Result<()> {
        let image = InlineFiles::new(self.files, self.file_bytes, Some(&self.image))?;
        take_snapshot(image.path())?;
        let geometry = Geometry::default();
        println!("spinning disk: {geometry:?}, {} us of work for each block", self.work_micros);
        println!(
            "{:14} {:9} {:15} {:>8} {:>9} {:>9} {:>9} {:>8}",
            "device", "in memory", "mode", "seconds", "read", "ahead", "used", "seeks"
        );
        for medium in [Medium::Direct, Medium::Spinning] {
            for is_half_cached in [false, true] {
                for (name, mode) in MODES {
                    self.send(image.path(), medium, is_half_cached, name, mode)?;
                }
            }
        }
        Ok(())
    }

    /// Sends once, and prints the row.
    fn send(
        &self,
        image: &Path,
        medium: Medium,
        is_half_cached: bool,
        name: &str,
        readahead: Mode,
    ) -> anyhow::Result<()> {
        drop_caches()?;
        let (device, disk) = self.device(image, medium)?;
        let volume = Arc::new(Volume::open(vec![device], &OpenOptions::default())?);
        let cache_bytes = if is_half_cached { usize::MAX } else { CACHE_BYTES };
        let filesystem = Filesystem::open(volume, cache_bytes)?;
        let snapshot = sent_snapshot(&filesystem)?;
        if is_half_cached {
            self.look_at_every_other_leaf(&snapshot);
        }
        let virtual_clock = || disk.as_ref().map(|disk| (disk.elapsed(), disk.seeks()));
        let (before, clock, since) = (filesystem.stats().trees, virtual_clock(), Instant::now());
        let reading = Reading { readahead, ..Reading::default() };
        larder_stream::send_reading(&snapshot, &SendOptions::default(), reading, &mut io::sink())?;
        let elapsed = since.elapsed();
        let (elapsed, seeks) = match clock.zip(virtual_clock()) {
            Some(((start, seeks), (end, all))) => {
                (end.saturating_sub(start), (all - seeks).to_string())
            }
            None => (elapsed, "-".into()),
        };
        let trees = filesystem.stats().trees;
        println!(
            "{:14} {:9} {name:15} {:8.2} {:9} {:9} {:9} {seeks:>8}",
            if disk.is_some() { "spinning disk" } else { "file, direct" },
            if is_half_cached { "half" } else { "nothing" },
            elapsed.as_secs_f64(),
            trees.misses - before.misses,
            trees.readahead_blocks - before.readahead_blocks,
            trees.readahead_used - before.readahead_used,
        );
        Ok(())
    }

    /// The image as a device, and its spinning disk if there is one.
    fn device(&self, image: &Path, medium: Medium) -> anyhow::Result<WithDisk> {
        Ok(match medium {
            Medium::Direct => {
                let file = Arc::new(FileDevice::open(image, Access::ReadOnlyDirect)?);
                let device = PrefetchingDevice::new(file, PREFETCH_THREADS, PREFETCH_BYTES);
                (Arc::new(device), None)
            }
            Medium::Spinning => {
                let file = Arc::new(FileDevice::open(image, Access::ReadOnly)?);
                let disk = Arc::new(SpinningDisk::new(file, Geometry::default()));
                let work = Duration::from_micros(self.work_micros);
                (Arc::new(Working { disk: disk.clone(), work }), Some(disk))
            }
        })
    }

    fn look_at_every_other_leaf(&self, snapshot: &Subvolume) {
        let files_per_leaf = (16 << 10) / (self.file_bytes + ITEMS_BYTES);
        for file in (0..self.files).step_by(2 * files_per_leaf.max(1)) {
            // The numbers include directories; a missing inode does no harm.
            let _ = snapshot.inode(objectid::FIRST_FREE + 1 + file as u64);
        }
    }
}

fn take_snapshot(image: &Path) -> anyhow::Result<()> {
    let mount = KernelMount::open(&[image.to_owned()], "");
    let path = mount.path().join(SNAPSHOT);
    if path.exists() {
        return Ok(());
    }
    let mut command = Command::new("btrfs");
    let output =
        command.args(["subvolume", "snapshot", "-r"]).arg(mount.path()).arg(path).output()?;
    ensure!(output.status.success(), "btrfs subvolume snapshot failed");
    Ok(())
}

fn sent_snapshot(filesystem: &Filesystem) -> anyhow::Result<Subvolume> {
    for info in filesystem.subvolumes() {
        let subvolume = filesystem.subvolume_by_id(info?.id)?;
        if subvolume.info()?.name.is_some_and(|name| name.name == SNAPSHOT.as_bytes()) {
            return Ok(subvolume);
        }
    }
    bail!("the image has no snapshot named {SNAPSHOT}")
}

/// A disk whose user works on each block that it reads.
#[derive(Debug)]
struct Working {
    disk: Arc<SpinningDisk>,
    work: Duration,
}

impl Device for Working {
    fn name(&self) -> &str {
        self.disk.name()
    }

    fn len_bytes(&self) -> u64 {
        self.disk.len_bytes()
    }

    fn is_writable(&self) -> bool {
        self.disk.is_writable()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<(), DeviceError> {
        self.disk.read_at(buf, offset)?;
        self.disk.spend(self.work);
        Ok(())
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> Result<(), DeviceError> {
        self.disk.write_vectored_at(bufs, offset)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.disk.flush()
    }

    fn discard(&self, offset: u64, len_bytes: u64) -> Result<(), DeviceError> {
        self.disk.discard(offset, len_bytes)
    }

    fn readahead(&self, offset: u64, len_bytes: u64) {
        self.disk.readahead(offset, len_bytes);
    }
}
