//! The arithmetic of chunks against a table that is laid out cell by cell.

use larder_format::block_group::STRIPE_LEN_BYTES;
use larder_format::{BlockGroupFlags, Logical, Physical, Profile, Uuid};
use larder_volume::chunk::Content;
use larder_volume::{Chunk, ChunkMap, ChunkStripe};
use proptest::prelude::*;

const START: u64 = 1 << 30;

/// The content of one cell of 64 KiB.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Cell {
    /// The data cell of this number, counted through the chunk.
    Data(u64),
    /// Parity 0 or 1 of this row.
    Parity(u64, usize),
}

/// Lays a chunk of `rows` rows out: for each row the content of each stripe's cell.
fn table(profile: Profile, stripes: usize, rows: u64) -> Vec<Vec<Cell>> {
    let mut next = 0;
    let mut take = || {
        next += 1;
        Cell::Data(next - 1)
    };
    (0..rows)
        .map(|row| match profile {
            Profile::Single | Profile::Raid0 => (0..stripes).map(|_| take()).collect(),
            Profile::Dup | Profile::Raid1 | Profile::Raid1c3 | Profile::Raid1c4 => {
                vec![take(); stripes]
            }
            Profile::Raid10 => (0..stripes / 2).flat_map(|_| [take(); 2]).collect(),
            Profile::Raid5 | Profile::Raid6 => {
                let parities = profile.parities() as usize;
                let mut cells: Vec<Cell> = (parities..stripes).map(|_| take()).collect();
                cells.extend((0..parities).map(|parity| Cell::Parity(row, parity)));
                cells.rotate_right(row as usize % stripes);
                cells
            }
        })
        .collect()
}

fn chunk(profile: Profile, stripes: usize, rows: u64) -> Chunk {
    let parities = profile.parities() as usize;
    let data = (stripes - parities) / profile.copies() as usize;
    let stripes: Vec<ChunkStripe> = (1..=stripes as u64)
        .map(|devid| ChunkStripe {
            devid,
            dev_uuid: Uuid::from_u128(devid.into()),
            physical: Physical(devid << 20),
        })
        .collect();
    let len_bytes = data as u64 * rows * STRIPE_LEN_BYTES;
    let flags = BlockGroupFlags::DATA | profile.flags();
    Chunk::new(Logical(START), len_bytes, flags, stripes).expect("a sound chunk")
}

fn shape() -> impl Strategy<Value = (Profile, usize, u64)> {
    let profiles = proptest::sample::select(Profile::ALL.to_vec());
    (profiles, 0_usize..5, 1_u64..20).prop_map(|(profile, more, rows)| {
        let least = profile.shape().min_stripes();
        let stripes = match profile {
            Profile::Raid0 | Profile::Raid5 | Profile::Raid6 => least + more,
            Profile::Raid10 => least + 2 * more,
            _ => least,
        };
        (profile, stripes, rows)
    })
}

proptest! {
    #[test]
    fn every_byte_lies_where_the_table_says((profile, stripes, rows) in shape(), at: u64) {
        let (chunk, table) = (chunk(profile, stripes, rows), table(profile, stripes, rows));
        let offset = at % chunk.len_bytes();
        let cell = Cell::Data(offset / STRIPE_LEN_BYTES);
        let mut wanted = Vec::new();
        for (row, cells) in (0..).zip(&table) {
            for (stripe, _) in cells.iter().enumerate().filter(|(_, found)| **found == cell) {
                let start = chunk.stripes()[stripe].physical.0 + row * STRIPE_LEN_BYTES;
                wanted.push((stripe, Physical(start + offset % STRIPE_LEN_BYTES)));
            }
        }
        let segment = chunk.segment(Logical(START + offset), 1);
        let found: Vec<_> = chunk.addresses(&segment).map(|at| (at.stripe, at.physical)).collect();
        prop_assert_eq!(found, wanted);
    }

    #[test]
    fn every_cell_matches_the_table((profile, stripes, rows) in shape(), at: u64) {
        let (chunk, table) = (chunk(profile, stripes, rows), table(profile, stripes, rows));
        let within = at % STRIPE_LEN_BYTES;
        for (row, cells) in (0..).zip(&table) {
            for (stripe, cell) in cells.iter().enumerate() {
                let row_bytes = STRIPE_LEN_BYTES * chunk.data_stripes() as u64;
                let wanted = match *cell {
                    Cell::Data(number) => {
                        Content::Data(Logical(START + number * STRIPE_LEN_BYTES + within))
                    }
                    Cell::Parity(row, parity) => {
                        let row = Logical(START + row * row_bytes);
                        Content::Parity { row, parity }
                    }
                };
                prop_assert_eq!(chunk.content_at(stripe, row * STRIPE_LEN_BYTES + within), wanted);
                if let Content::Parity { row: start, parity } = wanted {
                    let column = chunk.data_stripes() + parity;
                    let row = chunk.segment(start, 1).row;
                    prop_assert_eq!(chunk.column_address(row, column, within).stripe, stripe);
                }
            }
        }
    }

    #[test]
    fn segments_make_up_the_range(
        (profile, stripes, rows) in shape(),
        (start, len) in any::<(u64, u64)>(),
    ) {
        let chunk = chunk(profile, stripes, rows);
        let start = START + start % chunk.len_bytes();
        let len_bytes = len % (chunk.end().0 - start) + 1;
        let mut next = start;
        for segment in chunk.segments(Logical(start), len_bytes) {
            prop_assert_eq!(segment.logical, Logical(next));
            prop_assert!(segment.len_bytes > 0);
            next += segment.len_bytes;
            // Its last byte is on every mirror as far from the first as in the segment.
            let last = chunk.segment(Logical(next - 1), 1);
            for (first, last) in chunk.addresses(&segment).zip(chunk.addresses(&last)) {
                prop_assert_eq!(first.stripe, last.stripe);
                prop_assert_eq!(last.physical.0 - first.physical.0, segment.len_bytes - 1);
            }
        }
        prop_assert_eq!(next, start + len_bytes);
    }

    #[test]
    fn addresses_lead_back((profile, stripes, rows) in shape(), at: u64) {
        let chunk = chunk(profile, stripes, rows);
        let logical = Logical(START + at % chunk.len_bytes());
        let map = ChunkMap::from_chunks([chunk.clone()]).expect("one chunk");
        for address in chunk.addresses(&chunk.segment(logical, 1)) {
            let back: Vec<_> = map.contents_at(address.devid, address.physical).collect();
            prop_assert_eq!(back, vec![Content::Data(logical)]);
        }
    }
}

#[test]
fn as_many_losses_as_the_profile_bears() {
    for (profile, stripes) in [
        (Profile::Single, 1),
        (Profile::Raid0, 3),
        (Profile::Raid1, 2),
        (Profile::Raid1c3, 3),
        (Profile::Raid1c4, 4),
        (Profile::Raid10, 6),
        (Profile::Raid5, 4),
        (Profile::Raid6, 5),
    ] {
        let chunk = chunk(profile, stripes, 1);
        let bears = |lost: &[u64]| chunk.survives(|stripe| lost.contains(&stripe.devid));
        let lost: Vec<u64> = (1..=profile.shape().tolerated_losses() as u64).collect();
        assert!(bears(&lost), "{profile} without {lost:?}");
        let lost: Vec<u64> = (1..=profile.shape().tolerated_losses() as u64 + 1).collect();
        assert!(!bears(&lost), "{profile} without {lost:?}");
    }
    let raid10 = chunk(Profile::Raid10, 6, 1);
    assert!(raid10.survives(|stripe| stripe.devid % 2 == 0), "one of each pair is left");
}

#[test]
fn invalid_chunks_are_refused() {
    let stripe = |devid, physical| ChunkStripe {
        devid,
        dev_uuid: Uuid::nil(),
        physical: Physical(physical),
    };
    let new = |start: u64, len_bytes: u64, flags: BlockGroupFlags, stripes: Vec<ChunkStripe>| {
        Chunk::new(Logical(start), len_bytes, flags, stripes).map_err(|error| error.to_string())
    };
    let data = BlockGroupFlags::DATA;
    let two = || vec![stripe(1, 1 << 20), stripe(2, 1 << 20)];
    let refused = |result: Result<Chunk, String>, why: &str| {
        let error = result.expect_err(why);
        assert!(error.starts_with("chunk at") && error.contains(why), "{error}");
    };
    refused(new(START, 0, data, vec![stripe(1, 0)]), "length is 0");
    refused(new(START, 4096, data, vec![]), "single with 0 stripes");
    refused(new(START, 4096, data, two()), "single with 2 stripes");
    refused(new(START, 4096, data | Profile::Raid1.flags(), vec![stripe(1, 0)]), "raid1 with 1");
    refused(new(START, 1 << 20, data | Profile::Raid6.flags(), two()), "raid6 with 2");
    refused(new(START, 1 << 20, data | Profile::Raid10.flags(), vec![stripe(1, 0); 3]), "raid10");
    refused(new(START, 1 << 30, data | Profile::Raid6.flags(), vec![stripe(1, 0); 258]), "258");
    refused(new(u64::MAX - 4095, 8192, data, vec![stripe(1, 0)]), "end of the address space");
    refused(new(START, 8192, data, vec![stripe(1, u64::MAX - 4096)]), "on device 1 pass the end");
    refused(new(START, 4096, data | Profile::Raid0.flags(), two()), "not whole stripes");
    let both = Profile::Raid0.flags() | Profile::Raid1.flags();
    refused(new(START, 1 << 20, data | both, two()), "several profiles");
    refused(new(START, 4096, BlockGroupFlags::empty(), vec![stripe(1, 0)]), "type 0x0");
    let system_data = BlockGroupFlags::SYSTEM | data;
    refused(new(START, 4096, system_data, vec![stripe(1, 0)]), "type 0x3");
    let unknown = BlockGroupFlags::from_bits_retain(1 << 20);
    refused(new(START, 4096, data | unknown, vec![stripe(1, 0)]), "unknown bits 0x100000");
}

#[test]
fn chunks_may_touch_but_not_overlap() {
    let new = |start: u64, len_bytes: u64| {
        let stripe = ChunkStripe { devid: 1, dev_uuid: Uuid::nil(), physical: Physical(1 << 20) };
        Chunk::new(Logical(start), len_bytes, BlockGroupFlags::DATA, vec![stripe]).expect("sound")
    };
    let mut map = ChunkMap::from_chunks([new(100, 100), new(300, 100)]).expect("apart");
    map.insert(new(200, 100)).expect("it fits between");
    for (start, len_bytes) in [(0, 101), (399, 1), (100, 100), (0, 1000), (150, 10)] {
        let error = map.insert(new(start, len_bytes)).expect_err("it overlaps").to_string();
        assert!(error.starts_with(&format!("chunk at {start}: ")), "{error}");
    }
    assert_eq!(map.get(Logical(299)).map(|chunk| chunk.logical()), Some(Logical(200)));
    assert!(map.get(Logical(99)).is_none() && map.get(Logical(400)).is_none());
    assert!(map.remove(Logical(200)).is_some() && map.get(Logical(200)).is_none());
}

#[test]
fn superblock_copies_are_stepped_around() {
    let at = |devid, physical| ChunkStripe {
        devid,
        dev_uuid: Uuid::nil(),
        physical: Physical(physical),
    };
    let ranges = |profile: Profile, len_bytes: u64, stripes: Vec<ChunkStripe>| {
        let flags = BlockGroupFlags::DATA | profile.flags();
        let chunk = Chunk::new(Logical(START), len_bytes, flags, stripes).expect("sound");
        chunk.superblock_ranges()
    };
    let (mib, cell) = (1 << 20, STRIPE_LEN_BYTES);
    // 64 MiB lies 8 MiB into a stripe that starts at 56 MiB.
    let single = ranges(Profile::Single, 16 * mib, vec![at(1, 56 * mib)]);
    assert_eq!(single, [(Logical(START + 8 * mib), cell)]);
    let both = ranges(Profile::Raid1, 16 * mib, vec![at(1, 56 * mib), at(2, 60 * mib)]);
    assert_eq!(both, [(Logical(START + 4 * mib), cell), (Logical(START + 8 * mib), cell)]);
    // With two data columns, row 128 starts at 16 MiB and its first column is on stripe 128 % 3 =
    // 2.
    let parity = |stripe: usize| {
        let mut stripes = vec![at(1, 100 * mib); 3];
        stripes[stripe] = at(1, 56 * mib);
        ranges(Profile::Raid5, 32 * mib, stripes)
    };
    for stripe in 0..3 {
        assert_eq!(parity(stripe), [(Logical(START + 16 * mib), 2 * cell)]);
    }
    assert_eq!(ranges(Profile::Single, 16 * mib, vec![at(1, 100 * mib)]), []);
}
