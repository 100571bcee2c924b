//! Showing a subvolume of what a server serves: in a process of its own, which alone may wait for
//! the server.

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, bail};
use larder_fuse::Tree;

use crate::outcome::Outcome;

/// The argument of a process that attaches a subvolume.
const PART: &str = "--part";

/// A subvolume to attach.
pub struct Part {
    tree: Tree,
    subvolume: u64,
    path: PathBuf,
}

impl Part {
    /// The subvolume with the id `subvolume`; `path` is its path in `tree`.
    pub fn new(tree: Tree, subvolume: u64, path: PathBuf) -> Self {
        Self { tree, subvolume, path }
    }

    /// Makes another process attach it at `mountpoint`, while this one serves. If that fails,
    /// nothing is mounted any more.
    pub fn attach(self, mountpoint: &Path) -> anyhow::Result<()> {
        let program = std::env::current_exe().context("this program cannot find itself")?;
        let mut command = Command::new(program);
        command.args([OsStr::new("mount"), PART.as_ref(), self.subvolume.to_string().as_ref()]);
        command.arg("--").arg(&self.path).arg(mountpoint);
        // Only that process has the tree from then on.
        command.stdin(Stdio::from(self.tree.into_descriptor()));
        let mut child = command.spawn().context("the process that attaches the subvolume")?;
        drop(command);
        if !child.wait()?.success() {
            bail!("{}: nothing was mounted", mountpoint.display());
        }
        Ok(())
    }
}

/// Attaches the subvolume with the id `subvolume` for the server that started this process. The
/// standard input is the tree that contains it.
pub fn attach_for_server(subvolume: u64, paths: &[PathBuf]) -> Outcome {
    let [path, mountpoint] = paths else { bail!("give a path, and the directory to mount at") };
    let tree = Tree::received(io::stdin().as_fd().try_clone_to_owned()?);
    let attached = tree.part(subvolume, path).and_then(|part| part.attach(mountpoint));
    attached.with_context(|| mountpoint.display().to_string())?;
    Ok(ExitCode::SUCCESS)
}
