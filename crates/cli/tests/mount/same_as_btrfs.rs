//! Commands that btrfs-progs has too mean the same, option by option: `larder` and `btrfs` are run
//! with the same words on mounts of the kernel, and must print the same and end alike. Other tests
//! check that the commands do the same on images and on larder's own mounts.

use std::path::Path;
use std::process::Command;

use larder_testkit::content::Content;
use larder_testkit::{ImageSpec, KernelImage, KernelMount};

use crate::support::{Mounted, larder, succeed};

/// Lines that are left out by design; the table in `docs/commands.md` says why.
const LEFT_OUT: [&str; 1] = ["Send time"];

/// The result of a command: whether it succeeded, and what it printed.
type Answer = (bool, String);

/// Runs `program` with these words, in which `@` stands for the mount point.
fn run(mut program: Command, mount: &Path, words: &str) -> Answer {
    let place = mount.display().to_string();
    program.args(words.split(' ').map(|word| word.replace('@', &place)));
    let output = program.output().expect("it starts");
    let printed = String::from_utf8_lossy(&output.stdout).replace(&place, "@");
    let is_kept = |line: &&str| {
        // `btrfs subvolume find-new` has no room for this item, and shows zeros.
        let is_cut = line.ends_with(" links/symlink-long");
        !is_cut && !LEFT_OUT.iter().any(|word| line.trim_start().starts_with(word))
    };
    let mut printed: Vec<&str> = printed.lines().filter(is_kept).collect();
    if let Some(start) = printed.iter().position(|line| line.trim() == "Snapshot(s):") {
        // Each tool has an order of its own.
        printed[start..].sort_unstable();
    }
    (output.status.success(), printed.join("\n"))
}

fn image() -> KernelImage {
    KernelImage::build(&ImageSpec::new("same"), &Content::new(7))
}

const QUESTIONS: &[&str] = &[
    "subvolume list @",
    "subvolume list @/subvolumes/first",
    "subvolume list -p -c -g -u -q -R @/subvolumes/first",
    "subvolume list -o @/subvolumes/first",
    "subvolume list -a @/subvolumes/first",
    "subvolume list -s @",
    "subvolume list -r @",
    "subvolume list -d @",
    "subvolume list -t -p -c -g -u -q -R -s @",
    "subvolume list -t @",
    "subvolume list -G +9 @",
    "subvolume list -G -9 @",
    "subvolume list -G 9 @",
    "subvolume list -C +9 @",
    "subvolume list -C -9 @",
    "subvolume list --sort=gen,-path @",
    "subvolume list --sort=-ogen,path @",
    "subvolume list --sort=-rootid @",
    "subvolume list @/none",
    "subvolume list",
    "subvolume show @",
    "subvolume show @/subvolumes/first",
    "subvolume show @/subvolumes/received/read-only",
    "subvolume show -h @/subvolumes/first",
    "subvolume show --rootid 257 @",
    "subvolume show -r 999 @",
    "subvolume show -u 00000000-0000-0000-0000-000000000001 @",
    "subvolume show -r 257 -u 00000000-0000-0000-0000-000000000001 @",
    "subvolume show @/subvolumes",
    "subvolume get-default @",
    "subvolume get-default @/none",
    "subvolume find-new @ 0",
    "subvolume find-new @/subvolumes/first 0",
    "subvolume find-new @/subvolumes/first 9",
    "subvolume find-new @/subvolumes/writable 0",
    "subvolume find-new @ 99999999",
    "subvolume find-new @ many",
    "subvolume find-new @/data 0",
    "subvolume find-new /proc 0",
    "subvolume find-new @",
    "subvolume sync @",
    "subvolume sync @ 9999",
    "subvolume sync -s 7 @ 9999 9998 9999",
    "subvolume sync -s 0 @ 9999",
    "subvolume sync @ 5",
    "subvolume sync @ many",
    "subvolume sync @/none",
    "subvolume sync",
    "filesystem df @",
    "filesystem df -b @",
    "filesystem df --raw @",
    "filesystem df -h @",
    "filesystem df -H @",
    "filesystem df --iec @",
    "filesystem df --si @",
    "filesystem df -k @",
    "filesystem df -m --si @",
    "filesystem df --si -g @",
    "filesystem df -t @",
    "filesystem df -k -m @",
    "filesystem df -m -k @",
    "filesystem df -k -H @",
    "filesystem df -H -k @",
    "filesystem df -b -k @",
    "filesystem df --raw --si @",
    "filesystem df -k -k @",
    "filesystem df @/none",
    "filesystem df /proc",
    "filesystem du @",
    "filesystem du --raw @/data @/subvolumes",
    "filesystem du -s @ @/data @/subvolumes/first @/subvolumes/writable",
    "filesystem du --summarize --kbytes @/none @/data",
    "filesystem du @/links/fifo @/links",
    "filesystem du --si @/data/text-renamed @/data/text-renamed",
    "filesystem du @/none",
    "filesystem du /proc/self",
    "filesystem du",
    "filesystem usage @",
    "filesystem usage -h @",
    "filesystem usage -H @",
    "filesystem usage -b @",
    "filesystem usage --mbytes @",
    "filesystem usage -T @",
    "filesystem usage -T -b @",
    "filesystem usage -T -g @",
    "filesystem usage @ @/subvolumes",
    "filesystem usage -H @/data",
    "filesystem usage -T @ @",
    "filesystem usage @ @/none",
    "filesystem usage",
    "device usage @",
    "device usage -b @",
    "device usage -H @ @/subvolumes",
    "device usage @ @/none",
    "device usage",
    "device stats @",
    "device stats -T @",
    "device stats --check -T @",
    "--format json device stats @",
    "--format json device stats -T @",
    "--format text device stats @",
    "device stats /proc",
    "device stats @/none",
    "filesystem show @",
    "filesystem show -m @",
    "filesystem show --mounted --raw @",
    "filesystem show -d @",
    "filesystem show --mbytes @",
    "filesystem show -k @",
    "filesystem show -b @",
    "filesystem show -t @",
    "filesystem show -h @",
    "filesystem label @",
    "filesystem label @/none",
    "filesystem sync @",
    "filesystem sync /proc",
    "property get @",
    "property get @ label",
    "property get @/subvolumes/read-only ro",
    "property get -t s @/subvolumes/read-only",
    "property get -t subvol @/subvolumes/read-only",
    "property get -t f @",
    "property get -t filesystem @",
    "property get -t i @",
    "property get -t inode @/subvolumes/first",
    "property get -t x @",
    "property get @/data/text-renamed ro",
    "property get @/none",
    "property get -t s @/data/text-renamed",
    "property get -t i @/data label",
    "property list -t s @/data/text-renamed",
    "property list -t f @/data/text-renamed",
    "property list @",
    "property list @/data/text-renamed",
    "property list -t s @/subvolumes/first",
    "property list -t subvol @/subvolumes/first",
    "property list -t i @",
    "property list -t f @",
    "property list -t device @",
    "inspect-internal rootid @",
    "inspect-internal rootid @/subvolumes/first/plain",
    "inspect-internal rootid @/none",
    "inspect-internal subvolid-resolve 257 @",
    "inspect-internal subvolid-resolve 5 @",
    "inspect-internal subvolid-resolve 999 @",
    "inspect-internal inode-resolve 257 @/subvolumes/first",
    "inspect-internal inode-resolve 256 @/subvolumes/first",
    "inspect-internal inode-resolve -v 257 @/subvolumes/first",
    "-v inspect-internal inode-resolve 257 @/subvolumes/first",
    "inspect-internal inode-resolve 999999 @",
    "inspect-internal min-dev-size @",
    "inspect-internal min-dev-size --id 1 @/data",
    "inspect-internal min-dev-size --id many @",
    "inspect-internal min-dev-size /proc",
    "inspect-internal map-swapfile @/data/text-renamed",
    "inspect-internal map-swapfile @/data",
    "inspect-internal map-swapfile @/none",
    "inspect-internal logical-resolve 4096 @",
    "inspect-internal logical-resolve -s 100000 -v 4096 @",
    "inspect-internal logical-resolve -s many 4096 @",
    "inspect-internal dump-super @",
];

#[test]
fn questions_have_the_same_answers() {
    let image = image();
    let mount = image.mount("subvolid=5");
    succeed(Command::new("sync").arg("-f").arg(mount.path()));
    for words in QUESTIONS {
        let expected = run(Command::new("btrfs"), mount.path(), words);
        if words.contains("show -h @") && words.starts_with("filesystem") {
            // In btrfs-progs it is no option there, and here it prints help as everywhere.
            assert!(!expected.0, "{words}");
            continue;
        }
        let (is_done, said) = run(larder(), mount.path(), words);
        for (ours, theirs) in said.lines().zip(expected.1.lines()) {
            assert_eq!(ours, theirs, "{words}");
        }
        assert_eq!(
            (is_done, said.lines().count()),
            (expected.0, expected.1.lines().count()),
            "{words}"
        );
    }
    let uuid = succeed(Command::new("btrfs").args(["subvolume", "list", "-u"]).arg(mount.path()));
    let uuid = uuid.lines().find_map(|line| line.split(" uuid ").nth(1)?.split(' ').next());
    let words = format!("subvolume show --uuid {} @", uuid.expect("a subvolume has one"));
    let expected = run(Command::new("btrfs"), mount.path(), &words);
    assert!(expected.0);
    assert_eq!(run(larder(), mount.path(), &words), expected, "{words}");
}

const CHANGES: &[&str] = &[
    "subvolume create @/new",
    "subvolume create @/new",
    "subvolume create @/new/inner",
    "subvolume create @/new/inner/deep",
    "subvolume create @/none/inner",
    "subvolume create",
    "subvolume snapshot @/new @/snapshot",
    "subvolume snapshot -r @/new @/read-only",
    "subvolume snapshot @/new @/snapshot",
    "subvolume snapshot @/new @/snapshot",
    "subvolume snapshot @/new @/data/text-renamed",
    "subvolume snapshot @/data @/of-a-directory",
    "subvolume snapshot @/new @/none/snapshot",
    "subvolume snapshot @/none @/snapshot-of-none",
    "subvolume snapshot @/new",
    "subvolume list @",
    "subvolume list @/new",
    "subvolume show @/new",
    "subvolume delete @/new",
    "subvolume delete @/new/inner/deep @/new/inner",
    "subvolume delete @/none @/snapshot/new @/data @/read-only",
    // A subvolume that was deleted a moment ago is not listed, whether or not a commit came
    // between.
    "subvolume list @",
    "subvolume show @/new",
    "subvolume delete -c @/snapshot @/new",
    "subvolume create @/a",
    "subvolume create @/b",
    "subvolume create @/c",
    "subvolume delete -C @/a @/b",
    "subvolume delete --commit-each --commit-after @/c",
    "subvolume delete -i 258 @/subvolumes/first",
    "subvolume delete --subvolid 999 @",
    "subvolume delete --subvolid 5 @",
    "subvolume delete -i 257 @/subvolumes/first @/subvolumes/writable",
    "subvolume delete -i many @",
    "subvolume delete",
    "subvolume list @",
    "subvolume set-default @/subvolumes/first",
    "subvolume get-default @",
    "subvolume delete @/subvolumes/first",
    "subvolume set-default 5 @",
    "subvolume get-default @",
    "subvolume set-default 999 @",
    "subvolume set-default many @",
    "subvolume set-default @/data",
    "property set @/subvolumes/first ro true",
    "property set -t subvol @/subvolumes/first ro false",
    "property set @/subvolumes/first ro maybe",
    "property set @/subvolumes/received/read-only ro false",
    "property set -f @/subvolumes/received/read-only ro false",
    "subvolume show @/subvolumes/received/read-only",
    "property set @/subvolumes/received/read-only ro true",
    "property set @/subvolumes/received/read-only ro true",
    "property set -t f @/data label three",
    "property get -t f @/data",
    "property set -t s @/data ro true",
    "property set @/data/text-renamed compression zstd",
    "property get @/data/text-renamed",
    "property set @/data/text-renamed compression rar",
    "property set @/data/text-renamed unheard-of 1",
    "property set -t f @ label one",
    "filesystem label @",
    "filesystem label @ two",
    "filesystem label @",
    "subvolume create @/d",
    "subvolume create @/f",
    "--log info subvolume delete @/d",
    "--log info subvolume delete -C @/f",
    "-q subvolume create @/quiet",
    "-q subvolume snapshot @/quiet @/quieter",
    "--quiet subvolume delete @/quiet",
    "--log quiet subvolume delete @/quieter",
    "-q -v subvolume create @/told",
    "--log bogus subvolume create @/not-told",
    "subvolume list @",
];

#[test]
fn changes_are_the_same() {
    let image = image();
    // Each has its own times and UUIDs, and generations of commits at any time.
    let is_same = |word: &&str| {
        word.len() != 36 && !word.bytes().all(|byte| b"0123456789-:+".contains(&byte))
    };
    let comparable = |(done, printed): Answer| {
        let words = printed.split([' ', '\n', '\t']).filter(is_same).map(str::to_owned);
        (done, words.collect::<Vec<_>>())
    };
    // One after the other: the kernel mounts no two file systems with the same UUID.
    let answers = |program: &dyn Fn() -> Command| {
        let copy = image.duplicate();
        let mount = copy.mount("subvolid=5");
        let answer = |words: &&str| comparable(run(program(), mount.path(), words));
        CHANGES.iter().map(answer).collect::<Vec<_>>()
    };
    let (expected, ours) = (answers(&|| Command::new("btrfs")), answers(&larder));
    for ((words, (is_done, said)), ours) in CHANGES.iter().zip(expected).zip(ours) {
        assert_eq!(ours.0, is_done, "{words}");
        // btrfs reports what it does before it tries, and larder afterwards.
        if is_done || words.starts_with("subvolume delete @/none ") {
            assert_eq!(ours.1, said, "{words}");
        }
    }
}

/// The subvolumes that a listing shows.
fn listed(place: &str) -> Vec<String> {
    let listed = succeed(larder().args(["subvolume", "list", place]));
    let path = |line: &str| line.split(" path ").nth(1).expect("a path").to_owned();
    listed.lines().map(path).collect()
}

/// Creates two subvolumes, and deletes the one with the lower id by that id, while the path is that
/// of the other.
fn delete_by_id(place: &str, path: impl Fn(&str) -> String) {
    for name in ["/by-id", "/by-path"] {
        succeed(larder().args(["subvolume", "create", &path(name)]));
    }
    let id = succeed(larder().args(["inspect", "rootid", &path("/by-id")]));
    let other = path("/by-path");
    succeed(larder().args(["subvolume", "delete", "--subvolid", id.trim(), &other]));
    let names = listed(place);
    assert!(names.contains(&"by-path".to_owned()), "{names:?}");
    assert!(!names.contains(&"by-id".to_owned()), "{names:?}");
    for wrong in ["5", "999"] {
        let refused = larder().args(["subvolume", "delete", "-i", wrong, &other]).output();
        assert_eq!(refused.expect("it starts").status.code(), Some(1), "{wrong}");
    }
    assert_eq!(listed(place), names);
}

#[test]
fn an_id_says_which_subvolume_is_deleted_wherever_that_is() {
    let mut ours = Mounted::new();
    let point = ours.path().display().to_string();
    delete_by_id(&point, |path| format!("{point}{path}"));
    succeed(larder().args(["subvolume", "delete", &format!("{point}/by-path")]));
    ours.unmount();
    let image = ours.image().display().to_string();
    delete_by_id(&image, |path| format!("{image}:{path}"));
    ours.check();
    let theirs = KernelMount::open(&[ours.image()], "subvolid=5");
    let point = theirs.path().display().to_string();
    succeed(larder().args(["subvolume", "delete", &format!("{point}/by-path")]));
    delete_by_id(&point, |path| format!("{point}{path}"));
}

/// Options for opening an image are no options for a mount: nothing there would obey them.
#[test]
fn options_of_images_are_refused_on_mounts() {
    let mounted = Mounted::new();
    let point = mounted.path().display().to_string();
    for words in [
        "subvolume create --subvolid 5 @/new",
        "subvolume create --device /dev/null @/new",
        "subvolume snapshot --subvolid 5 @ @/new",
        "subvolume list --degraded @",
        "subvolume set-default --subvolid 5 5 @",
        "property set --subvolid 5 @ label new",
        "property get --subvolid 5 @",
        "filesystem label --device /dev/null @ new",
        "filesystem df --device /dev/null @",
        "reflink --subvolid 5 @/a @/b",
        "send --device /dev/null @/new",
        "receive --subvolid 5 -f /dev/null @",
    ] {
        let output = larder().args(words.split(' ').map(|word| word.replace('@', &point))).output();
        let output = output.expect("it starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words}: {errors}");
        assert!(errors.contains("lies in a mounted file system"), "{words}: {errors}");
    }
    assert_eq!(listed(&point), Vec::<String>::new());
}
