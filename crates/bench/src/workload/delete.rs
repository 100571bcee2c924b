//! Deleting many files.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread;

use clap::Args;
use larder::OpenOptions;
use larder_testkit::{KernelMount, Scratch};

use crate::image::make_empty;
use crate::measure::Run;
use crate::table::Comparison;

/// Delete empty files from several threads, each in a directory of its own, and sync: the kernel's
/// btrfs against the library
#[derive(Debug, Args)]
pub struct Delete {
    /// Threads
    #[arg(long, default_value_t = 2)]
    threads: u64,
    /// Files, all threads together
    #[arg(long, default_value_t = 400_000)]
    files: u64,
    /// Bytes of the image
    #[arg(long, default_value_t = 16 << 30)]
    image_bytes: u64,
    /// Runs of each side; the best of each counts
    #[arg(long, default_value_t = 2)]
    repeats: usize,
}

impl Delete {
    pub fn run(self) -> anyhow::Result<()> {
        let scratch = Scratch::new();
        let image = scratch.path().join("delete.img");
        let comparison = Comparison::measure(
            "delete and sync",
            self.repeats,
            || self.by_kernel(&image),
            || self.by_larder(&image),
        )?;
        comparison.print("the kernel");
        Ok(())
    }

    /// The kernel creates the files and then deletes them, so they are in its caches.
    fn by_kernel(&self, image: &Path) -> anyhow::Result<Run> {
        make_empty(image, self.image_bytes)?;
        let mount = KernelMount::open(&[image.to_owned()], "ssd");
        self.on_threads(|path| {
            let path = mount.path().join(path);
            fs::create_dir_all(path.parent().expect("it is in a directory"))?;
            File::create(path)?;
            Ok(())
        })?;
        mount.sync();
        Run::in_process(|| {
            self.on_threads(|path| Ok(fs::remove_file(mount.path().join(path))?))?;
            mount.sync();
            Ok(())
        })
    }

    fn by_larder(&self, image: &Path) -> anyhow::Result<Run> {
        make_empty(image, self.image_bytes)?;
        let filesystem = OpenOptions::new().write(true).open([image])?;
        let root = filesystem.subvolume("/")?;
        for thread in 0..self.threads {
            root.create_directory(format!("d{thread}"), 0o755)?;
        }
        self.on_threads(|path| {
            root.create(path, 0o644)?;
            Ok(())
        })?;
        filesystem.sync()?;
        Run::in_process(|| {
            self.on_threads(|path| Ok(root.remove_file(path)?))?;
            Ok(filesystem.sync()?)
        })
    }

    /// Calls a function with each path, on all threads.
    fn on_threads(
        &self,
        work: impl Fn(PathBuf) -> anyhow::Result<()> + Sync,
    ) -> anyhow::Result<()> {
        thread::scope(|scope| {
            let start = |thread: u64| {
                let work = &work;
                scope.spawn(move || {
                    (0..self.files / self.threads)
                        .try_for_each(|file| work(format!("d{thread}/{file:032}").into()))
                })
            };
            let workers: Vec<_> = (0..self.threads).map(start).collect();
            workers
                .into_iter()
                .try_for_each(|worker| worker.join().expect("a worker does not panic"))
        })
    }
}
