//! `larder install-links`.

use std::env;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::Args;

use crate::global::Global;
use crate::outcome::Outcome;
use crate::output::stdout;
use crate::program::Program;

/// Make links to this program by the names of btrfs-progs
///
/// Called through the link `btrfs`, larder is a drop-in for that program: it has the same commands,
/// options, output and exit codes, and needs no kernel btrfs. `mkfs.btrfs`, `btrfsck` and
/// `fsck.btrfs` work likewise, and mount(8) finds `mount.fuse.larder` and `umount.fuse.larder` in
/// /sbin. Programs of btrfs-progs that larder cannot replace yet get no link.
///
/// A shell runs the first `btrfs` in its PATH: links in a directory before /usr/bin come before
/// btrfs-progs, which can stay installed. A file that is no link to larder is only replaced with
/// --force; unless all links can be made, none is. Remove the links to undo this.
///
/// Examples:
///   sudo larder install-links /usr/local/sbin
///   larder install-links ~/.local/bin
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct InstallLinks {
    /// Replace files that are no links to larder
    #[arg(short, long)]
    force: bool,
    /// The directory for the links
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// What is in the place of a link.
enum Present {
    Nothing,
    /// A link to this program or to another copy of larder.
    Larder,
    /// Something that --force replaces.
    Other,
    /// Something that stays.
    Kept(&'static str),
}

impl InstallLinks {
    pub fn run(&self, global: &Global) -> Outcome {
        let program = env::current_exe().context("the path of this program")?;
        let named = || self.directory.display().to_string();
        let directory = self.directory.canonicalize().with_context(named)?;
        ensure!(directory.is_dir(), "{}: Not a directory", named());
        for name in Program::linked_names() {
            let shown = self.directory.join(name);
            let shown = shown.display();
            match present(&directory.join(name), &program).with_context(|| shown.to_string())? {
                Present::Kept(what) => anyhow::bail!("{shown}: is {what}, and is not replaced"),
                Present::Other => {
                    ensure!(self.force, "{shown}: is no link to larder; --force replaces it");
                }
                Present::Nothing | Present::Larder => {}
            }
        }
        for name in Program::linked_names() {
            let link = directory.join(name);
            put_link(&program, &link).with_context(|| link.display().to_string())?;
            if !global.is_quiet() {
                let shown = self.directory.join(name);
                writeln!(stdout(), "{} -> {}", shown.display(), program.display())?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn present(link: &Path, program: &Path) -> io::Result<Present> {
    let metadata = match link.symlink_metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Present::Nothing),
        metadata => metadata?,
    };
    if metadata.is_symlink() {
        let target = fs::read_link(link)?;
        let is_this = link.canonicalize().is_ok_and(|target| target == program);
        let is_larder = is_this || target.file_name() == Some("larder".as_ref());
        return Ok(if is_larder { Present::Larder } else { Present::Other });
    }
    Ok(match link {
        _ if metadata.is_dir() => Present::Kept("a directory"),
        _ if link == program => Present::Kept("this program itself"),
        _ => Present::Other,
    })
}

/// Replaces what is there in one step: at any moment a program of this name can be run.
fn put_link(program: &Path, link: &Path) -> io::Result<()> {
    let mut new = link.as_os_str().to_owned();
    new.push(format!(".new-{}", std::process::id()));
    symlink(program, &new)?;
    fs::rename(&new, link).inspect_err(|_| drop(fs::remove_file(&new)))
}
