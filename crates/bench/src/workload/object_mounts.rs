//! Everyday work on mounts of a bucket.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::Args;
use larder_testkit::Scratch;

use crate::mounts::shell;
use crate::program::larder_program;

/// Everyday work on a mount of a bucket, against one of rclone
///
/// Both sides use the same server, one after the other, without a cache on disk. A step that changes
/// something ends when the store has all of it. "Cold" is a new mount. Needs rclone, and
/// AWS_ENDPOINT with the other variables for the bucket.
#[derive(Debug, Args)]
pub struct ObjectMounts {
    /// An empty place in a bucket: s3://BUCKET/PREFIX
    url: String,
    /// MiB of the large file
    #[arg(long, default_value_t = 512)]
    mib: u64,
    /// Small files, of 3,000 bytes each
    #[arg(long, default_value_t = 2000)]
    files: u32,
}

/// Something that people do.
struct Step {
    name: &'static str,
    is_cold: bool,
    line: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Tool {
    Rclone,
    Larder,
}

impl ObjectMounts {
    pub fn run(self) -> anyhow::Result<()> {
        let sources = Scratch::new();
        self.make_sources(sources.path())?;
        let steps = Self::steps(sources.path());
        let theirs = self.times(Tool::Rclone, &steps)?;
        let ours = self.times(Tool::Larder, &steps)?;
        println!("| work | rclone | larder | as fast |");
        println!("| --- | --- | --- | --- |");
        for ((step, theirs), ours) in steps.iter().zip(theirs).zip(ours) {
            let (theirs, ours) = (theirs.as_secs_f64(), ours.as_secs_f64());
            let ratio = theirs / ours;
            println!("| {} | {theirs:.2} s | {ours:.2} s | {ratio:.1}x |", step.name);
        }
        Ok(())
    }

    fn make_sources(&self, folder: &Path) -> anyhow::Result<()> {
        let Self { mib, files, .. } = self;
        let line = format!(
            "head -c {mib}M /dev/urandom >large
             mkdir tree && cd tree
             head -c $(({files} * 3000)) /dev/urandom | split -a 5 -d -b 3000 - file
             tar -cf ../tree.tar . && cd .. && rm -r tree"
        );
        shell(folder, &line).map(drop)
    }

    fn steps(sources: &Path) -> Vec<Step> {
        let step = |name, is_cold, line: &str| {
            let line = line.replace("SOURCES", &sources.display().to_string());
            Step { name, is_cold, line }
        };
        vec![
            step("cp of a large file", false, "cp SOURCES/large ."),
            step("cat of it, cold", true, "cat large | cmp - SOURCES/large"),
            step(
                "tar -x of small files",
                false,
                "mkdir tree && tar --no-same-owner -C tree -xf SOURCES/tree.tar",
            ),
            step("ls -lR, cold", true, "ls -lR >/dev/null"),
            step("tar -c of them, cold", true, "tar -c tree | wc -c"),
            step("rm -r", false, "rm -r tree"),
        ]
    }

    fn times(&self, tool: Tool, steps: &[Step]) -> anyhow::Result<Vec<Duration>> {
        let mut mount = Some(tool.mount(&self.url, true)?);
        let mut times = Vec::new();
        for step in steps {
            if step.is_cold {
                mount = None;
            }
            let mounted = match mount.take() {
                Some(mounted) => mounted,
                None => tool.mount(&self.url, false)?,
            };
            let since = Instant::now();
            shell(&mounted.path(), &step.line)?;
            if tool == Tool::Larder {
                let mut sync = Command::new(&mounted.larder);
                run(sync.args(["filesystem", "sync"]).arg(mounted.path()))?;
            }
            times.push(since.elapsed());
            mount = Some(mounted);
        }
        Ok(times)
    }
}

/// A mount of a bucket; unmounted when dropped.
struct Mounted {
    tool: Tool,
    /// The `larder` program.
    larder: PathBuf,
    scratch: Scratch,
}

impl Mounted {
    fn path(&self) -> PathBuf {
        self.scratch.path().join("mnt")
    }
}

impl Tool {
    fn mount(self, url: &str, is_new: bool) -> anyhow::Result<Mounted> {
        let mounted = Mounted { tool: self, larder: larder_program()?, scratch: Scratch::new() };
        fs::create_dir(mounted.path())?;
        let mut command;
        match self {
            Self::Larder => {
                command = Command::new(&mounted.larder);
                command.arg("mount").args(is_new.then_some(["--create", "64G"]).iter().flatten());
                command.arg(format!("{url}/larder")).env("LARDER_CACHE_SIZE", "0");
            }
            Self::Rclone => {
                let place = url.strip_prefix("s3://").context("the place is not s3://")?;
                let endpoint = env::var("AWS_ENDPOINT").context("AWS_ENDPOINT")?;
                command = Command::new("rclone");
                command.args(["mount", "--daemon", "--s3-provider=Other", "--s3-env-auth"]);
                command.args(["--s3-force-path-style", "--s3-endpoint", &endpoint]);
                command.arg(format!(":s3:{place}/rclone"));
            }
        }
        run(command.arg(mounted.path()))?;
        Ok(mounted)
    }
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("{command:?}"))?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let (program, arguments) = match self.tool {
            Tool::Larder => (self.larder.as_path(), &["umount"][..]),
            Tool::Rclone => (Path::new("umount"), &[][..]),
        };
        // The measurement has its result.
        let _ = Command::new(program).args(arguments).arg(self.path()).status();
    }
}
