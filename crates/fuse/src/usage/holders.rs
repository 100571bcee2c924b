//! Why a file system is still in use after one of its mounts has ended.

use super::{MountEntry, Process, namespaces};

/// The most that are named.
const MOST_NAMED: usize = 8;

/// What still holds the file system of `mount`, as far as it is visible: mounts of it, in each mount
/// namespace, then those of `users` that use it.
///
/// The kernel gives the number of a file system to another one once it is gone. So `users` are
/// processes that used it while it was surely there.
pub fn holders(mount: &MountEntry, users: &[Process]) -> Vec<String> {
    let is_it = |other: &&MountEntry| other.is_ours && other.source == mount.source;
    let mounts = namespaces().enumerate().filter_map(|(number, (process, table))| {
        let place = table.of_device(mount.device).find(is_it)?.path.display().to_string();
        Some(match number {
            0 => format!("still mounted at {place}"),
            _ => format!("still mounted at {place} in the mount namespace of {process}"),
        })
    });
    let uses = users
        .iter()
        .filter_map(|user| user.use_of(mount.device).map(|what| format!("{user} {what}")));
    mounts.chain(uses).take(MOST_NAMED + 1).collect()
}

/// The first of `holders`, with commas between them.
pub fn in_words(mut holders: Vec<String>) -> String {
    if holders.len() > MOST_NAMED {
        holders.truncate(MOST_NAMED);
        holders.push("and more".to_owned());
    }
    holders.join(", ")
}
