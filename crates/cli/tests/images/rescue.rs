//! `larder rescue` on images that the kernel made and that were damaged since.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use larder_device::Access;
use larder_format::superblock::{OFFSETS, SUPER_FLAG_CHANGING_META_CSUM, SUPERBLOCK_SIZE};
use larder_format::{Logical, Superblock};
use larder_image::Place;
use larder_testkit::manifest::assert_copied;
use larder_testkit::sparse_file::sparse_copy;
use larder_testkit::{Content, ImageSpec, KernelImage, Profile, command, damage};
use larder_volume::{OpenOptions, Volume};
use serde_json::Value;
use zerocopy::IntoBytes;

use crate::support::{fail, larder, succeed};

pub(crate) const MIB: u64 = 1 << 20;
const NODE_BYTES: u32 = 4096;

pub(crate) fn run(program: &str, words: &str) -> String {
    command::run(program, words.split(' ')).unwrap_or_else(|error| panic!("{error}"))
}

/// The number after `name` in the superblock.
pub(crate) fn in_superblock(device: &Path, name: &str) -> u64 {
    let dump = run("btrfs", &format!("inspect dump-super {}", device.display()));
    let line = dump.lines().find(|line| line.split_whitespace().next() == Some(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// An image with ten commits, each of which adds files: the generation of each, and a manifest of
/// names. Nodes are small, so that trees have several levels.
fn with_history(spec: &ImageSpec) -> (KernelImage, BTreeMap<u64, Vec<String>>) {
    let image = KernelImage::empty(spec);
    let mut history = BTreeMap::new();
    let mut names = Vec::new();
    let mount = image.mount("nodiscard,commit=300");
    for round in 0..10 {
        for number in 0..100 {
            let name = format!("file-{round}-{number}");
            fs::write(mount.path().join(&name), format!("{name}\n").repeat(round + 1)).unwrap();
            names.push(name);
        }
        run("sync", &format!("-f {}", mount.path().display()));
        names.sort();
        history.insert(in_superblock(&image.devices()[0], "generation"), names.clone());
    }
    drop(mount);
    (image, history)
}

pub(crate) fn small_nodes(name: &str) -> ImageSpec {
    ImageSpec::new(name).devices(&[512 * MIB]).node_size(NODE_BYTES)
}

fn words(devices: &[PathBuf]) -> String {
    devices.iter().map(|it| it.display().to_string()).collect::<Vec<_>>().join(" ")
}

/// The states that are found, by generation, and what is said on standard error.
fn states(devices: &[PathBuf]) -> (BTreeMap<u64, Value>, String) {
    let line = format!("--format json rescue find-roots {}", words(devices));
    let output = larder(line.split(' '));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    let states = value["rescue-find-roots"].as_array().unwrap().iter();
    (states.map(|it| (it["generation"].as_u64().unwrap(), it.clone())).collect(), said)
}

/// One block of each of these trees is missing.
fn missing(trees: &[u64]) -> Value {
    trees.iter().map(|tree| serde_json::json!({ "tree": tree, "blocks": 1 })).collect()
}

/// The copies of the tree block at `logical`. (btrfs-map-logical opens every block device of the
/// machine, and fails if one goes meanwhile.)
pub(crate) fn places(image: &KernelImage, logical: u64) -> Vec<(PathBuf, u64)> {
    let open = |path: &PathBuf| larder_image::open(path, Access::ReadOnly, Place::Found).unwrap();
    let devices = image.devices().iter().map(open).collect();
    let options = OpenOptions { any_state: true, ..OpenOptions::default() };
    let volume = Volume::open(devices, &options).unwrap();
    let ranges = volume.map(Logical(logical), u64::from(NODE_BYTES)).unwrap();
    let name = |devid: u64| volume.device(devid).unwrap().name();
    let copies = ranges.iter().flat_map(|range| &range.mirrors);
    copies.map(|copy| (name(copy.devid).into(), copy.physical.0)).collect()
}

pub(crate) fn zero(places: &[(PathBuf, u64)]) {
    for (device, physical) in places {
        damage::overwrite(device, *physical, &[0; NODE_BYTES as usize]).unwrap();
    }
}

/// The last leaf of a tree.
fn last_leaf(image: &KernelImage, tree: u64) -> u64 {
    let device = image.devices()[0].display().to_string();
    let dump = run("btrfs", &format!("inspect dump-tree -t {tree} {device}"));
    let leaf = dump.lines().rfind(|line| line.starts_with("leaf ")).unwrap();
    leaf.split(' ').nth(1).unwrap().parse().unwrap()
}

#[test]
fn every_commit_that_is_left_is_found() {
    let (image, history) = with_history(&small_nodes("history"));
    let (states, said) = states(image.devices());
    assert_eq!(said, "");
    let device = &image.devices()[0];
    let newest = in_superblock(device, "generation");
    assert_eq!(states[&newest]["named-by"], "superblock");
    assert_eq!(states[&newest]["root"], in_superblock(device, "root"));
    assert_eq!(states[&newest]["complete"], true);
    assert!(states.values().filter(|it| it["named-by"] == "backup").count() >= 2);
    for generation in history.keys().rev().take(5) {
        let state = &states[generation];
        assert_eq!(state["complete"], true, "{state}");
        assert_eq!(state["subvolumes"], 1, "{state}");
    }
    // btrfs-find-root looks for roots of the level of the last one.
    let level = in_superblock(device, "root_level");
    let theirs = run("btrfs-find-root", &format!("-a {}", device.display()));
    let roots = theirs.lines().filter_map(|line| line.strip_prefix("Well block "));
    let roots = roots.map(|line| {
        let numbers = line.split(|it: char| !it.is_ascii_digit()).filter(|it| !it.is_empty());
        let numbers: Vec<u64> = numbers.take(2).map(|it| it.parse().unwrap()).collect();
        (numbers[1], numbers[0])
    });
    let roots: BTreeMap<u64, u64> = roots.collect();
    assert!(roots.len() > 3, "{theirs}");
    for (generation, root) in roots {
        let state = &states[&generation];
        assert_eq!((&state["root"], &state["level"]), (&root.into(), &level.into()), "{theirs}");
    }
}

#[test]
fn what_is_missing_of_a_state_is_counted_by_tree() {
    let (image, _) = with_history(&small_nodes("missing"));
    let device = &image.devices()[0];
    let (before, _) = states(image.devices());
    let newest = in_superblock(device, "generation");
    assert_eq!(before[&newest]["complete"], true);

    let root = places(&image, in_superblock(device, "root"));
    let [of_extents, of_files] = [2, 5].map(|tree| places(&image, last_leaf(&image, tree)));
    let state = || states(image.devices()).0[&newest].clone();
    let line = || {
        let text = succeed(&format!("rescue find-roots {}", device.display()));
        text.lines().nth(2).unwrap().trim_end().to_owned()
    };

    // The extent tree is not needed for files.
    zero(&of_extents);
    let found = state();
    assert_eq!(found["missing"], missing(&[2]));
    assert_eq!((&found["complete"], &found["files-complete"]), (&false.into(), &true.into()));
    assert!(line().ends_with("files complete; 1 missing: 1 of the extent tree"), "{}", line());

    zero(&of_files);
    let found = state();
    assert_eq!(found["missing"], missing(&[2, 5]));
    assert_eq!(found["files-complete"], false);
    let expected = "2 missing: 1 of the extent tree, 1 of the fs tree";
    assert!(line().ends_with(expected), "{}", line());

    // The root of the last commit is named, and gone.
    zero(&root);
    assert_eq!(state()["missing"], missing(&[1]));
}

#[test]
fn without_the_chunk_tree_everything_is_read() {
    let (image, _) = with_history(&small_nodes("chunks"));
    let (before, _) = states(image.devices());
    zero(&places(&image, in_superblock(&image.devices()[0], "chunk_root")));
    let (after, said) = states(image.devices());
    assert!(said.contains("everything on the devices was read"), "{said}");
    // Blocks of chunks that exist no more may be there too.
    for (generation, state) in before {
        assert_eq!(after[&generation], state);
    }
}

#[test]
fn states_are_found_on_several_devices_and_without_one() {
    for (data, metadata) in [(Profile::Raid0, Profile::Raid0), (Profile::Raid5, Profile::Raid5)] {
        let spec = small_nodes(metadata.name()).devices(&[512 * MIB; 3]).profiles(data, metadata);
        let (image, history) = with_history(&spec);
        let (all, said) = states(image.devices());
        assert_eq!(said, "");
        let newest = history.keys().last().unwrap();
        assert_eq!(all[newest]["complete"], true);
        let [one, two, three] = image.devices() else { unreachable!() };
        let away = image.folder().join("away");
        fs::create_dir(&away).unwrap();
        fs::rename(three, away.join("device3")).unwrap();
        let (without, _) = states(&[one.clone(), two.clone()]);
        // Parity has what the device had.
        assert_eq!(without[newest]["complete"], metadata == Profile::Raid5, "{metadata:?}");
        if metadata == Profile::Raid5 {
            assert_eq!(without[newest], all[newest]);
        }
    }
}

/// The names in the top level of an earlier state.
fn names(device: &Path, generation: u64) -> Vec<String> {
    let listed = succeed(&format!("ls {}@{generation}:/", device.display()));
    listed.lines().map(str::to_owned).collect()
}

#[test]
fn an_earlier_state_is_read_by_its_generation() {
    let (image, history) = with_history(&small_nodes("named"));
    let device = &image.devices()[0];
    let bytes = fs::read(device).unwrap();
    let (states, _) = states(image.devices());
    let whole = |generation: &u64| states.get(generation).is_some_and(|it| it["complete"] == true);
    let mut unnamed = 0;
    for (generation, expected) in history.iter().filter(|(generation, _)| whole(generation)) {
        assert_eq!(names(device, *generation), *expected);
        unnamed += usize::from(states[generation]["named-by"].is_null());
    }
    assert!(unnamed > 0, "{states:?}");

    let (first, _) = history.iter().find(|(generation, _)| whole(generation)).unwrap();
    let there = format!("{}@{first}", device.display());
    let file = "file-0-7\n";
    assert_eq!(succeed(&format!("cat {there}:/file-0-7")), file);
    let to = image.folder().join("copy");
    succeed(&format!("cp -a {there}:/ {}", to.display()));
    assert_eq!(fs::read_to_string(to.join("file-0-7")).unwrap(), file);
    assert_eq!(fs::read_dir(&to).unwrap().count(), history[first].len());
    let tar = larder(["tar", &format!("{there}:/")]);
    assert!(tar.status.success() && tar.stdout.windows(9).any(|it| it == b"file-0-7\0"));
    // Without a path, too.
    assert!(succeed(&format!("subvolume show {there}")).contains(&format!("{first}")));

    let missing = fail(&format!("ls {}@4711:/", device.display()));
    assert!(missing.contains("no state of generation 4711 is left"), "{missing}");
    for words in [
        format!("rm {there}:/file-0-7"),
        format!("mkdir {there}:/new"),
        format!("cp {there}:/file-0-7 {}:/new", device.display()),
    ] {
        assert!(fail(&words).contains("earlier state"), "{words}");
    }
    assert!(fs::read(device).unwrap() == bytes, "an image that was only read is as it was");

    // A file has that name.
    let other = PathBuf::from(&there);
    sparse_copy(device, &other).unwrap();
    let newest = history.values().last().unwrap();
    let listed = succeed(&format!("ls {there}:/"));
    assert_eq!(listed.lines().collect::<Vec<_>>(), *newest);
}

#[test]
fn a_snapshot_that_is_gone_is_sent_from_an_earlier_state() {
    let image = KernelImage::empty(&small_nodes("sent"));
    let device = &image.devices()[0];
    let mount = image.mount("nodiscard,commit=300");
    let path = mount.path().display().to_string();
    fs::write(mount.path().join("file"), "kept".repeat(5000)).unwrap();
    run("btrfs", &format!("subvolume snapshot -r {path} {path}/snapshot"));
    run("sync", &format!("-f {path}"));
    let generation = in_superblock(device, "generation");
    run("btrfs", &format!("subvolume delete -c {path}/snapshot"));
    drop(mount);
    assert!(fail(&format!("send -q {}:/snapshot", device.display())).contains("snapshot"));
    let stream = image.folder().join("stream");
    let there = format!("{}@{generation}:/snapshot", device.display());
    succeed(&format!("send -q -f {} {there}", stream.display()));
    let other = KernelImage::empty(&small_nodes("received"));
    let mount = other.mount("");
    run("btrfs", &format!("receive -q -f {} {}", stream.display(), mount.path().display()));
    let received = fs::read_to_string(mount.path().join("snapshot/file")).unwrap();
    assert!(received == "kept".repeat(5000));
}

/// Standard output of a command that reads, and the warnings.
pub(crate) fn reads(line: &str) -> (Vec<u8>, String) {
    let output = larder(line.split(' '));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{line}: {said}");
    (output.stdout, said)
}

fn unverified(count: u64) -> String {
    format!(
        "WARNING: {count} blocks and sectors were read although no checksum proves them right\n"
    )
}

/// The address of the root of a tree.
fn root_of(image: &KernelImage, tree: &str) -> u64 {
    let dump = run("btrfs", &format!("inspect dump-tree -r {}", image.devices()[0].display()));
    let line = dump.lines().find(|line| line.starts_with(&format!("{tree} tree key"))).unwrap();
    let address = line.split_whitespace().find(|it| it.bytes().all(|byte| byte.is_ascii_digit()));
    address.unwrap().parse().unwrap()
}

/// Where a file whose sectors begin with `mark` lies on a device.
pub(crate) fn sectors_of(device: &Path, mark: &[u8]) -> Vec<u64> {
    let bytes = fs::read(device).unwrap();
    let sectors = bytes.chunks(4096).enumerate().filter(|(_, it)| it.starts_with(mark));
    sectors.map(|(number, _)| number as u64 * 4096).collect()
}

pub(crate) const MARK: &[u8] = b"a sector of the file";

/// Whole sectors, each of them another one.
pub(crate) fn marked(sectors: u32) -> Vec<u8> {
    let sector = |number: u32| {
        let mut sector = MARK.to_vec();
        sector.extend_from_slice(&number.to_le_bytes());
        sector.resize(4096, number as u8);
        sector
    };
    (0..sectors).flat_map(sector).collect()
}

pub(crate) fn with_marked_file(spec: &ImageSpec) -> KernelImage {
    let image = KernelImage::empty(spec);
    fs::write(image.mount("").path().join("file"), marked(64)).unwrap();
    image
}

#[test]
fn files_are_read_without_the_other_trees() {
    let spec = small_nodes("bad-roots");
    let image = KernelImage::build(&spec, &Content::new(5));
    let device = image.devices()[0].display().to_string();
    let original = image.manifest().clone();
    let roots = ["extent", "device", "free space", "uuid", "checksum"];
    let roots = roots.map(|tree| places(&image, root_of(&image, tree)));
    let (checksums, others) = roots.split_last().unwrap();
    for root in others {
        zero(root);
    }
    let copied = |name: &str, options: &str| {
        let to = image.folder().join(name);
        let line = format!("cp -a --subvolid 5 {options}{device}:/ {}", to.display());
        let output = larder(line.split(' '));
        (to, output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let (to, is_whole, said) = copied("without-others", "");
    assert!(is_whole && said.is_empty(), "{said}");
    assert_copied(original.clone(), &to);

    zero(checksums);
    let (_, is_whole, said) = copied("without-checksums", "");
    assert!(!is_whole && said.contains("its checksums"), "{said}");
    let (to, is_whole, said) = copied("rescued", "--rescue ignorebadroots ");
    assert!(is_whole && said.contains("no checksum proves them right"), "{said}");
    assert_copied(original, &to);
    let refused = fail(&format!("mkdir --rescue ignorebadroots {device}:/new"));
    assert!(refused.contains("--rescue is for reading"), "{refused}");
    let unknown = fail(&format!("ls --rescue wibble {device}"));
    assert!(unknown.contains("'wibble' is none of usebackuproot"), "{unknown}");
}

#[test]
fn data_with_a_wrong_checksum_is_read_on_demand() {
    let image = with_marked_file(&small_nodes("wrong-data"));
    let device = &image.devices()[0];
    let at = sectors_of(device, MARK)[5];
    damage::invert(device, at..at + 4096).unwrap();
    let shown = device.display();
    assert!(fail(&format!("cat {shown}:/file")).contains("checksum"));
    // That its checksums can be read does not make it right.
    fail(&format!("cat --rescue ignorebadroots {shown}:/file"));
    let (read, said) = reads(&format!("cat --rescue ignoredatacsums {shown}:/file"));
    let mut expected = marked(64);
    expected[5 * 4096..6 * 4096].iter_mut().for_each(|byte| *byte = !*byte);
    assert!(read == expected);
    assert!(said.ends_with(&unverified(1)), "{said}");
    let kernel = image.mount("ro,rescue=idatacsums");
    assert!(fs::read(kernel.path().join("file")).unwrap() == expected);
}

#[test]
fn a_good_copy_is_preferred_to_a_bad_one() {
    let spec = small_nodes("one-bad-copy").devices(&[512 * MIB; 2]);
    let image = with_marked_file(&spec.profiles(Profile::Raid1, Profile::Raid1));
    for (device, sector) in image.devices().iter().zip([3, 4]) {
        let at = sectors_of(device, MARK)[sector];
        damage::invert(device, at..at + 4096).unwrap();
    }
    let shown = image.devices()[0].display();
    let (read, said) = reads(&format!("cat --rescue all {shown}:/file"));
    assert!(read == marked(64));
    assert!(!said.contains("no checksum proves"), "{said}");
}

#[test]
fn tree_blocks_with_a_wrong_checksum_are_read_on_demand() {
    let image = with_marked_file(&small_nodes("wrong-checksum"));
    let device = image.devices()[0].display();
    for (device, physical) in places(&image, last_leaf(&image, 5)) {
        damage::invert(&device, physical..physical + 4).unwrap();
    }
    fail(&format!("ls {device}"));
    let (read, said) = reads(&format!("cat --rescue ignoremetacsums {device}:/file"));
    assert!(read == marked(64));
    assert!(said.contains("no checksum proves them right"), "{said}");
}

#[test]
fn flags_of_an_unfinished_change_are_ignored_on_demand() {
    let image = with_marked_file(&small_nodes("flags"));
    let device = &image.devices()[0];
    for offset in OFFSETS.into_iter().take(2) {
        let at = offset.0 as usize;
        let bytes = fs::read(device).unwrap();
        let mut superblock = Superblock::parse(&bytes[at..at + SUPERBLOCK_SIZE], offset).unwrap();
        superblock.flags = (superblock.flags.get() | SUPER_FLAG_CHANGING_META_CSUM).into();
        superblock.update_checksum();
        damage::overwrite(device, offset.0, superblock.as_bytes()).unwrap();
    }
    let shown = device.display();
    assert!(fail(&format!("ls {shown}")).contains("was not finished"));
    assert!(reads(&format!("cat --rescue isuperflags {shown}:/file")).0 == marked(64));
}

#[test]
fn a_root_that_no_superblock_names_is_found() {
    let (image, history) = with_history(&small_nodes("no-named-root"));
    let device = &image.devices()[0];
    let named = states(image.devices()).0;
    let (named, others): (Vec<_>, Vec<_>) =
        named.values().partition(|state| !state["named-by"].is_null());
    let whole = others.iter().filter(|state| state["complete"] == true);
    let newest = whole.map(|state| state["generation"].as_u64().unwrap()).max().unwrap();
    for root in named.iter().map(|state| state["root"].as_u64().unwrap()) {
        zero(&places(&image, root));
    }
    let shown = device.display();
    fail(&format!("ls {shown}"));
    let (read, said) = reads(&format!("ls --rescue usebackuproot {shown}"));
    let listed = String::from_utf8(read).unwrap();
    assert_eq!(listed.lines().collect::<Vec<_>>(), history[&newest]);
    assert!(said.contains(&format!("shown as after generation {newest}")), "{said}");
    command::run("mount", ["-o", "loop,ro,rescue=usebackuproot", &shown.to_string(), "/mnt"])
        .expect_err("the kernel knows four backups");
}

#[test]
fn files_on_a_device_are_read_when_a_stripe_of_others_is_lost() {
    let spec = small_nodes("lost-stripes").devices(&[512 * MIB; 2]);
    let image = KernelImage::empty(&spec.profiles(Profile::Raid0, Profile::Raid1));
    let sectors = |number: usize| vec![number as u8; 48 << 10];
    let mount = image.mount("");
    for number in 0..40 {
        fs::write(mount.path().join(format!("{number:02}")), sectors(number)).unwrap();
    }
    drop(mount);
    let [kept, lost] = image.devices() else { unreachable!() };
    fs::remove_file(lost).unwrap();
    let shown = kept.display();
    let refused = fail(&format!("ls --degraded {shown}"));
    assert!(refused.contains("--rescue ignorebadroots reads what is left"), "{refused}");
    let (listed, _) = reads(&format!("ls --degraded --rescue ignorebadroots {shown}"));
    assert_eq!(String::from_utf8(listed).unwrap().lines().count(), 40);
    let to = image.folder().join("kept");
    let line = format!("cp -a --degraded --rescue ignorebadroots {shown}:/ {}", to.display());
    assert!(!larder(line.split(' ')).status.success());
    let whole = (0..40).filter(|number| {
        let copy = fs::read(to.join(format!("{number:02}"))).unwrap_or_default();
        let is_whole = copy == sectors(*number);
        assert!(is_whole || copy.len() < sectors(*number).len() || copy.contains(&0), "{number}");
        is_whole
    });
    let whole = whole.count();
    assert!((8..40).contains(&whole), "{whole}");
}
