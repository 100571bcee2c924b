//! Syncing single files after small writes.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use larder::OpenOptions;
use larder_testkit::{KernelMount, Scratch};

use crate::image::make_empty;

/// Bytes of the write before each sync.
const WRITE_BYTES: u64 = 4096;
/// Length of each file, over which the writes are spread.
const FILE_BYTES: u64 = 16 << 20;

/// Sync files after small writes all over them: the kernel's fsync against the library's, and
/// against a commit for each
///
/// Prints syncs/s of each. All images are files, so the cost of a flush of a disk is not included.
#[derive(Debug, Args)]
pub struct Fsync {
    /// Threads, each with a file of its own
    #[arg(long, default_value_t = 2)]
    threads: u64,
    /// Syncs of each thread
    #[arg(long, default_value_t = 2_000)]
    syncs: u64,
    /// Make the images here; existing content is lost
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,
    /// Bytes of the image
    #[arg(long, default_value_t = 4 << 30)]
    image_bytes: u64,
    /// Runs of each side; the best of each counts
    #[arg(long, default_value_t = 3)]
    repeats: usize,
}

impl Fsync {
    pub fn run(self) -> anyhow::Result<()> {
        let scratch = Scratch::new();
        let image = self.image.clone().unwrap_or_else(|| scratch.path().join("fsync.img"));
        let (mut theirs, mut ours, mut commits) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..self.repeats.max(1) {
            make_empty(&image, self.image_bytes)?;
            theirs.push(self.by_kernel(&image)?);
            make_empty(&image, self.image_bytes)?;
            ours.push(self.by_larder(&image, |_, file| file.sync())?);
            make_empty(&image, self.image_bytes)?;
            commits.push(self.by_larder(&image, |filesystem, _| filesystem.sync())?);
        }
        let [theirs, ours, commits] = [theirs, ours, commits].map(|runs| self.rate(&runs));
        println!("kernel, fsync: {theirs:.0} syncs/s");
        println!("larder, a commit for each: {commits:.0} syncs/s");
        println!("larder: {ours:.0} syncs/s");
        println!(
            "larder is {:.2}x as fast as the kernel, and {:.2}x as with commits",
            ours / theirs,
            ours / commits
        );
        Ok(())
    }

    /// The best rate in syncs per second.
    fn rate(&self, runs: &[Duration]) -> f64 {
        let best = runs.iter().min().copied().unwrap_or_default();
        (self.threads * self.syncs) as f64 / best.as_secs_f64()
    }

    /// The offsets of the writes, in turn.
    fn offsets(&self) -> impl Iterator<Item = u64> {
        const STRIDE: u64 = 1237;
        let sectors = FILE_BYTES / WRITE_BYTES;
        (0..self.syncs).map(move |number| number * STRIDE % sectors * WRITE_BYTES)
    }

    fn by_kernel(&self, image: &Path) -> anyhow::Result<Duration> {
        let mount = KernelMount::open(&[image.to_owned()], "ssd");
        let files = self.each_thread(|number| {
            let file = File::create(mount.path().join(format!("file-{number}")))?;
            file.write_all_at(&vec![1; FILE_BYTES as usize], 0)?;
            Ok(file)
        })?;
        mount.sync();
        let since = Instant::now();
        self.each_thread(|number| {
            for offset in self.offsets() {
                files[number].write_all_at(&[2; WRITE_BYTES as usize], offset)?;
                files[number].sync_all()?;
            }
            Ok(())
        })?;
        Ok(since.elapsed())
    }

    fn by_larder(
        &self,
        image: &Path,
        sync: impl Fn(&larder::Filesystem, &larder::File) -> larder::Result<()> + Sync,
    ) -> anyhow::Result<Duration> {
        let filesystem = OpenOptions::new().write(true).open([image])?;
        let root = filesystem.subvolume("/")?;
        let files = self.each_thread(|number| {
            let file = root.create(format!("file-{number}"), 0o644)?;
            file.write_at(&vec![1; FILE_BYTES as usize], 0)?;
            Ok(file)
        })?;
        filesystem.sync()?;
        let since = Instant::now();
        self.each_thread(|number| {
            for offset in self.offsets() {
                files[number].write_at(&[2; WRITE_BYTES as usize], offset)?;
                sync(&filesystem, &files[number])?;
            }
            Ok(())
        })?;
        let elapsed = since.elapsed();
        filesystem.sync()?;
        Ok(elapsed)
    }

    /// The results of `work` in each thread.
    fn each_thread<T: Send>(
        &self,
        work: impl Fn(usize) -> anyhow::Result<T> + Sync,
    ) -> anyhow::Result<Vec<T>> {
        thread::scope(|scope| {
            let work = &work;
            let start = |number| scope.spawn(move || work(number as usize));
            let workers: Vec<_> = (0..self.threads).map(start).collect();
            workers
                .into_iter()
                .map(|worker| worker.join().expect("a worker does not panic"))
                .collect()
        })
    }
}
