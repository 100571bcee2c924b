//! The workloads, one file each.

mod check;
mod create;
mod dbench;
mod delayed;
mod delete;
mod disks;
mod dump_tree;
mod early_release;
mod everyday;
mod extents;
mod find_stat;
mod fs_mark;
mod fsync;
mod git_status;
mod mkfs;
mod object_mounts;
mod objects;
mod processors;
mod readahead;
mod receive;
mod reservation;
mod scrub;
mod send;
mod sequential;
mod snapshot;
mod tree_locks;
mod walk;
mod write;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::image::InlineFiles;

/// The workloads.
#[derive(Debug, Subcommand)]
pub enum Workload {
    DumpTree(dump_tree::DumpTree),
    Check(check::Check),
    Mkfs(mkfs::Mkfs),
    Walk(walk::Walk),
    Create(create::Create),
    Delete(delete::Delete),
    Disks(disks::Disks),
    DiskGrowth(disks::DiskGrowth),
    Fsync(fsync::Fsync),
    Snapshot(snapshot::Snapshot),
    Delayed(delayed::Delayed),
    Reservation(reservation::Reservation),
    Scrub(scrub::Scrub),
    Send(send::Send),
    Receive(receive::Receive),
    EarlyRelease(early_release::EarlyRelease),
    Processors(processors::Processors),
    TreeLocks(tree_locks::TreeLocks),
    Readahead(readahead::Readahead),
    Extents(extents::Extents),
    Write(write::Write),
    FsMark(fs_mark::FsMark),
    Dbench(dbench::Dbench),
    Sequential(sequential::Sequential),
    FindStat(find_stat::FindStat),
    GitStatus(git_status::GitStatus),
    Everyday(everyday::Everyday),
    Objects(objects::Objects),
    ObjectMounts(object_mounts::ObjectMounts),
}

impl Workload {
    pub fn run(self) -> anyhow::Result<()> {
        match self {
            Self::DumpTree(workload) => workload.run(),
            Self::Check(workload) => workload.run(),
            Self::Mkfs(workload) => workload.run(),
            Self::Walk(workload) => workload.run(),
            Self::Create(workload) => workload.run(),
            Self::Delete(workload) => workload.run(),
            Self::Disks(workload) => workload.run(),
            Self::DiskGrowth(workload) => workload.run(),
            Self::Fsync(workload) => workload.run(),
            Self::Snapshot(workload) => workload.run(),
            Self::Delayed(workload) => workload.run(),
            Self::Reservation(workload) => workload.run(),
            Self::Scrub(workload) => workload.run(),
            Self::Send(workload) => workload.run(),
            Self::Receive(workload) => workload.run(),
            Self::EarlyRelease(workload) => workload.run(),
            Self::Processors(workload) => workload.run(),
            Self::TreeLocks(workload) => workload.run(),
            Self::Readahead(workload) => workload.run(),
            Self::Extents(workload) => workload.run(),
            Self::Write(workload) => workload.run(),
            Self::FsMark(workload) => workload.run(),
            Self::Dbench(workload) => workload.run(),
            Self::Sequential(workload) => workload.run(),
            Self::FindStat(workload) => workload.run(),
            Self::GitStatus(workload) => workload.run(),
            Self::Everyday(workload) => workload.run(),
            Self::Objects(workload) => workload.run(),
            Self::ObjectMounts(workload) => workload.run(),
        }
    }
}

impl Workload {
    /// The option that says how large the work is.
    pub fn size_option(&self) -> Option<&'static str> {
        match self {
            Self::Extents(_) | Self::DiskGrowth(_) => Some("extents"),
            Self::Fsync(_) => Some("syncs"),
            Self::Write(_) | Self::Objects(_) | Self::ObjectMounts(_) => Some("mib"),
            Self::Sequential(_) | Self::Scrub(_) | Self::Disks(_) => Some("mebibytes"),
            Self::Mkfs(_) | Self::Dbench(_) => None,
            _ => Some("files"),
        }
    }

    /// Whether the image stays for the next run, with as many files as it has.
    pub fn keeps_image(&self) -> bool {
        let image = match self {
            Self::DumpTree(dump_tree::DumpTree { image })
            | Self::Check(check::Check { image })
            | Self::Walk(walk::Walk { image })
            | Self::Snapshot(snapshot::Snapshot { image }) => &image.image,
            Self::Readahead(_) => return true,
            _ => return false,
        };
        image.is_some()
    }
}

/// The image of inline files that several workloads read.
#[derive(Debug, Args)]
struct ImageOptions {
    /// Files in the image
    #[arg(long, default_value_t = 500_000)]
    files: usize,
    /// Bytes in each file; up to 2048 are inline
    #[arg(long, default_value_t = 2000)]
    file_bytes: usize,
    /// Keep the image here, or use the existing one
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,
    /// Runs of each side; the best of each counts
    #[arg(long, default_value_t = 3)]
    repeats: usize,
}

impl ImageOptions {
    fn image(&self) -> anyhow::Result<InlineFiles> {
        InlineFiles::new(self.files, self.file_bytes, self.image.as_deref())
    }
}
