//! `larder inspect dump-tree`.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use larder_format::item::RootItem;
use larder_format::superblock::{BackupRoot, Superblock};
use larder_format::{ItemType, Key, Logical, objectid};
use larder_volume::OpenOptions;

use super::tree_name;
use super::tree_walk::{BlockPointer, Order, TreeWalk};
use crate::devices;
use crate::operand::parse_number;
use crate::outcome::Outcome;
use crate::output::stdout;
use crate::place::PlaceOptions;
use crate::print::{NodeStyle, OUTPUT_VERSION, key_text};
use crate::volume::open_volume;

/// Show trees, every item in words
///
/// Example: larder inspect dump-tree -t fs disk.img
///
/// The first line names the release of btrfs-progs whose output this follows to the letter.
#[derive(Debug, Args)]
pub struct DumpTree {
    /// Only the extent and device trees
    #[arg(short, long)]
    extents: bool,
    /// Only the root, chunk and device trees
    #[arg(short, long)]
    device: bool,
    /// Only where the root of each tree is
    #[arg(short, long)]
    roots: bool,
    /// Like --roots, and the backup roots
    #[arg(short = 'R', long)]
    backups: bool,
    /// Only the uuid tree
    #[arg(short, long)]
    uuid: bool,
    /// Only this tree block; may be given several times
    #[arg(short, long, value_name = "ADDRESS", value_parser = parse_number)]
    block: Vec<u64>,
    /// Only this tree, by number or name (root, extent, chunk, device, fs, csum, quota, uuid,
    /// free-space, block-group, data-reloc, ...)
    #[arg(short, long, value_name = "TREE", value_parser = tree_name::parse)]
    tree: Option<u64>,
    /// With --block: its children too
    #[arg(long, requires = "block")]
    follow: bool,
    /// Go on when devices are missing, if the others are enough
    #[arg(long)]
    degraded: bool,
    /// Use the devices that are listed and no others
    #[arg(long)]
    noscan: bool,
    /// Show each level of a tree from left to right, from the root to the leaves (default)
    #[arg(long, overrides_with = "dfs")]
    bfs: bool,
    /// Show each node, then what is below it
    #[arg(long)]
    dfs: bool,
    /// Do not show names of files, subvolumes and extended attributes
    #[arg(long)]
    hide_names: bool,
    /// Show the checksums of tree blocks
    #[arg(long)]
    csum_headers: bool,
    /// Show the checksums of data
    #[arg(long)]
    csum_items: bool,
    #[command(flatten)]
    place: PlaceOptions,
    /// The image files or block devices of one file system
    #[arg(required = true, value_name = "DEVICE")]
    devices: Vec<PathBuf>,
}

/// A tree that the root tree or the tree of log roots names.
struct NamedTree {
    key: Key,
    root: BlockPointer,
}

impl NamedTree {
    /// `extent tree key (EXTENT_TREE ROOT_ITEM 0)`.
    fn title(&self) -> String {
        format!("{} tree {}", tree_name::title(self.key.objectid), key_text(self.key))
    }
}

impl DumpTree {
    pub fn run(self) -> Outcome {
        let place = self.place.place();
        let devices = if self.noscan {
            devices::named(&self.devices)?
        } else {
            devices::all(&self.devices, place)?
        };
        let (degraded, any_state) = (self.degraded, true);
        let options = OpenOptions { degraded, any_state, ..OpenOptions::default() };
        let volume = open_volume(&devices, place, &options)?;
        let style = NodeStyle {
            hide_names: self.hide_names,
            header_checksums: self.csum_headers,
            item_checksums: self.csum_items,
            ..NodeStyle::of(&volume)
        };
        let order = match (self.extents, self.dfs) {
            (true, _) => Order::LeavesOnly,
            (_, true) => Order::DepthFirst,
            _ => Order::BreadthFirst,
        };
        let mut dump = Dump {
            walk: TreeWalk::new(&volume, style, order),
            superblock: &volume.superblock(),
            out: io::BufWriter::with_capacity(1 << 20, stdout()),
        };
        writeln!(dump.out, "{OUTPUT_VERSION}")?;
        self.show(&mut dump)?;
        dump.out.flush()?;
        Ok(if dump.walk.failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    fn show(&self, dump: &mut Dump<'_, impl Write>) -> anyhow::Result<()> {
        let follow = self.follow;
        if !self.block.is_empty() {
            return self.block.iter().try_for_each(|block| dump.block(Logical(*block), follow));
        }
        match self.tree {
            Some(tree) if is_unnamed(tree) => dump.unnamed_trees(false, |id| id == tree),
            Some(tree) => {
                dump.trees_with(|id| id == tree)?;
                dump.totals()
            }
            None if self.uuid => dump.trees_with(|id| id == objectid::UUID_TREE),
            None => self.show_several(dump),
        }
    }

    /// Shows all trees, or those that an option chooses.
    fn show_several(&self, dump: &mut Dump<'_, impl Write>) -> anyhow::Result<()> {
        let roots_only = self.roots || self.backups;
        if !self.extents {
            dump.unnamed_trees(roots_only, |_| true)?;
        }
        for named in dump.named_trees() {
            let id = named.key.objectid;
            if roots_only {
                dump.root(&named)?;
            } else if self.extents {
                if matches!(id, objectid::EXTENT_TREE | objectid::DEV_TREE) {
                    dump.named(&named, "\n")?;
                }
            } else if !self.device || id == objectid::DEV_TREE {
                dump.named(&named, " \n")?;
            }
        }
        if self.backups {
            dump.backup_roots()?;
        }
        if self.extents || self.device {
            return Ok(());
        }
        dump.totals()
    }
}

/// Whether no root item names the tree: its root is in the superblock.
fn is_unnamed(tree: u64) -> bool {
    matches!(tree, objectid::ROOT_TREE | objectid::CHUNK_TREE | objectid::TREE_LOG)
}

/// The root of the tree that names most others.
pub fn root_tree(superblock: &Superblock) -> BlockPointer {
    BlockPointer {
        logical: superblock.root(),
        generation: Some(superblock.generation.get()),
        level: superblock.root_level,
    }
}

fn chunk_tree(superblock: &Superblock) -> BlockPointer {
    BlockPointer {
        logical: superblock.chunk_root(),
        generation: Some(superblock.chunk_root_generation.get()),
        level: superblock.chunk_root_level,
    }
}

fn log_root_tree(superblock: &Superblock) -> Option<BlockPointer> {
    (superblock.log_root.get() != 0).then(|| BlockPointer {
        logical: Logical(superblock.log_root.get()),
        generation: superblock.generation.get().checked_add(1),
        level: superblock.log_root_level,
    })
}

/// The output of the dump and its subject.
struct Dump<'a, W> {
    walk: TreeWalk<'a>,
    superblock: &'a Superblock,
    out: W,
}

impl<W: Write> Dump<'_, W> {
    /// The trees of the root tree, then the log trees.
    fn named_trees(&self) -> Vec<NamedTree> {
        let mut trees = Vec::new();
        let roots = [Some(root_tree(self.superblock)), log_root_tree(self.superblock)];
        for root in roots.into_iter().flatten() {
            self.walk.for_each_item(root, |key, data| {
                if key.item_type != ItemType::ROOT_ITEM {
                    return;
                }
                if let Ok(item) = RootItem::parse(data) {
                    let root = BlockPointer {
                        logical: item.bytenr(),
                        generation: Some(item.generation.get()),
                        level: item.level,
                    };
                    trees.push(NamedTree { key, root });
                }
            });
        }
        trees
    }

    /// Writes the trees of the root tree that `wanted` chooses.
    fn trees_with(&mut self, wanted: impl Fn(u64) -> bool) -> anyhow::Result<()> {
        let mut chosen = self.named_trees();
        chosen.retain(|named| wanted(named.key.objectid));
        chosen.iter().try_for_each(|named| self.named(named, " \n"))
    }

    /// Writes the trees whose roots are in the superblock and that `wanted` chooses.
    fn unnamed_trees(
        &mut self,
        roots_only: bool,
        wanted: impl Fn(u64) -> bool,
    ) -> anyhow::Result<()> {
        let superblock = self.superblock;
        for (id, title, root) in [
            (objectid::ROOT_TREE, "root tree", Some(root_tree(superblock))),
            (objectid::CHUNK_TREE, "chunk tree", Some(chunk_tree(superblock))),
            (objectid::TREE_LOG, "log root tree", log_root_tree(superblock)),
        ] {
            if let Some(root) = root.filter(|_| wanted(id)) {
                self.unnamed(title, root, roots_only)?;
            }
        }
        Ok(())
    }

    /// Writes where the root of a tree is.
    fn root(&mut self, tree: &NamedTree) -> io::Result<()> {
        writeln!(self.out, "{} {} level {}", tree.title(), tree.root.logical, tree.root.level)
    }

    fn block(&mut self, logical: Logical, follow: bool) -> anyhow::Result<()> {
        self.walk.dump_block(logical, follow, &mut self.out)
    }

    fn unnamed(&mut self, title: &str, root: BlockPointer, root_only: bool) -> anyhow::Result<()> {
        if root_only {
            writeln!(self.out, "{title}: {} level {}", root.logical, root.level)?;
            return Ok(());
        }
        writeln!(self.out, "{title}")?;
        self.walk.dump(root, &mut self.out)
    }

    fn named(&mut self, tree: &NamedTree, end: &str) -> anyhow::Result<()> {
        write!(self.out, "{}{end}", tree.title())?;
        self.walk.dump(tree.root, &mut self.out)
    }

    fn backup_roots(&mut self) -> io::Result<()> {
        for (number, backup) in self.superblock.super_roots.iter().enumerate() {
            writeln!(self.out, "btrfs root backup slot {number}")?;
            self.backup_root(backup)?;
        }
        Ok(())
    }

    fn backup_root(&mut self, b: &BackupRoot) -> io::Result<()> {
        let out = &mut self.out;
        writeln!(out, "\ttree root gen {} block {}", b.tree_root_gen, b.tree_root)?;
        writeln!(out, "\t\textent root gen {} block {}", b.extent_root_gen, b.extent_root)?;
        writeln!(out, "\t\tchunk root gen {} block {}", b.chunk_root_gen, b.chunk_root)?;
        writeln!(out, "\t\tdevice root gen {} block {}", b.dev_root_gen, b.dev_root)?;
        writeln!(out, "\t\tcsum root gen {} block {}", b.csum_root_gen, b.csum_root)?;
        writeln!(out, "\t\tfs root gen {} block {}", b.fs_root_gen, b.fs_root)?;
        writeln!(out, "\t\t{} used {} total {} devices", b.bytes_used, b.total_bytes, b.num_devices)
    }

    fn totals(&mut self) -> anyhow::Result<()> {
        let superblock = self.superblock;
        writeln!(self.out, "total bytes {}", superblock.total_bytes)?;
        writeln!(self.out, "bytes used {}", superblock.bytes_used)?;
        writeln!(self.out, "uuid {}", superblock.fsid())?;
        Ok(())
    }
}
