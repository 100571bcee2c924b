//! Reading tree blocks.

use larder_format::checksum::CHECKSUM_SIZE;
use larder_format::objectid::is_subvolume;
use larder_format::{Checksum, Key, Logical, Node};

use super::copy::Outdated;
use crate::problem::{CopyProblem, FailedCopy, ReadError};
use crate::volume::Volume;

/// The expectations of a tree block. A field that is `None` is not checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockExpectation {
    /// Its generation, from the pointer to it.
    pub generation: Option<u64>,
    /// Its level: one less than its parent's.
    pub level: Option<u8>,
    /// The tree that is being read. The blocks of a subvolume may belong to any other subvolume,
    /// those of other trees to no other tree.
    pub owner: Option<u64>,
    /// Its first key, from the pointer to it.
    pub first_key: Option<Key>,
}

/// How a tree block was read.
#[derive(Debug)]
pub struct BlockRead {
    /// The good copy.
    pub copy: usize,
    /// The bad copies that were tried before, without those on missing devices.
    pub failures: Vec<FailedCopy>,
    /// How many of these were overwritten with good content.
    pub healed: usize,
}

impl Volume {
    /// Reads a tree block into `buf`, which must be `nodesize` bytes.
    ///
    /// The block in `buf` has the right checksum, address and file system, is as expected, and
    /// [`Node::parse`] accepts it. If the volume is writable, the good copy overwrites a bad one.
    ///
    /// # Panics
    /// If `buf` has another length than `nodesize`.
    pub fn read_tree_block(
        &self,
        logical: Logical,
        expected: &BlockExpectation,
        buf: &mut [u8],
    ) -> Result<BlockRead, ReadError> {
        assert_eq!(buf.len(), self.nodesize() as usize, "a tree block is nodesize bytes");
        if self.has_stand_in(logical, expected, buf) {
            return Ok(BlockRead { copy: 0, failures: Vec::new(), healed: 0 });
        }
        let len_bytes = buf.len() as u64;
        let geometry = self.geometry();
        let chunk = geometry.chunk_of(logical, len_bytes)?;
        let segment = chunk.segment(logical, len_bytes);
        let mut failures: Vec<FailedCopy> = Vec::new();
        for copy in geometry.copy_order(chunk, &segment) {
            let mut attempt = || {
                geometry.read_copy(chunk, logical, copy, Outdated::LastResort, buf)?;
                self.verify_block(logical, expected, buf)
            };
            let mut read = attempt();
            if read.is_err() && geometry.doubt(chunk, logical, len_bytes, copy) {
                read = attempt();
            }
            match read {
                Ok(()) => {
                    failures.retain(|failure| !failure.problem.is_absence());
                    let healed =
                        failures.iter().filter(|bad| geometry.heal(chunk, bad, buf)).count();
                    geometry.common.counters.rebuilt.add(u64::from(copy >= chunk.mirrors()));
                    return Ok(BlockRead { copy, failures, healed });
                }
                Err(problem) => {
                    failures.push(geometry.failed_copy(chunk, logical, len_bytes, copy, problem));
                }
            }
        }
        if self.rescue.ignore_block_checksums {
            for copy in geometry.copy_order(chunk, &segment) {
                let is_read = geometry.read_copy(chunk, logical, copy, Outdated::LastResort, buf);
                if is_read.is_ok() && self.verify_content(logical, expected, buf).is_ok() {
                    self.note_unverified(logical, 1);
                    return Ok(BlockRead { copy, failures, healed: 0 });
                }
            }
        }
        let error = ReadError::TreeBlock { logical, owner: expected.owner, failures };
        geometry.report_lost(&error);
        Err(error)
    }

    /// Fills `buf` with the block that stands in for the expected one, if there is one.
    fn has_stand_in(&self, logical: Logical, expected: &BlockExpectation, buf: &mut [u8]) -> bool {
        let (Some(stand_ins), Some(generation), Some(level)) =
            (&self.stand_ins, expected.generation, expected.level)
        else {
            return false;
        };
        stand_ins.read(logical, generation, level, buf)
            && self.verify_block(logical, expected, buf).is_ok()
    }

    /// Checks a tree block as [`Volume::read_tree_block`] does.
    pub fn verify_block(
        &self,
        logical: Logical,
        expected: &BlockExpectation,
        block: &[u8],
    ) -> Result<(), CopyProblem> {
        let csum_type = self.checksum_type();
        let computed = csum_type.compute_block(block);
        let stored = &block[..CHECKSUM_SIZE][..csum_type.size()];
        if computed.as_bytes() != stored {
            let wanted = Checksum::from_stored(stored).expect("as long as a checksum");
            return Err(CopyProblem::Checksum { wanted, computed });
        }
        self.verify_content(logical, expected, block)
    }

    /// The same except for the checksum.
    fn verify_content(
        &self,
        logical: Logical,
        expected: &BlockExpectation,
        block: &[u8],
    ) -> Result<(), CopyProblem> {
        let node = Node::parse(block)?;
        let header = node.header();
        if header.bytenr() != logical {
            return Err(CopyProblem::Address { found: header.bytenr() });
        }
        if !self.block_fsids.contains(&header.fsid()) {
            return Err(CopyProblem::Fsid { found: header.fsid() });
        }
        check_expected(&node, expected)
    }
}

fn check_expected(node: &Node<'_>, expected: &BlockExpectation) -> Result<(), CopyProblem> {
    let header = node.header();
    let (generation, level, owner) = (header.generation.get(), header.level, header.owner.get());
    if let Some(wanted) = expected.generation.filter(|wanted| *wanted != generation) {
        return Err(CopyProblem::Generation { wanted, found: generation });
    }
    if let Some(wanted) = expected.level.filter(|wanted| *wanted != level) {
        return Err(CopyProblem::Level { wanted, found: level });
    }
    let is_foreign = |tree: &u64| *tree != owner && !(is_subvolume(*tree) && is_subvolume(owner));
    if let Some(wanted) = expected.owner.filter(is_foreign) {
        return Err(CopyProblem::Owner { wanted, found: owner });
    }
    let found = node.first_key();
    match expected.first_key.filter(|wanted| found != Some(*wanted)) {
        Some(wanted) => Err(CopyProblem::FirstKey { wanted, found }),
        None => Ok(()),
    }
}
