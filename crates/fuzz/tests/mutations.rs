//! A bounded run of every target over mutated seeds, on any compiler, the same every time.
//!
//! The targets share ten seconds, times `LARDER_EFFORT`; a longer run goes further along the same
//! sequence of inputs. A failure names the target and the input's number.
//!
//! # The memory bound
//! The most memory that reading a hostile image may use at once, besides the devices' own bytes:
//! [`WALK_BOUND_BYTES`] to open and walk a file system, including caches and the caller's buffer,
//! and [`PARSE_BOUND_BYTES`] for one superblock, tree block or compressed extent. Neither depends
//! on the image. Memory of the zstd library, a window of at most 2 MiB for each thread, is not
//! counted. [`STREAM_BOUND_BYTES`] is for printing a stream, whose longest command may have 1 MiB,
//! and [`RECEIVE_BOUND_BYTES`] for receiving one into an image in memory: it includes the written
//! data. So does [`REPLAY_BOUND_BYTES`], for opening an image with logs for writing.

use std::alloc::{GlobalAlloc, Layout, System};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use larder_fuzz::{
    CACHE_BYTES, Image, decompression, log_replay, open_and_walk, seeds, stream_dump,
    stream_receive, superblock, tree_block,
};
use larder_testkit::KernelImage;
use larder_testkit::content::{Content, Scale};
use larder_testkit::image::{ImageSpec, Profile};

const WALK_BOUND_BYTES: usize = CACHE_BYTES + (8 << 20);
const PARSE_BOUND_BYTES: usize = 1 << 20;
const STREAM_BOUND_BYTES: usize = 4 << 20;
const RECEIVE_BOUND_BYTES: usize = 64 << 20;
const REPLAY_BOUND_BYTES: usize = 64 << 20;

/// Counts the allocated bytes, and their maximum.
struct Counting;

static LIVE_BYTES: AtomicUsize = AtomicUsize::new(0);
static PEAK_BYTES: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator unchanged; counting touches atomics only.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE_BYTES.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK_BYTES.fetch_max(live, Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`, which is the same there.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE_BYTES.fetch_sub(layout.size(), Relaxed);
        // SAFETY: `pointer` came from `System.alloc` with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most bytes that `run` used at once beyond those before.
fn peak_bytes(run: impl FnOnce()) -> usize {
    let before = LIVE_BYTES.load(Relaxed);
    PEAK_BYTES.store(before, Relaxed);
    run();
    PEAK_BYTES.load(Relaxed) - before
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

/// Changes a few bytes, most often to extreme values.
fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    const EDGES: [u64; 8] = [0, 1, 0x7f, 0xff, 0xffff, 1 << 31, u32::MAX as u64, u64::MAX];
    for _ in 0..=random.below(6) {
        let at = random.below(bytes.len().max(1));
        match random.below(16) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at.min(bytes.len()), random.next() as u8),
            2..8 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            _ => {
                let edge = random.below(EDGES.len() * 2);
                let value = EDGES.get(edge).copied().unwrap_or_else(|| random.next());
                let len = (1 << random.below(4)).min(bytes.len().saturating_sub(at));
                bytes[at..at + len].copy_from_slice(&value.to_le_bytes()[..len]);
            }
        }
    }
}

/// The target of one input.
type Run<'a> = Box<dyn Fn(&[u8]) + 'a>;

struct Target<'a> {
    name: &'static str,
    seeds: Vec<Vec<u8>>,
    run: Run<'a>,
    bound_bytes: usize,
}

impl Target<'_> {
    /// Runs the seeds, then mutations of them until the time is over, but at least 64.
    fn run(&self, budget: Duration) {
        let start = Instant::now();
        let mut most = 0;
        let mut number = 0;
        while number < 64 + self.seeds.len() || start.elapsed() < budget {
            let input = self.input(number);
            let peak = peak_bytes(|| {
                catch_unwind(AssertUnwindSafe(|| (self.run)(&input)))
                    .unwrap_or_else(|_| panic!("{}: input {number} panics", self.name));
            });
            assert!(peak <= self.bound_bytes, "{}: input {number} holds {peak} bytes", self.name);
            most = most.max(peak);
            number += 1;
        }
        println!("{}: {number} inputs, at most {most} bytes held", self.name);
    }

    /// Input number `number`, which depends on nothing else.
    fn input(&self, number: usize) -> Vec<u8> {
        if let Some(seed) = self.seeds.get(number) {
            return seed.clone();
        }
        let mut random = Random(number as u64);
        let mut input = self.seeds[random.below(self.seeds.len())].clone();
        mutate(&mut input, &mut random);
        input
    }
}

#[test]
fn hostile_input_neither_panics_nor_takes_more_memory_than_stated() {
    let seconds = 10 * larder_testkit::effort();
    let spec = ImageSpec::new("fuzzed")
        .profiles(Profile::Single, Profile::Single)
        .mount_option("compress=zstd");
    let kernel_image =
        KernelImage::build(&spec, &Content::new(1).directory_entries(40).file_extents(20));
    let image = Image::read(&kernel_image.devices()[0]).expect("the image is read");
    let spec = ImageSpec::new("crashed").profiles(Profile::Single, Profile::Single);
    let content = Content::new(2).scale(Scale::Small);
    let spec = spec.node_size(4096);
    let by_kernel = KernelImage::build(&spec.clone().power_cut(), &content);
    let by_larder = KernelImage::build(&spec, &content);
    seeds::crash(&by_larder.devices()[0]).expect("the image is sound");
    let crashed = [by_kernel, by_larder]
        .map(|image| Image::read(&image.devices()[0]).expect("the image is read"));
    let targets = [
        Target {
            name: "superblock",
            seeds: seeds::superblocks(&image),
            run: Box::new(superblock),
            bound_bytes: PARSE_BOUND_BYTES,
        },
        Target {
            name: "tree_block",
            seeds: seeds::tree_blocks(&image),
            run: Box::new(tree_block),
            bound_bytes: PARSE_BOUND_BYTES,
        },
        Target {
            name: "decompression",
            seeds: seeds::streams(),
            run: Box::new(decompression),
            bound_bytes: PARSE_BOUND_BYTES,
        },
        Target {
            name: "open_and_walk",
            seeds: seeds::patches(),
            run: Box::new(|bytes| open_and_walk(&image, bytes)),
            bound_bytes: WALK_BOUND_BYTES,
        },
        Target {
            name: "stream_dump",
            seeds: seeds::snapshots(),
            run: Box::new(stream_dump),
            bound_bytes: STREAM_BOUND_BYTES,
        },
        Target {
            name: "stream_receive",
            seeds: seeds::snapshots(),
            run: Box::new(|bytes| stream_receive(&image, bytes)),
            bound_bytes: RECEIVE_BOUND_BYTES,
        },
        Target {
            name: "log_replay",
            seeds: seeds::patches(),
            run: Box::new(|bytes| crashed.iter().for_each(|image| log_replay(image, bytes))),
            bound_bytes: REPLAY_BOUND_BYTES,
        },
    ];
    let budget = Duration::from_secs(seconds) / targets.len() as u32;
    for target in targets {
        target.run(budget);
    }
}
