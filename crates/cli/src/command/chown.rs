//! `larder chown`.

use std::ffi::OsString;

use anyhow::Context;
use clap::Args;
use larder::commands::Command;
use larder::{Inode, SetAttributes};

use crate::interrupt;
use crate::on_mount::{self, Present};
use crate::outcome::{Outcome, exit_code};
use crate::owner::Names;
use crate::source::{PathSource, Writing};
use crate::tree::{Each, Visited, walk};

/// Change owners and groups in a file system that is not mounted, or on a mount of larder
///
/// On a mount the server changes them, faster than a program can. Only root and the user who
/// mounted it may ask for that; others use the system's chown.
///
/// Names of users and groups in an image are those of its own /etc/passwd and /etc/group; others,
/// and those on a mount, are of this system. Files lose set-user-ID,
/// set-group-ID and capabilities by that, as with the kernel.
///
/// Examples:
///   larder chown 1000:1000 disk.img:/home/ann/notes
///   larder chown -R :100 disk.img:/srv
///   larder chown -R 1000:1000 /mnt/home/ann
#[derive(Debug, Args)]
#[command(verbatim_doc_comment, disable_help_flag = true)]
pub struct Chown {
    /// Directories with everything in them; symbolic links are not followed
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Change symbolic links and not what they lead to
    #[arg(short = 'h', long)]
    no_dereference: bool,
    #[command(flatten)]
    source: PathSource,
    /// Owner and group, by number or name, of which one may be left out
    #[arg(value_name = "OWNER:GROUP", value_parser = NamedOwners::parse)]
    owners: NamedOwners,
    /// What to change
    #[arg(required = true, value_name = "IMAGE:/PATH|PATH")]
    paths: Vec<OsString>,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

#[derive(Clone, Copy, Debug)]
struct Owners {
    uid: Option<u32>,
    gid: Option<u32>,
}

/// Owner and group as they were typed; empty if left out.
#[derive(Clone, Debug)]
struct NamedOwners {
    user: String,
    group: String,
}

impl NamedOwners {
    /// A number that cannot be an id is refused at once. Names are looked up later.
    fn parse(text: &str) -> Result<Self, String> {
        let (user, group) = text.split_once(':').unwrap_or((text, ""));
        let named = Self { user: user.to_owned(), group: group.to_owned() };
        let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        for (names, text) in [(Names::Users, user), (Names::Groups, group)] {
            if !text.is_empty() && is_number(text) {
                names.read(text, |_| None)?;
            }
        }
        Ok(named)
    }

    /// The ids of names that `other` or this system knows.
    fn find(&self, other: impl Fn(Names, &str) -> Option<u32>) -> anyhow::Result<Owners> {
        let id = |names: Names, text: &str| match text {
            "" => Ok(None),
            _ => names.read(text, |name| other(names, name)).map(Some).map_err(anyhow::Error::msg),
        };
        Ok(Owners { uid: id(Names::Users, &self.user)?, gid: id(Names::Groups, &self.group)? })
    }
}

/// The content of a file in `/etc` of an image.
fn in_image(writing: &Writing, name: &str) -> larder::Result<Vec<u8>> {
    /// Longer files are none of names.
    const MOST_BYTES: u64 = 16 << 20;
    let file = writing.start.resolve(format!("/etc/{name}"))?.into_file()?;
    let mut content = vec![0; file.len_bytes().min(MOST_BYTES) as usize];
    let mut len = 0;
    while len < content.len() {
        match file.read_at(&mut content[len..], len as u64)? {
            0 => break,
            read => len += read,
        }
    }
    content.truncate(len);
    Ok(content)
}

impl Chown {
    pub fn run(self) -> Outcome {
        if self.source.mounted_path(&self.paths[0])?.is_some() {
            return self.apply_on_mount();
        }
        self.source.change(&self.paths[0], |writing| self.apply(writing))
    }

    fn apply_on_mount(&self) -> Outcome {
        interrupt::watch()?;
        let Owners { uid, gid } = self.owners.find(|_, _| None)?;
        let new = |present: Present| {
            let (uid, gid) = (uid.unwrap_or(present.uid), gid.unwrap_or(present.gid));
            (u64::from(uid), u64::from(gid))
        };
        let paths = on_mount::all_resolved(&self.paths, !self.recursive && !self.no_dereference)?;
        let failures = on_mount::with_each(paths, |changes, path| {
            on_mount::change_attributes(changes, path, self.recursive, |path, present| {
                let (uid, gid) = new(present);
                Some(Command::Chown { path, uid, gid })
            })
        })?;
        Ok(exit_code(failures))
    }

    fn apply(&self, writing: &Writing) -> anyhow::Result<usize> {
        interrupt::watch()?;
        let owners = self.owners.find(|names, name| {
            let table = in_image(writing, names.file()).ok()?;
            Names::find(&table, name)
        })?;
        let mut failures = 0;
        for text in &self.paths {
            let path = writing.path(text)?;
            let keeps_links = self.recursive || self.no_dereference;
            let found =
                if keeps_links { writing.start.lookup(path) } else { writing.start.resolve(path) };
            let inode = found?;
            if self.recursive {
                let change = |node: &Visited<'_>| change(node.inode, owners);
                failures += walk(&inode, &mut Each::new(change))?;
            } else {
                change(&inode, owners).with_context(|| text.display().to_string())?;
            }
        }
        Ok(failures)
    }
}

fn change(inode: &Inode, Owners { uid, gid }: Owners) -> anyhow::Result<()> {
    Ok(inode.set_attributes(&SetAttributes { uid, gid, ..Default::default() })?)
}
