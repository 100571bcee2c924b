//! Snapshots of an image, to send and receive.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use clap::Args;
use larder_testkit::{KernelMount, Scratch};

use crate::image::InlineFiles;
use crate::measure::Run;

/// One file in so many changes between the snapshots.
const ONE_IN: usize = 100;
/// Bytes of one of the large files.
const LARGE_FILE_BYTES: u64 = 256 << 20;

/// The snapshots to send and receive.
#[derive(Debug, Args)]
pub struct SnapshotOptions {
    /// Number of small, inline files
    #[arg(long, default_value_t = 500_000)]
    files: usize,
    /// Bytes in each of them
    #[arg(long, default_value_t = 2000)]
    file_bytes: usize,
    /// Bytes in large files
    #[arg(long, default_value_t = 4 << 30)]
    large_bytes: u64,
    /// Runs of each side; the best of each counts
    #[arg(long, default_value_t = 3)]
    pub repeats: usize,
}

/// An image with the snapshots `before` and `after` of small files, of which one in a hundred
/// changed, and `large` of large ones.
pub struct Snapshots {
    image: InlineFiles,
    scratch: Scratch,
}

/// A snapshot, and its parent for an increment.
pub type Sent = (&'static str, Option<&'static str>);

/// The sends to measure: everything, an increment, large files.
pub const SENT: [(&str, Sent); 3] = [
    ("small files", ("before", None)),
    ("1% of them changed", ("after", Some("before"))),
    ("large files", ("large", None)),
];

impl Snapshots {
    /// Makes the kernel create them.
    pub fn new(options: &SnapshotOptions) -> anyhow::Result<Self> {
        let image = InlineFiles::with_space(
            options.files,
            options.file_bytes,
            2 * options.large_bytes,
            None,
        )?;
        let snapshots = Self { image, scratch: Scratch::new() };
        let mount = snapshots.mount();
        let top = mount.path();
        snapshot(top, &top.join("before"))?;
        for folder in fs::read_dir(top)? {
            let folder = folder?.path();
            if !folder.to_string_lossy().ends_with("before") {
                change(&folder, options.file_bytes)?;
            }
        }
        snapshot(top, &top.join("after"))?;
        let work = top.join("work");
        btrfs(&[Path::new("subvolume"), Path::new("create"), &work])?;
        let mut content = vec![0_u8; 1 << 20];
        for number in 0..options.large_bytes / LARGE_FILE_BYTES {
            let mut file = File::create(work.join(number.to_string()))?;
            for piece in 0..LARGE_FILE_BYTES >> 20 {
                content.fill((number + piece) as u8);
                file.write_all(&content)?;
            }
        }
        snapshot(&work, &top.join("large"))?;
        mount.sync();
        drop(mount);
        Ok(snapshots)
    }

    /// The image file.
    pub fn image(&self) -> &Path {
        self.image.path()
    }

    /// A directory for other files.
    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// Mounts the image.
    pub fn mount(&self) -> KernelMount {
        KernelMount::open(&[self.image().to_owned()], "noatime,max_inline=2048")
    }

    /// Makes the kernel send a snapshot to a file.
    pub fn kernel_send(
        mount: &KernelMount,
        (name, parent): Sent,
        stream: &Path,
    ) -> anyhow::Result<Run> {
        let mut arguments = vec![PathBuf::from("send"), "-q".into(), "-f".into(), stream.into()];
        if let Some(parent) = parent {
            arguments.extend(["-p".into(), mount.path().join(parent)]);
        }
        arguments.push(mount.path().join(name));
        Run::of("btrfs", arguments)
    }

    /// Makes Larder send a snapshot to a file.
    pub fn larder_send(
        &self,
        larder: &Path,
        (name, parent): Sent,
        stream: &Path,
    ) -> anyhow::Result<Run> {
        let of = |name: &str| PathBuf::from(format!("{}:/{name}", self.image().display()));
        let mut arguments = vec![PathBuf::from("send"), "-f".into(), stream.into()];
        if let Some(parent) = parent {
            arguments.extend(["-p".into(), of(parent)]);
        }
        arguments.push(of(name));
        Run::of(larder, arguments)
    }
}

fn change(folder: &Path, file_bytes: usize) -> anyhow::Result<()> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<anyhow::Result<_>>()?;
    files.sort();
    for file in files.iter().step_by(ONE_IN) {
        fs::write(file, vec![b'y'; file_bytes])?;
    }
    Ok(())
}

fn snapshot(source: &Path, target: &Path) -> anyhow::Result<()> {
    btrfs(&[Path::new("subvolume"), Path::new("snapshot"), Path::new("-r"), source, target])
}

fn btrfs(arguments: &[&Path]) -> anyhow::Result<()> {
    let output = Command::new("btrfs").args(arguments).output().context("btrfs, of btrfs-progs")?;
    ensure!(output.status.success(), "btrfs failed: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
