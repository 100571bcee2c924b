//! Reading and writing while a balance moves everything; balances that the kernel left.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use larder::device::MemoryDevice;
use larder::{BalanceItem, Filesystem, OpenOptions, Subvolume, balance_flags};
use larder_power_cuts::load;
use larder_testkit::command::run;
use larder_testkit::moments::Moments;
use larder_testkit::{Content, ImageSpec, KernelImage, KernelMount, Manifest, Scratch, oracle};

const FILES: u8 = 24;
const LEN_BYTES: usize = 20_000;

fn file_system() -> (Filesystem, Subvolume) {
    let image = KernelImage::build(&ImageSpec::new("balanced"), &Content::new(71));
    let memory: Arc<MemoryDevice> = Arc::new(load(&image.devices()[0]));
    let fs = OpenOptions::new().write(true).open_devices(vec![memory]).unwrap();
    let root = fs.subvolume("/").unwrap();
    (fs, root)
}

/// A balance that the kernel left in the middle is gone on with, or given up. All content is there
/// afterwards, shared as before, and the kernel takes the file system back.
#[test]
fn what_a_crash_of_the_kernel_left_is_taken_over() {
    let moments = Moments::of_a_balance();
    let of = |copies: &[PathBuf]| {
        let last = copies.len().saturating_sub(1);
        [0, last / 2, last].into_iter().filter_map(|at| copies.get(at).cloned()).collect::<Vec<_>>()
    };
    let mut taken = of(&moments.within_relocations);
    taken.extend(of(&moments.between));
    let mut resumed = 0;
    for (number, copy) in taken.iter().enumerate() {
        let scratch = Scratch::new();
        let copies = ["kernel", "larder"].map(|name| scratch.path().join(name));
        for to in &copies {
            run("cp", ["--sparse=always".as_ref(), copy.as_os_str(), to.as_os_str()]).unwrap();
        }
        let content = |file: &PathBuf, options: &str| {
            let mount = KernelMount::open(std::slice::from_ref(file), options);
            Manifest::of_tree(mount.path())
        };
        let expected = content(&copies[0], "skip_balance");
        let fs = OpenOptions::new().write(true).open([&copies[1]]).unwrap();
        if number % 2 == 0 {
            resumed += usize::from(fs.resume_balance(&|_| ()).unwrap().is_some());
        } else {
            fs.cancel_balance().unwrap();
        }
        assert!(fs.balance_status().unwrap().is_none());
        fs.close().unwrap();
        let larder = &copies[1..];
        oracle::check(larder, true).unwrap_or_else(|error| panic!("{}: {error}", copy.display()));
        let trees = oracle::dump_tree(larder, &[]).unwrap();
        assert!(!trees.contains("(TREE_RELOC ROOT_ITEM"), "{trees}");
        assert_eq!(content(&copies[1], "").entries, expected.entries, "{}", copy.display());
        oracle::check(larder, true).unwrap_or_else(|error| panic!("{}: {error}", copy.display()));
    }
    assert!(resumed > 0, "none of {taken:?} had a balance");
}

pub(crate) fn everything() -> BalanceItem {
    let mut item = BalanceItem::nothing();
    item.flags = (balance_flags::DATA | balance_flags::METADATA | balance_flags::SYSTEM).into();
    item
}

/// Each file has one byte, again and again, whichever of its parts were written last. Blocks of the
/// running transaction, which are changed in place, lead to content that moves.
#[test]
fn readers_find_all_content_while_it_moves() {
    let (fs, root) = file_system();
    root.create_directory("moving", 0o755).unwrap();
    let path = |number: u8| format!("moving/{number}");
    for number in 0..FILES {
        let file = root.create(path(number), 0o644).unwrap();
        file.write_at(&vec![number; LEN_BYTES], 0).unwrap();
    }
    fs.sync().unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let over = Over(&is_over);
        for reader in 0..2 {
            let (root, is_over) = (&root, &is_over);
            scope.spawn(move || {
                let mut buf = vec![0; LEN_BYTES];
                while !is_over.load(Relaxed) {
                    for number in 0..FILES {
                        let file = root.lookup(path(number)).unwrap().into_file().unwrap();
                        let len = file.read_at(&mut buf, 0);
                        let len = len.unwrap_or_else(|error| panic!("reader {reader}: {error}"));
                        assert!(len == LEN_BYTES && buf.iter().all(|byte| *byte == number));
                    }
                }
            });
        }
        scope.spawn(|| {
            for at in 0.. {
                if is_over.load(Relaxed) {
                    break;
                }
                let number = (at % u64::from(FILES)) as u8;
                let file = root.lookup(path(number)).unwrap().into_file().unwrap();
                file.write_at(&[number; 4096], at % 4 * 4096).unwrap();
                fs.write_back().unwrap();
            }
        });
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(4 * larder_testkit::effort()) {
            fs.balance(&everything(), &|_| ()).unwrap();
        }
        drop(over);
    });
    fs.close().unwrap();
}

/// Ends the other threads, also after a panic.
struct Over<'f>(&'f AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}
