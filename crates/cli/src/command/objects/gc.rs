//! `larder objects gc`.

use std::fs::File;
use std::io::Write;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use larder_fuse::usage::{MountEntry, MountTable};
use larder_ioctl::channel::{Channel, Request};
use larder_objects::{Address, Collected, ObjectDevice, Policy, info, parse_seconds};
use serde::Serialize;

use crate::global::Global;
use crate::objects::parse_address;
use crate::outcome::Outcome;
use crate::output::{say, stdout};
use crate::print::write_json;
use crate::progress::Progress;

/// Delete objects that no kept state needs
///
/// A mount does that too, whenever something is due. This also finds objects that a crash left
/// behind, and rewrites small objects, and those of which little is needed, as few large ones.
/// Readers may still use what no state needs any more, so it stays for a time. Where the file system
/// is mounted on this machine, the server of the mount does it.
///
/// Examples:
///   larder objects gc s3://bucket/photos
///   larder objects gc --keep all=1h,hourly=2d,daily=4w --delete-after 2h s3://bucket/photos
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct Gc {
    /// From now on, keep all states that are younger than the first time, one for each hour up to
    /// the second, and one for each day up to the third (all=1h,hourly=1d,daily=30d)
    #[arg(long, value_name = "POLICY", value_parser = str::parse::<Policy>)]
    keep: Option<Policy>,
    /// From now on, delete objects so long after the last state that needs them has gone (1h)
    #[arg(long, value_name = "TIME", value_parser = parse_seconds)]
    delete_after: Option<u64>,
    /// Keep nothing any more for clones that are not where they were made. They are lost if they have
    /// only been moved
    #[arg(long)]
    forget_missing_clones: bool,
    /// Take over from a mount that writes, on this machine or another: it can write no more
    #[arg(long)]
    take_over: bool,
    /// Where the file system is. With an option it must not be in use
    #[arg(value_name = "URL", value_parser = parse_address)]
    address: Address,
}

#[derive(Serialize)]
struct Object {
    rewritten: u64,
    deleted: u64,
    waiting: u64,
}

impl Gc {
    pub fn run(self, global: &Global) -> Outcome {
        if let Some(collected) = self.by_server()? {
            return shown(global, &collected);
        }
        let (store, options) = self.address.connect()?;
        let before = info(&*store)?;
        let open = if self.take_over { ObjectDevice::open } else { ObjectDevice::open_closed };
        let device = open(store, &options)?;
        if self.keep.is_some() || self.delete_after.is_some() {
            let policy = self.keep.unwrap_or(before.policy);
            device.set_policy(policy, self.delete_after.unwrap_or(before.delete_after))?;
        }
        if self.forget_missing_clones {
            for (way, state) in device.forget_missing_clones()? {
                say(format_args!("{way}: not there; state {state} is kept no longer for it\n"));
            }
        }
        let mut progress = Progress::of_objects();
        let collected = device.collect_garbage(|done, total| progress.set_of(done, total))?;
        drop(progress);
        let Collected { rewritten, deleted, waiting } = collected;
        shown(global, &Object { rewritten, deleted, waiting })
    }

    /// Lets the server of a mount on this machine do it, if there is one, and if that is all.
    fn by_server(&self) -> anyhow::Result<Option<Object>> {
        let has_options = self.keep.is_some()
            || self.delete_after.is_some()
            || self.forget_missing_clones
            || self.take_over;
        let table = MountTable::of_this_process()?;
        let is_it = |mount: &&MountEntry| {
            let source = mount.source.to_str();
            source.and_then(|source| source.parse::<Address>().ok()).as_ref() == Some(&self.address)
        };
        // One for reading shows a state, and changes nothing.
        let mount = table.ours().filter(is_it).find(|mount| !mount.has_read_only_superblock());
        let Some(mount) = mount.filter(|_| !has_options) else {
            return Ok(None);
        };
        let Ok(Some((mut channel, _))) = File::open(&mount.path).and_then(Channel::of) else {
            return Ok(None);
        };
        let reply = channel.call(&Request::Collect, &mut |_, _| Ok(()));
        let reply = reply.with_context(|| mount.path.display().to_string())?;
        let (numbers, _) = reply.as_chunks::<8>();
        let [rewritten, deleted, waiting] = numbers else {
            bail!("{}: its server gives an unknown answer", mount.path.display());
        };
        let number = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes);
        let (rewritten, deleted) = (number(rewritten), number(deleted));
        Ok(Some(Object { rewritten, deleted, waiting: number(waiting) }))
    }
}

fn shown(global: &Global, object: &Object) -> Outcome {
    if global.is_json() {
        write_json(&mut stdout(), "objects-gc", object)?;
    } else {
        writeln!(
            stdout(),
            "{} light objects were rewritten; {} objects were deleted; {} wait until readers \
                 have gone",
            object.rewritten,
            object.deleted,
            object.waiting
        )?;
    }
    Ok(ExitCode::SUCCESS)
}
