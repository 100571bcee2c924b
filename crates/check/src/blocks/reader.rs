//! Reading tree blocks in batches, every copy of each.
//!
//! A batch is read in order of addresses, neighbours in one call. The first copy is judged by its
//! content; further copies only need to be equal to it, which costs less. If a block is not as
//! expected, its copies are examined one by one.

use larder_format::node::{BACKREF_REV_MIXED, HEADER_FLAG_RELOC, HEADER_FLAG_WRITTEN};
use larder_format::{Header, Logical, Node, objectid, read_prefix, tree_check};

use crate::context::Context;
use crate::evidence::BlockEvidence;
use crate::report::{Kind, Location};

/// A block, and what its pointer says about it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExpectedBlock {
    /// Its number in the forest.
    pub(crate) block: u32,
    pub(crate) logical: u64,
    pub(crate) generation: u64,
    pub(crate) level: u8,
    /// The tree in which it was first reached.
    pub(crate) tree: u64,
}

impl ExpectedBlock {
    fn location(&self) -> Location {
        Location::tree(self.tree).at(self.logical)
    }
}

/// The faults in the bytes of a block, from harmless to hopeless.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    Good,
    /// Something differs, but the block can be walked.
    Usable(BlockEvidence),
    /// The checksum is right and the content is not this block's.
    Useless(BlockEvidence),
    /// No read, or a wrong checksum.
    Unreadable(BlockEvidence),
}

impl Verdict {
    /// The order of copies, the best first.
    fn rank(&self) -> (u8, Option<(Kind, String)>) {
        let of = |problem: &BlockEvidence| Some((problem.kind(), problem.to_string()));
        match self {
            Self::Good => (0, None),
            Self::Usable(problem) => (1, of(problem)),
            Self::Useless(problem) => (2, of(problem)),
            Self::Unreadable(problem) => (3, of(problem)),
        }
    }

    fn problem(self) -> Option<BlockEvidence> {
        match self {
            Self::Good => None,
            Self::Usable(problem) | Self::Useless(problem) | Self::Unreadable(problem) => {
                Some(problem)
            }
        }
    }
}

/// Buffers for reading batches of blocks.
pub(crate) struct BlockReader<'c, 'v> {
    context: &'c Context<'v>,
    /// Whether the faults were reported before.
    is_quiet: bool,
    /// The blocks of the batch in order of their addresses.
    first: Vec<u8>,
    /// Another copy of a part of them.
    other: Vec<u8>,
    /// For each block of the batch, its position in `first`.
    positions: Vec<Option<usize>>,
}

impl<'c, 'v> BlockReader<'c, 'v> {
    pub(crate) fn new(context: &'c Context<'v>) -> Self {
        let (first, other, positions) = (Vec::new(), Vec::new(), Vec::new());
        Self { context, is_quiet: false, first, other, positions }
    }

    /// A reader of blocks that were read before, which reports nothing.
    pub(crate) fn quiet(context: &'c Context<'v>) -> Self {
        Self { is_quiet: true, ..Self::new(context) }
    }

    fn find(&self, location: Location, evidence: BlockEvidence) {
        if !self.is_quiet {
            self.context.find(location, evidence);
        }
    }

    /// Reads at most [`Context::batch_blocks`] blocks and reports their faults. Reads none once the
    /// check is stopped.
    pub(crate) fn read(&mut self, wanted: &[ExpectedBlock]) {
        debug_assert!(wanted.len() <= self.context.batch_blocks());
        let nodesize = self.context.nodesize;
        let mut order: Vec<usize> = (0..wanted.len()).collect();
        order.sort_unstable_by_key(|index| wanted[*index].logical);
        self.positions.clear();
        self.positions.resize(wanted.len(), None);
        if self.context.progress.is_stopped() {
            return;
        }
        self.first.resize(wanted.len() * nodesize, 0);
        let mut done = 0;
        while done < order.len() {
            let len = self.run_len(wanted, &order[done..]);
            self.read_run(wanted, &order[done..done + len], done * nodesize);
            done += len;
        }
    }

    /// The block at `index` of the last batch, unless it cannot be used.
    pub(crate) fn node(&self, index: usize) -> Option<Node<'_>> {
        let at = self.positions[index]?;
        Some(Node::from_checked(&self.first[at..at + self.context.nodesize]))
    }

    /// How many of the blocks in `order` follow each other in one chunk.
    fn run_len(&self, wanted: &[ExpectedBlock], order: &[usize]) -> usize {
        let nodesize = self.context.nodesize as u64;
        let start = wanted[order[0]].logical;
        let end = self.context.chunks.get(Logical(start)).map_or(0, |chunk| chunk.end().0);
        let follows = |(count, index): &(u64, &usize)| {
            let at = start.checked_add(count * nodesize);
            at == Some(wanted[**index].logical)
                && at.and_then(|at| at.checked_add(nodesize)).is_some_and(|last| last <= end)
        };
        (0..).zip(order).take_while(follows).count().max(1)
    }

    fn read_run(&mut self, wanted: &[ExpectedBlock], run: &[usize], position: usize) {
        let nodesize = self.context.nodesize;
        let start = wanted[run[0]].logical;
        let range = position..position + run.len() * nodesize;
        let mut copies = self.present_copies(start);
        let Some(copy) = copies.next() else {
            return self.settle_all(wanted, run, position);
        };
        if read_mirror(self.context, start, copy, &mut self.first[range.clone()]).is_err() {
            return self.settle_all(wanted, run, position);
        }
        let mut suspects: Vec<bool> = run
            .iter()
            .zip(self.first[range.clone()].chunks_exact(nodesize))
            .map(|(index, bytes)| judge(self.context, &wanted[*index], bytes) != Verdict::Good)
            .collect();
        self.other.resize(range.len(), 0);
        for copy in copies {
            if read_mirror(self.context, start, copy, &mut self.other).is_err() {
                suspects.fill(true);
                break;
            }
            let pairs = self.first[range.clone()].chunks_exact(nodesize);
            for (suspect, (a, b)) in
                suspects.iter_mut().zip(pairs.zip(self.other.chunks_exact(nodesize)))
            {
                *suspect |= a != b;
            }
        }
        for (number, (index, suspect)) in run.iter().zip(suspects).enumerate() {
            let at = position + number * nodesize;
            if suspect {
                self.settle(&wanted[*index], *index, at);
            } else {
                self.positions[*index] = Some(at);
            }
        }
    }

    fn settle_all(&mut self, wanted: &[ExpectedBlock], run: &[usize], position: usize) {
        for (number, index) in run.iter().enumerate() {
            self.settle(&wanted[*index], *index, position + number * self.context.nodesize);
        }
    }

    /// The copies of the block at `logical` whose devices are present.
    fn present_copies(&self, logical: u64) -> impl Iterator<Item = usize> + use<> {
        let ranges = self.context.volume.map(Logical(logical), 1).unwrap_or_default();
        let mirrors = ranges.into_iter().next().map(|range| range.mirrors).unwrap_or_default();
        let present: Vec<usize> = mirrors
            .iter()
            .enumerate()
            .filter(|(_, address)| {
                self.context.volume.device(address.devid).is_some_and(|device| !device.is_missing())
            })
            .map(|(copy, _)| copy)
            .collect();
        present.into_iter()
    }

    /// Examines every copy of one block, reports the bad ones and keeps the best.
    fn settle(&mut self, wanted: &ExpectedBlock, index: usize, at: usize) {
        let nodesize = self.context.nodesize;
        if !self.context.is_mapped(wanted.logical, nodesize as u64) {
            self.find(wanted.location(), BlockEvidence::OutsideOfChunks);
            return;
        }
        let mut candidates = Vec::new();
        for copy in self.present_copies(wanted.logical) {
            let mut bytes = vec![0; nodesize];
            let verdict = match read_mirror(self.context, wanted.logical, copy, &mut bytes) {
                Ok(()) => judge(self.context, wanted, &bytes),
                Err(problem) => Verdict::Unreadable(BlockEvidence::Unreadable { problem }),
            };
            candidates.push((verdict, copy, bytes));
        }
        let good = candidates.iter().any(|(verdict, ..)| *verdict == Verdict::Good);
        if !good && let Some(rebuilt) = self.rebuilt(wanted) {
            candidates.push((Verdict::Good, usize::MAX, rebuilt));
        }
        candidates.sort_by_cached_key(|(verdict, ..)| verdict.rank());
        let mut candidates = candidates.into_iter();
        let best = candidates.next();
        for (verdict, copy, _) in candidates {
            // Copies that are equally bad are reported once, as the block.
            if best.as_ref().is_some_and(|best| best.0 == verdict) {
                continue;
            }
            let Some(problem) = verdict.problem() else { continue };
            let location = self.location_of_copy(wanted, copy);
            if let Some(devid) =
                location.device.filter(|_| wanted.generation == self.context.generation())
            {
                self.context.one_commit_behind.lacks_block(devid);
            }
            self.find(location, BlockEvidence::Copy { copy, problem: Box::new(problem) });
        }
        let missing = || Verdict::Unreadable(BlockEvidence::NoDevice);
        let (verdict, _, bytes) = best.unwrap_or_else(|| (missing(), 0, Vec::new()));
        match verdict {
            Verdict::Good => {}
            Verdict::Usable(problem) => self.find(wanted.location(), problem),
            Verdict::Useless(problem) | Verdict::Unreadable(problem) => {
                return self.find(wanted.location(), problem);
            }
        }
        self.first[at..at + nodesize].copy_from_slice(&bytes);
        self.positions[index] = Some(at);
    }

    fn location_of_copy(&self, wanted: &ExpectedBlock, copy: usize) -> Location {
        let ranges = self.context.volume.map(Logical(wanted.logical), 1).unwrap_or_default();
        let at = ranges.first().and_then(|range| range.mirrors.get(copy).copied());
        match at {
            Some(at) => {
                Location { device: Some(at.devid), ..wanted.location() }.at_physical(at.physical.0)
            }
            None => wanted.location(),
        }
    }

    /// The block as rebuilt from parity, if that is good.
    fn rebuilt(&self, wanted: &ExpectedBlock) -> Option<Vec<u8>> {
        let chunk = self.context.chunks.get(Logical(wanted.logical))?;
        if !chunk.has_parity() {
            return None;
        }
        (1..chunk.copies()).find_map(|copy| {
            let mut bytes = vec![0; self.context.nodesize];
            self.context.volume.read_copy(Logical(wanted.logical), copy, &mut bytes).ok()?;
            (judge(self.context, wanted, &bytes) == Verdict::Good).then_some(bytes)
        })
    }
}

/// Reads one mirror of a range that lies in one chunk.
pub(crate) fn read_mirror(
    context: &Context<'_>,
    logical: u64,
    mirror: usize,
    buf: &mut [u8],
) -> Result<(), String> {
    let ranges = context
        .volume
        .map(Logical(logical), buf.len() as u64)
        .map_err(|error| error.to_string())?;
    let mut rest = buf;
    for range in ranges {
        let (part, after) = rest.split_at_mut(range.len_bytes as usize);
        rest = after;
        let address = range.mirrors.get(mirror).ok_or("there is no such copy")?;
        let device = context
            .volume
            .device(address.devid)
            .and_then(|device| device.device().cloned())
            .ok_or_else(|| format!("device {} is missing", address.devid))?;
        device.read_at(part, address.physical.0).map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn judge(context: &Context<'_>, wanted: &ExpectedBlock, bytes: &[u8]) -> Verdict {
    let Ok((header, _)) = read_prefix::<Header>(bytes) else {
        return Verdict::Unreadable(BlockEvidence::Short);
    };
    let csum = context.csum_type.compute_block(bytes);
    let stored = &header.csum[..context.csum_type.size()];
    if *stored != *csum.as_bytes() {
        return Verdict::Unreadable(BlockEvidence::Checksum { expected: csum });
    }
    if header.bytenr.get() != wanted.logical {
        return Verdict::Useless(BlockEvidence::Address { found: header.bytenr.get() });
    }
    if header.level != wanted.level {
        let (found, expected) = (header.level, wanted.level);
        return Verdict::Useless(BlockEvidence::Level { found, expected });
    }
    let node = match Node::parse(bytes) {
        Ok(node) => node,
        Err(problem) => return Verdict::Useless(BlockEvidence::Structure { problem }),
    };
    match judge_header(context, wanted, header) {
        Verdict::Good => {}
        verdict => return verdict,
    }
    match tree_check::check_node(node, &context.tree_check) {
        Ok(()) => Verdict::Good,
        Err(problem) => Verdict::Usable(BlockEvidence::Refused { problem }),
    }
}

fn judge_header(context: &Context<'_>, wanted: &ExpectedBlock, header: &Header) -> Verdict {
    if header.generation.get() != wanted.generation {
        let (found, expected) = (header.generation.get(), wanted.generation);
        return Verdict::Usable(BlockEvidence::Generation { found, expected });
    }
    if !context.block_fsids.contains(&header.fsid) {
        return Verdict::Usable(BlockEvidence::Fsid { found: header.fsid() });
    }
    let owner = header.owner.get();
    if !owner_fits(wanted.tree, owner) {
        return Verdict::Usable(BlockEvidence::Owner { found: owner });
    }
    let flags = header.flags();
    let unknown = flags & !(HEADER_FLAG_WRITTEN | HEADER_FLAG_RELOC);
    let is_of_this_revision = header.backref_rev() == BACKREF_REV_MIXED;
    if flags & HEADER_FLAG_WRITTEN == 0 || unknown != 0 || !is_of_this_revision {
        return Verdict::Usable(BlockEvidence::Flags { found: header.flags.get() });
    }
    Verdict::Good
}

/// Whether a block that the tree `owner` made may appear in `tree`. Subvolumes share blocks with
/// their snapshots, and these keep their first owner; other trees share nothing.
fn owner_fits(tree: u64, owner: u64) -> bool {
    let shares = |id: u64| objectid::is_file_tree(id) && id != objectid::TREE_LOG;
    owner == tree || (shares(tree) && shares(owner))
}
