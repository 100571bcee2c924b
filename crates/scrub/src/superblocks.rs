//! The copies of the superblock on a device.

use larder_format::superblock::{OFFSETS, SUPERBLOCK_SIZE};
use larder_format::{Physical, Superblock};
use larder_volume::VolumeDevice;

use crate::device::Scrub;
use crate::finding::{Fate, Finding, Subject};

/// Verifies each copy. A commit at the end of the scrub repairs bad ones.
pub(crate) fn scrub_superblocks(scrub: &Scrub<'_>, member: &VolumeDevice) {
    let total_bytes = member.dev_item().total_bytes.get();
    let reached = |offset: &&Physical| offset.0 + SUPERBLOCK_SIZE as u64 <= total_bytes;
    for offset in OFFSETS.iter().take_while(reached) {
        let problem = match scrub.target.manager() {
            Some(manager) => manager.between_commits(|| problem_at(scrub, member, *offset)),
            None => problem_at(scrub, member, *offset),
        };
        let Some(problem) = problem else { continue };
        scrub.progress.change(|counters| counters.super_errors += 1);
        let is_repaired =
            !scrub.is_read_only && scrub.target.manager().is_some() && !member.is_seed();
        (scrub.found)(Finding {
            device: scrub.device,
            physical: offset.0,
            logical: None,
            len_bytes: SUPERBLOCK_SIZE as u64,
            subject: Subject::Superblock,
            problem,
            fate: if is_repaired { Fate::Repaired } else { Fate::Repairable },
        });
    }
}

fn problem_at(scrub: &Scrub<'_>, member: &VolumeDevice, offset: Physical) -> Option<String> {
    let (volume, mut bytes) = (scrub.target.volume(), [0; SUPERBLOCK_SIZE]);
    if let Err(problem) = volume.read_member(scrub.device, offset, &mut bytes) {
        return Some(problem.to_string());
    }
    let found = match Superblock::parse(&bytes, offset) {
        Ok(found) => found,
        Err(problem) => return Some(problem.to_string()),
    };
    let current = volume.superblock();
    // A seed keeps the state from before the file system grew out of it.
    let (wanted, fsid) = match member.generation().filter(|_| member.is_seed()) {
        Some(generation) => (generation, member.dev_item().fsid()),
        None => (current.generation.get(), current.fsid()),
    };
    if found.fsid() != fsid {
        return Some(format!("it belongs to another file system, {}", found.fsid()));
    }
    let generation = found.generation.get();
    (generation != wanted).then(|| format!("its generation is {generation}, wanted {wanted}"))
}
