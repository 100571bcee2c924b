//! How fast threads insert through the engine, commits included: `create_items IMAGE THREADS
//! FILES`.
//!
//! Each file is what creating an empty one inserts: four items in three places of one tree. The
//! image is read into memory and stays as it is.

use std::sync::Arc;
use std::time::Instant;

use larder_btree::BlockCache;
use larder_device::{Device, MemoryDevice};
use larder_format::item::{DirItemHeader, FileType, InodeItem, InodeRefHeader};
use larder_format::{ItemType, Key, name_hash};
use larder_transaction::TransactionManager;
use larder_transaction::space::Priority;
use larder_volume::{OpenOptions, Volume};
use zerocopy::{FromZeros, IntoBytes};

/// What creating an empty file inserts.
struct File {
    inode: InodeItem,
    reference: Vec<u8>,
    entry: Vec<u8>,
}

impl File {
    fn new(inode: u64, index: u64, name: &[u8], generation: u64) -> Self {
        let mut item = InodeItem::new_zeroed();
        item.generation = generation.into();
        item.transid = generation.into();
        item.nlink = 1.into();
        item.mode = 0o100_644.into();
        let name_len = (name.len() as u16).into();
        let reference = InodeRefHeader { index: index.into(), name_len };
        let entry = DirItemHeader {
            location: Key::new(inode, ItemType::INODE_ITEM, 0).into(),
            transid: generation.into(),
            data_len: 0.into(),
            name_len,
            file_type: FileType::Regular as u8,
        };
        Self {
            inode: item,
            reference: [reference.as_bytes(), name].concat(),
            entry: [entry.as_bytes(), name].concat(),
        }
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let image = arguments.next().expect("an image that mkfs.btrfs made");
    let threads: u64 = arguments.next().map_or(2, |n| n.parse().expect("a number of threads"));
    let files: u64 = arguments.next().map_or(200_000, |n| n.parse().expect("a number of files"));
    let bytes = std::fs::read(&image).expect("the image can be read");
    let device = MemoryDevice::new(image, bytes.len() as u64);
    for (number, piece) in bytes.chunks(1 << 16).enumerate() {
        if piece.iter().any(|byte| *byte != 0) {
            device.write_at(piece, (number as u64) << 16).expect("it fits");
        }
    }
    drop(bytes);
    let options = OpenOptions { write: true, ..OpenOptions::default() };
    let device: Arc<dyn Device> = Arc::new(device);
    let volume = Arc::new(Volume::open(vec![device], &options).expect("the volume opens"));
    let cache = Arc::new(BlockCache::new(volume.clone(), 256 << 20));
    let manager = TransactionManager::open(volume, cache).expect("it can be written");
    let tree = manager.trees().open(5).expect("it can be read").expect("it is there");

    for thread in 1..threads {
        let handle = manager.start(1, Priority::Normal).expect("there is room");
        let directory = File::new(256 + thread, 2, b"", handle.generation());
        let key = Key::new(256 + thread, ItemType::INODE_ITEM, 0);
        tree.insert(key, directory.inode.as_bytes()).expect("a directory");
        handle.end().expect("it ends");
    }
    let start = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (manager, tree) = (&manager, &tree);
            scope.spawn(move || {
                for number in 0..files / threads {
                    let handle = manager.start(8, Priority::Normal).expect("there is room");
                    let inode = 1000 + number * threads + thread;
                    let directory = 256 + thread;
                    let name = format!("{number:08x}~~~~~~~~~~");
                    let file = File::new(inode, number + 2, name.as_bytes(), handle.generation());
                    let key = Key::new(inode, ItemType::INODE_ITEM, 0);
                    let reference = Key::new(inode, ItemType::INODE_REF, directory);
                    let items = [(key, file.inode.as_bytes()), (reference, &file.reference)];
                    tree.insert_batch(&items).expect("a file");
                    let hash = name_hash::dir_name(name.as_bytes());
                    let entry = Key::new(directory, ItemType::DIR_ITEM, hash);
                    tree.insert(entry, &file.entry).expect("an entry");
                    let index = Key::new(directory, ItemType::DIR_INDEX, number + 2);
                    tree.insert(index, &file.entry).expect("an index");
                    handle.end().expect("it ends");
                }
            });
        }
    });
    let inserted = start.elapsed();
    manager.commit().expect("it commits");
    let total = start.elapsed();
    let rate = |time: std::time::Duration| files as f64 / time.as_secs_f64();
    println!("RATE {:.0} files/s, {:.0} with the commit", rate(inserted), rate(total));
    println!("{:?}", manager.trees().forest().stats());
}
