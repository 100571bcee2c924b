//! `larder inspect tree-stats`.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use larder_format::item::{FileExtent, RootItem};
use larder_format::node::MAX_LEVELS;
use larder_format::{ItemType, Node, objectid};
use larder_volume::{OpenOptions, Volume};
use serde::Serialize;

use super::dump_tree::root_tree;
use super::tree_walk::{BlockPointer, Order, TreeWalk, children};
use crate::devices;
use crate::global::{Format, Global};
use crate::outcome::Outcome;
use crate::output::stdout;
use crate::place::{PlaceOptions, located};
use crate::print::{NodeStyle, write_json};
use crate::source::warn_if_in_use;
use crate::units::Units;
use crate::volume::open_volume;

/// Show how large trees are, and how scattered their blocks
///
/// Blocks are read in the order of their keys. A seek is a step to a block that does not follow the
/// one before on disk, a cluster several blocks that do.
///
/// Examples:
///   larder inspect tree-stats disk.img
///   larder --format json inspect tree-stats disk.img
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct TreeStats {
    /// Sizes as plain numbers of bytes
    #[arg(short = 'b')]
    raw: bool,
    #[command(flatten)]
    place: PlaceOptions,
    /// The image files or block devices of one file system
    #[arg(required = true, value_name = "DEVICE")]
    devices: Vec<PathBuf>,
}

/// The trees, by the name that is shown and their id.
const TREES: [(&str, u64); 4] = [
    ("root", objectid::ROOT_TREE),
    ("extent", objectid::EXTENT_TREE),
    ("csum", objectid::CSUM_TREE),
    ("fs", objectid::FS_TREE),
];

impl TreeStats {
    pub fn run(self, global: &Global) -> Outcome {
        let place = self.place.place();
        let devices = devices::all(&self.devices, place)?;
        warn_if_in_use(&located(&devices, place));
        let options = OpenOptions { any_state: true, ..OpenOptions::default() };
        let volume = open_volume(&devices, place, &options)?;
        let walk = TreeWalk::new(&volume, NodeStyle::of(&volume), Order::DepthFirst);
        let units = if self.raw { Units::raw() } else { Units::default() };
        let mut objects = Vec::new();
        for (name, id) in TREES {
            let Some(root) = root_of(&walk, &volume, id) else { continue };
            let started = Instant::now();
            let mut stats = Stats::new(root, volume.nodesize().into(), id == objectid::FS_TREE);
            stats.add(&walk, root);
            let elapsed = started.elapsed();
            match global.format {
                Format::Json => objects.push(stats.object(name)),
                Format::Text => stats.write(&mut stdout(), name, units, elapsed)?,
            }
        }
        if global.is_json() {
            write_json(&mut stdout(), "tree-stats", &objects)?;
        }
        Ok(if walk.failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

/// The root of a tree; none if there is no such tree.
fn root_of(walk: &TreeWalk<'_>, volume: &Volume, id: u64) -> Option<BlockPointer> {
    let root_tree = root_tree(&volume.superblock());
    if id == objectid::ROOT_TREE {
        return Some(root_tree);
    }
    let mut found = None;
    walk.for_each_item(root_tree, |key, data| {
        if key.objectid == id
            && key.item_type == ItemType::ROOT_ITEM
            && let Ok(item) = RootItem::parse(data)
        {
            found = Some(BlockPointer {
                logical: item.bytenr(),
                generation: Some(item.generation.get()),
                level: item.level,
            });
        }
    });
    found
}

/// What is counted in a tree.
struct Stats {
    node_bytes: u64,
    /// Whether inline data is counted.
    has_files: bool,
    levels: usize,
    nodes: [u64; MAX_LEVELS],
    inline_bytes: u64,
    forward_seeks: u64,
    backward_seeks: u64,
    /// How many seeks there were over each distance.
    seeks: BTreeMap<u64, u64>,
    /// Bytes of clusters that ended, and how many did.
    clustered_bytes: u64,
    clusters: u64,
    shortest_cluster: Option<u64>,
    longest_cluster: u64,
    lowest: u64,
    highest: u64,
}

impl Stats {
    fn new(root: BlockPointer, node_bytes: u64, has_files: bool) -> Self {
        Self {
            node_bytes,
            has_files,
            levels: usize::from(root.level) + 1,
            nodes: [0; MAX_LEVELS],
            inline_bytes: 0,
            forward_seeks: 0,
            backward_seeks: 0,
            seeks: BTreeMap::new(),
            clustered_bytes: 0,
            clusters: 0,
            shortest_cluster: None,
            longest_cluster: node_bytes,
            lowest: root.logical.0,
            highest: root.logical.0,
        }
    }

    /// Counts a block and all that is below it.
    fn add(&mut self, walk: &TreeWalk<'_>, pointer: BlockPointer) {
        self.nodes[usize::from(pointer.level)] += 1;
        if pointer.level == 0 && !self.has_files {
            return;
        }
        let mut buffer = walk.buffer();
        let Some(node) = walk.read(pointer, &mut buffer) else { return };
        if node.is_leaf() {
            self.inline_bytes += inline_bytes(node);
            return;
        }
        let (mut before, mut cluster) = (pointer.logical.0, self.node_bytes);
        for child in children(node) {
            self.add(walk, child);
            let at = child.logical.0;
            if at == before + self.node_bytes {
                cluster += self.node_bytes;
            } else {
                self.seek(before, at);
                self.end_cluster(cluster);
                cluster = self.node_bytes;
            }
            before = at;
            self.lowest = self.lowest.min(at);
            self.highest = self.highest.max(at);
        }
    }

    /// A step from the block at `from` to the one at `to`.
    fn seek(&mut self, from: u64, to: u64) {
        *self.seeks.entry((from + self.node_bytes).abs_diff(to)).or_default() += 1;
        if from < to { self.forward_seeks += 1 } else { self.backward_seeks += 1 }
    }

    fn end_cluster(&mut self, bytes: u64) {
        if bytes > self.node_bytes {
            self.clustered_bytes += bytes;
            self.clusters += 1;
            let shortest = self.shortest_cluster.unwrap_or(bytes);
            self.shortest_cluster = Some(shortest.min(bytes));
            self.longest_cluster = self.longest_cluster.max(bytes);
        }
    }

    fn count_seeks(&self) -> u64 {
        self.forward_seeks + self.backward_seeks
    }

    fn mean_seek(&self) -> u64 {
        let sum: u64 = self.seeks.iter().map(|(distance, count)| distance * count).sum();
        sum.checked_div(self.count_seeks()).unwrap_or(0)
    }

    /// A tree without clusters is one.
    fn count_clusters(&self) -> u64 {
        self.clusters.max(1)
    }

    fn count_nodes(&self) -> u64 {
        self.nodes.iter().sum()
    }

    fn write(
        &self,
        out: &mut impl Write,
        name: &str,
        units: Units,
        elapsed: Duration,
    ) -> io::Result<()> {
        let show = |bytes| units.show(bytes);
        let mean_cluster = self.clustered_bytes / self.count_clusters();
        writeln!(out, "Calculating size of {name} tree")?;
        writeln!(out, "\tTotal size: {}", show(self.count_nodes() * self.node_bytes))?;
        writeln!(out, "\t\tInline data: {}", show(self.inline_bytes))?;
        writeln!(out, "\tTotal seeks: {}", self.count_seeks())?;
        writeln!(out, "\t\tForward seeks: {}", self.forward_seeks)?;
        writeln!(out, "\t\tBackward seeks: {}", self.backward_seeks)?;
        writeln!(out, "\t\tAvg seek len: {}", show(self.mean_seek()))?;
        self.write_histogram(out)?;
        writeln!(out, "\tTotal clusters: {}", self.count_clusters())?;
        writeln!(out, "\t\tAvg cluster size: {}", show(mean_cluster))?;
        writeln!(out, "\t\tMin cluster size: {}", show(self.shortest_cluster.unwrap_or(0)))?;
        writeln!(out, "\t\tMax cluster size: {}", show(self.longest_cluster))?;
        writeln!(out, "\tTotal disk spread: {}", show(self.highest - self.lowest))?;
        let (seconds, micros) = (elapsed.as_secs(), elapsed.subsec_micros());
        writeln!(out, "\tTotal read time: {seconds} s {micros} us")?;
        writeln!(out, "\tLevels: {}", self.levels)?;
        writeln!(out, "\tTotal nodes: {}", self.count_nodes())?;
        for (level, count) in self.nodes[..self.levels].iter().enumerate() {
            write!(out, "\t\tOn level {level}: {count:8}")?;
            if let Some(below) = level.checked_sub(1).map(|below| self.nodes[below]) {
                write!(out, "  (avg fanout {})", below.checked_div(*count).unwrap_or(0))?;
            }
            writeln!(out)?;
        }
        Ok(())
    }

    /// The distances of seeks, and a sign for each twentieth of all seeks. Few seeks make no
    /// picture. Distances that are rare share a line.
    fn write_histogram(&self, out: &mut impl Write) -> io::Result<()> {
        /// The most signs in a line of several distances.
        const RARE: u64 = 2;
        let sign = self.count_seeks() / 20;
        let Some((longest, _)) = self.seeks.last_key_value().filter(|_| sign > 0) else {
            return Ok(());
        };
        writeln!(out, "\tSeek histogram")?;
        let width = longest.to_string().len();
        let mut line = |(first, last, count): (u64, u64, u64)| {
            let signs = count / sign;
            let bar = if signs == 0 { "|".into() } else { "#".repeat(signs as usize) };
            writeln!(out, "\t\t{first:width$} - {last:width$}: {count:width$} {bar}")
        };
        // The first and last distance of those that share a line, and how many seeks they have.
        let mut shared: Option<(u64, u64, u64)> = None;
        for (&distance, &count) in &self.seeks {
            let is_rare = count / sign <= RARE;
            shared = match shared {
                None if is_rare => Some((distance, distance, count)),
                Some((first, _, before)) if is_rare && before / sign <= RARE => {
                    Some((first, distance, before + count))
                }
                // As in btrfs-progs, no line has a rare distance that comes after a full one.
                _ => {
                    shared.map_or(Ok(()), &mut line)?;
                    if !is_rare {
                        line((distance, distance, count))?;
                    }
                    None
                }
            };
        }
        shared.map_or(Ok(()), line)
    }

    fn object(&self, tree: &'static str) -> Object {
        Object {
            tree,
            total_size: self.count_nodes() * self.node_bytes,
            inline_data: self.inline_bytes,
            forward_seeks: self.forward_seeks,
            backward_seeks: self.backward_seeks,
            avg_seek_len: self.mean_seek(),
            total_clusters: self.count_clusters(),
            avg_cluster_size: self.clustered_bytes / self.count_clusters(),
            min_cluster_size: self.shortest_cluster.unwrap_or(0),
            max_cluster_size: self.longest_cluster,
            total_disk_spread: self.highest - self.lowest,
            levels: self.levels,
            total_nodes: self.count_nodes(),
            nodes_by_level: self.nodes[..self.levels].to_vec(),
        }
    }
}

/// The statistics of a tree as JSON; sizes are in bytes.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Object {
    tree: &'static str,
    total_size: u64,
    inline_data: u64,
    forward_seeks: u64,
    backward_seeks: u64,
    avg_seek_len: u64,
    total_clusters: u64,
    avg_cluster_size: u64,
    min_cluster_size: u64,
    max_cluster_size: u64,
    total_disk_spread: u64,
    levels: usize,
    total_nodes: u64,
    nodes_by_level: Vec<u64>,
}

/// Bytes of inline data in a leaf, as they are stored.
fn inline_bytes(leaf: Node<'_>) -> u64 {
    let of_item = |data| match FileExtent::parse(data) {
        Ok(FileExtent::Inline { data, .. }) => data.len() as u64,
        _ => 0,
    };
    let items = leaf.iter_items().filter(|(key, _)| key.item_type == ItemType::EXTENT_DATA);
    items.map(|(_, data)| of_item(data)).sum()
}
