//! Visiting every entry of a subvolume and its attributes.

use std::thread;

use clap::Args;
use larder::{OpenOptions, Scan, Subvolume};
use larder_testkit::KernelMount;

use super::ImageOptions;
use crate::measure::{Run, drop_caches};
use crate::table::Comparison;

/// Visit all entries with path and attributes: find with stat on the kernel's cold mount against
/// the library
#[derive(Debug, Args)]
pub struct Walk {
    #[command(flatten)]
    pub(super) image: ImageOptions,
}

impl Walk {
    pub fn run(self) -> anyhow::Result<()> {
        let image = self.image.image()?;
        let theirs = || {
            let mount = KernelMount::open(&[image.path().to_owned()], "ro,noatime");
            drop_caches()?;
            let options = ["-printf", "%m %s %p\\n"];
            Run::of("find", [mount.path().as_os_str()].into_iter().chain(options.map(str::as_ref)))
        };
        let ours = || {
            drop_caches()?;
            Run::in_process(|| {
                let filesystem = OpenOptions::new().open([image.path()])?;
                visit_all(&filesystem.subvolume("/")?)
            })
        };
        Comparison::measure("walk and stat", self.image.repeats, theirs, ours)?
            .print("find on the kernel");
        Ok(())
    }
}

/// Builds the path and reads the attributes of every entry, on all cores.
fn visit_all(top: &Subvolume) -> anyhow::Result<()> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let parts = top.scan_parts(threads)?;
    thread::scope(|scope| {
        let visit = |part| scope.spawn(move || visit(top, part));
        let workers: Vec<_> = parts.into_iter().map(visit).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a visitor does not panic"))
    })
}

fn visit(top: &Subvolume, part: Scan) -> anyhow::Result<()> {
    let mut paths = top.paths();
    for inode in part {
        let inode = inode?;
        for link in &inode.links {
            std::hint::black_box((paths.of(link)?, &inode.metadata));
        }
    }
    Ok(())
}
