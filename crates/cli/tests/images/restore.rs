//! `larder restore` on images that the kernel made and that were damaged since, beside `btrfs
//! restore`.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use larder_format::{ChecksumType, ItemType, Node};
use larder_testkit::manifest::assert_copied;
use larder_testkit::sparse_file::sparse_copy;
use larder_testkit::{Content, KernelImage, Profile, Scratch, damage};

use crate::rescue::{
    MARK, MIB, marked, places, reads, run, sectors_of, small_nodes, with_marked_file, zero,
};
use crate::support::{fail, larder};

/// Restores everything to a new folder: the folder, whether all was there, and what was said.
fn restore(device: &Path, scratch: &Scratch, name: &str) -> (PathBuf, bool, String) {
    let to = scratch.path().join(name);
    let output = larder(["restore".as_ref(), device.as_os_str(), to.as_os_str()]);
    let said = String::from_utf8(output.stderr).unwrap();
    (to, output.status.success(), said)
}

/// The paths of all files below a folder with their content.
pub(crate) fn files(folder: &Path) -> BTreeSet<(PathBuf, Vec<u8>)> {
    let mut found = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).into_iter().flatten().flatten() {
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                let path = entry.path();
                let content = fs::read(&path).unwrap();
                found.insert((path.strip_prefix(folder).unwrap().to_owned(), content));
            }
        }
    }
    found
}

/// Addresses of the leaves of a tree.
fn leaves(device: &Path, tree: u64) -> Vec<u64> {
    let dump = run("btrfs", &format!("inspect dump-tree -t {tree} {}", device.display()));
    let leaves = dump.lines().filter(|line| line.starts_with("leaf "));
    leaves.map(|line| line.split(' ').nth(1).unwrap().parse().unwrap()).collect()
}

#[test]
fn a_sound_file_system_is_restored_as_a_whole() {
    let image = KernelImage::build(&small_nodes("sound"), &Content::new(3));
    let scratch = Scratch::new();
    let (to, is_whole, said) = restore(&image.devices()[0], &scratch, "all");
    assert!(is_whole && said.is_empty(), "{said}");
    assert_copied(image.manifest().clone(), &to);
}

/// Whatever leaf of the files is lost, each file is there as it was or named as missing, itself or a
/// directory around it.
#[test]
fn without_any_leaf_every_file_is_whole_or_named() {
    let image = KernelImage::empty(&small_nodes("leaves"));
    let device = &image.devices()[0];
    let mount = image.mount("");
    for number in 0..60_u8 {
        let folder = mount.path().join(format!("folder-{}", number % 3));
        fs::create_dir_all(&folder).unwrap();
        let content = vec![number; 3000 + usize::from(number) * 400];
        fs::write(folder.join(format!("file-{number}")), content).unwrap();
    }
    let original = files(mount.path());
    drop(mount);
    let leaves = leaves(device, 5);
    assert!(leaves.len() > 5, "{leaves:?}");
    let (mut ours, mut theirs) = (0, 0);
    for leaf in &leaves {
        let places = places(&image, *leaf);
        let scratch = Scratch::new();
        let copy = scratch.path().join("device");
        sparse_copy(device, &copy).unwrap();
        zero(&places.iter().map(|(_, at)| (copy.clone(), *at)).collect::<Vec<_>>());
        let (to, is_whole, said) = restore(&copy, &scratch, "ours");
        let restored = files(&to);
        let is_named = |path: &Path| {
            path.ancestors().any(|it| {
                let named = format!("device:/{}: cannot copy it", it.display());
                said.contains(&named) || said.contains("device:: ")
            })
        };
        for (path, content) in &original {
            let is_there = restored.contains(&(path.clone(), content.clone()));
            assert!(is_there || is_named(path), "leaf {leaf}: {}: {said}", path.display());
        }
        assert_eq!(is_whole, said.is_empty(), "{said}");
        ours += original.intersection(&restored).count();
        let to = scratch.path().join("theirs");
        fs::create_dir(&to).unwrap();
        // It asks whether to go on.
        let line = format!("yes | btrfs restore -i {} {}", copy.display(), to.display());
        let _ = Command::new("sh").args(["-c", &line]).output().unwrap();
        theirs += original.intersection(&files(&to)).count();
    }
    let all = leaves.len() * original.len();
    println!("whole files without one leaf, of {all}: larder {ours}, btrfs restore {theirs}");
    assert!(ours >= theirs, "{ours}, {theirs} of {all}");
}

/// Names that the index has lost are in the hash entries.
#[test]
fn names_come_from_the_index_or_the_hash_entries() {
    let image = KernelImage::empty(&small_nodes("names"));
    let device = &image.devices()[0];
    let mount = image.mount("");
    let names: BTreeSet<String> =
        (0..400).map(|it| format!("a name that takes some room, {it}")).collect();
    for name in &names {
        fs::write(mount.path().join(name), name).unwrap();
    }
    drop(mount);
    let dump = run("btrfs", &format!("inspect dump-tree -t 5 {}", device.display()));
    let leaves = dump.split("\nleaf ").skip(1);
    let only = |kind: &str| {
        let is_of = |leaf: &&str| {
            let keys = leaf.lines().filter(|line| line.trim_start().starts_with("item "));
            let is_of = |line: &str| line.contains(&format!("key (256 {kind} "));
            keys.clone().count() > 0 && keys.clone().all(is_of)
        };
        let found = leaves.clone().find(is_of).unwrap_or_else(|| panic!("a leaf of {kind}"));
        places(&image, found.split(' ').next().unwrap().parse().unwrap())
    };
    for (kind, lost) in [("DIR_INDEX", only("DIR_INDEX")), ("DIR_ITEM", only("DIR_ITEM"))] {
        let scratch = Scratch::new();
        let copy = scratch.path().join("device");
        sparse_copy(device, &copy).unwrap();
        zero(&lost.iter().map(|(_, at)| (copy.clone(), *at)).collect::<Vec<_>>());
        let (to, is_whole, said) = restore(&copy, &scratch, "to");
        let restored = files(&to);
        let expected = names.iter().map(|name| (PathBuf::from(name), name.clone().into_bytes()));
        assert!(
            restored == expected.collect::<BTreeSet<_>>(),
            "{kind}: {}: {said}",
            restored.len()
        );
        // The index alone says how many names there are.
        assert_eq!(is_whole, kind == "DIR_ITEM", "{kind}: {said}");
        // So do lookups, and lists.
        let listed = larder(["ls", "--rescue", "all", copy.to_str().unwrap()]);
        assert_eq!(String::from_utf8_lossy(&listed.stdout).lines().count(), names.len(), "{kind}");
        for name in names.iter().step_by(50) {
            let path = format!("{}:/{name}", copy.display());
            let read = larder(["cat", "--rescue", "all", &path]);
            assert_eq!(String::from_utf8_lossy(&read.stdout), **name, "{kind}");
        }
    }
}

#[test]
fn what_is_lost_of_a_file_is_a_hole_and_is_named() {
    let spec = small_nodes("holes").devices(&[512 * MIB; 2]);
    let image = KernelImage::empty(&spec.profiles(Profile::Raid0, Profile::Raid1));
    fs::write(image.mount("").path().join("file"), marked(128)).unwrap();
    let [kept, lost] = image.devices() else { unreachable!() };
    fs::remove_file(lost).unwrap();
    let scratch = Scratch::new();
    let (to, is_whole, said) = restore(kept, &scratch, "to");
    assert!(!is_whole && said.contains(":/file: cannot copy it to"), "{said}");
    assert!(said.contains("bytes are lost, the first at "), "{said}");
    let (copy, original) = (fs::read(to.join("file")).unwrap(), marked(128));
    assert_eq!(copy.len(), original.len());
    let mut there = 0;
    for (copy, original) in copy.chunks(4096).zip(original.chunks(4096)) {
        assert!(copy == original || copy.iter().all(|byte| *byte == 0));
        there += usize::from(copy == original);
    }
    // Stripes are 64 KiB.
    assert!(there > 0 && there < 128 && there.is_multiple_of(16), "{there}");

    // Data that no checksum proves right is copied.
    let image = with_marked_file(&small_nodes("unproved"));
    let device = &image.devices()[0];
    let at = sectors_of(device, MARK)[5];
    damage::invert(device, at..at + 4096).unwrap();
    let (to, is_whole, said) = restore(device, &scratch, "unproved");
    assert!(is_whole && said.contains("1 blocks and sectors were read although"), "{said}");
    let mut expected = marked(64);
    expected[5 * 4096..6 * 4096].iter_mut().for_each(|byte| *byte = !*byte);
    assert!(fs::read(to.join("file")).unwrap() == expected);
    // On demand it is not.
    let to = scratch.path().join("proved");
    let line = format!("restore --rescue ignorebadroots {} {}", device.display(), to.display());
    assert!(fail(&line).contains("4096 bytes are lost, the first at 20480"));
}

#[test]
fn a_part_is_chosen_by_path_and_pattern() {
    let image = KernelImage::empty(&small_nodes("parts"));
    let device = image.devices()[0].display().to_string();
    let mount = image.mount("");
    for name in ["home/ann/letters/one", "home/ann/two", "home/bob/three", "etc/four"] {
        let path = mount.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, name).unwrap();
    }
    // The first of three names is not chosen below.
    fs::hard_link(mount.path().join("home/bob/three"), mount.path().join("etc/five")).unwrap();
    fs::hard_link(mount.path().join("home/bob/three"), mount.path().join("home/bob/x")).unwrap();
    drop(mount);
    let scratch = Scratch::new();
    let to = |name: &str| scratch.path().join(name).display().to_string();
    let names = |name: &str| {
        let files = files(&scratch.path().join(name)).into_iter();
        files.map(|(path, _)| path.display().to_string()).collect::<Vec<_>>()
    };
    let pattern = "--path-regex ^/(|home(|/ann(|/.*)))$";
    let (_, said) = reads(&format!("restore -v {pattern} {device} {}", to("one")));
    assert_eq!(names("one"), ["home/ann/letters/one", "home/ann/two"]);
    assert!(said.contains(":/home/ann/letters/one\n") && !said.contains("bob"), "{said}");
    let pattern = "-c --path-regex ^/(|HOME(|/BOB(|/.*)))$";
    reads(&format!("restore {pattern} {device} {}", to("two")));
    assert_eq!(names("two"), ["home/bob/three", "home/bob/x"]);
    let links = fs::metadata(scratch.path().join("two/home/bob/x")).unwrap().nlink();
    assert_eq!(links, 2);
    reads(&format!("restore {device}:/home/ann {}", to("three")));
    assert_eq!(names("three"), ["letters/one", "two"]);
    reads(&format!("restore {device}:/etc/four {}", to("four")));
    assert_eq!(names("four"), ["four"]);
    let (listed, _) = reads(&format!("restore -D {device}:/home"));
    let listed = String::from_utf8(listed).unwrap();
    assert!(listed.contains(":/home/bob/three\n") && !listed.contains("four"), "{listed}");

    let refused = fail(&format!("restore {device} {}", to("one")));
    assert!(refused.contains("is not empty; --overwrite"), "{refused}");
    reads(&format!("restore -o {device} {}", to("one")));
    assert_eq!(names("one").len(), 6);
    assert!(fail(&format!("restore --path-regex ( {device} x")).contains("no regular expression"));
}

/// Replaces a name in all blocks of the root tree, and zeros the leaves of tree 256 that have
/// nothing but entries of directories.
fn rename_and_lose_entries(device: &Path, name: &str, other: &str) {
    const NODE_BYTES: usize = 4096;
    const SUPERBLOCK: usize = 64 << 10;
    let mut bytes = fs::read(device).unwrap();
    let fsid = bytes[SUPERBLOCK + 32..][..16].to_vec();
    for at in (0..bytes.len()).step_by(NODE_BYTES).filter(|at| *at != SUPERBLOCK) {
        let block = &mut bytes[at..][..NODE_BYTES];
        if block[32..48] != fsid {
            continue;
        }
        let (owner, level) = (u64::from_le_bytes(*block[88..].first_chunk().unwrap()), block[100]);
        let is_of_entries = |kind| [ItemType::DIR_ITEM, ItemType::DIR_INDEX].contains(&kind);
        let has_only_entries = level == 0
            && Node::from_checked(block).iter_items().all(|(key, _)| is_of_entries(key.item_type));
        if owner == 256 && has_only_entries {
            block.fill(0);
        } else if owner == 1 {
            for at in 0..NODE_BYTES - name.len() {
                if block[at..].starts_with(name.as_bytes()) {
                    block[at..][..name.len()].copy_from_slice(other.as_bytes());
                }
            }
            let checksum = ChecksumType::Crc32c.compute_block(block);
            block[..4].copy_from_slice(checksum.as_bytes());
        }
    }
    fs::write(device, bytes).unwrap();
}

/// An image may say that a subvolume has any name, such as a path that leads elsewhere. What no
/// directory names any more is put below it.
#[test]
fn no_name_of_a_subvolume_leads_out_of_the_destination() {
    let scratch = Scratch::new();
    let outside = scratch.path().join("outside");
    for (folder, path) in [("relative", "../outside"), ("absolute", outside.to_str().unwrap())] {
        fs::create_dir(&outside).unwrap();
        let image = KernelImage::empty(&small_nodes(folder));
        let device = &image.devices()[0];
        let name = "s".repeat(path.len());
        let mount = image.mount("");
        let subvolume = mount.path().join(&name);
        run("btrfs", &format!("subvolume create {}", subvolume.display()));
        fs::create_dir(subvolume.join("inner")).unwrap();
        for number in 0..200 {
            let name = format!("inner/a name that takes some room, {number}");
            fs::write(subvolume.join(name), "bread").unwrap();
        }
        drop(mount);
        rename_and_lose_entries(device, &name, path);
        let (to, _, said) = restore(device, &scratch, folder);
        assert!(said.contains("no directory names it any more"), "{said}");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 0, "{path}");
        let found = files(&to).into_iter().filter(|(_, content)| content == b"bread").count();
        assert!(found > 100, "{found}: {said}");
        fs::remove_dir(&outside).unwrap();
    }
}

/// The top level often has nothing but subvolumes, in one leaf. Without any copy of it, they are all
/// there by their numbers.
#[test]
fn without_the_top_level_its_subvolumes_are_there() {
    const NODE_BYTES: usize = 4096;
    let image = KernelImage::empty(&small_nodes("top"));
    let device = &image.devices()[0];
    let mount = image.mount("");
    for name in ["root", "home"] {
        let subvolume = mount.path().join(name);
        run("btrfs", &format!("subvolume create {}", subvolume.display()));
        fs::write(subvolume.join("file"), name).unwrap();
    }
    drop(mount);
    let mut bytes = fs::read(device).unwrap();
    let fsid = bytes[(64 << 10) + 32..][..16].to_vec();
    let is_of_top_level =
        |block: &[u8]| block[32..48] == fsid && block[88..96] == 5_u64.to_le_bytes();
    let blocks = bytes.chunks_exact_mut(NODE_BYTES);
    let lost = blocks.filter(|block| is_of_top_level(block)).map(|block| block.fill(0)).count();
    assert!(lost > 0);
    fs::write(device, bytes).unwrap();
    let scratch = Scratch::new();
    let (to, is_whole, said) = restore(device, &scratch, "to");
    assert!(!is_whole && said.contains("no subvolume with id 5"), "{said}");
    let expected = [("lost+found/256/file", "root"), ("lost+found/257/file", "home")];
    let expected = expected.map(|(path, content)| (PathBuf::from(path), content.into()));
    assert_eq!(files(&to), expected.into_iter().collect(), "{said}");
}
