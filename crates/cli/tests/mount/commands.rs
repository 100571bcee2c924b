//! The same commands on an image, on a mount of larder and on one of the kernel print and do the
//! same.

use std::fs;
use std::path::Path;
use std::process::Command;

use larder_testkit::content::Content;
use larder_testkit::{ImageSpec, KernelImage, KernelMount, oracle};

use crate::support::{Mounted, larder, shell, succeed};

/// Where commands run: `@` in their words is the prefix of a path, `%` the file system.
struct Place {
    before_path: String,
    whole: String,
}

impl Place {
    fn image(image: &Path) -> Self {
        let whole = image.display().to_string();
        Self { before_path: format!("{whole}:"), whole }
    }

    fn mount(point: &Path) -> Self {
        let whole = point.display().to_string();
        Self { before_path: whole.clone(), whole }
    }

    /// Runs a command. Returns whether it succeeded, and its output without the place.
    fn run(&self, words: &str) -> (bool, String) {
        let word = |word: &str| word.replace('@', &self.before_path).replace('%', &self.whole);
        let output = larder().args(words.split(' ').map(word)).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stdout);
        let said = said.replace(&format!("{}/", self.before_path), "@/");
        // What a server or the kernel has in memory, and how much of the rest it keeps free.
        let is_in_memory = |line: &&str| {
            let names = ["GlobalReserve", "Global reserve", "Free (statfs"];
            names.iter().any(|name| line.trim_start().starts_with(name))
        };
        let lines: Vec<&str> = said.lines().filter(|line| !is_in_memory(line)).collect();
        (output.status.success(), lines.join("\n"))
    }
}

fn image() -> KernelImage {
    let image = KernelImage::build(&ImageSpec::new("commands"), &Content::new(7));
    // The kernel frees the space of a deleted subvolume in the background, and may not be done.
    let mount = image.mount("subvolid=5");
    succeed(Command::new("btrfs").args(["subvolume", "sync"]).arg(mount.path()));
    drop(mount);
    image
}

/// A logical address in the middle of the first extent of a file.
fn address_in(file: &Path) -> String {
    let listed = succeed(Command::new("filefrag").args(["-v", "-b1"]).arg(file));
    let extent =
        listed.lines().find(|line| line.trim_start().starts_with("0:")).expect("it has data");
    let physical = extent.split(':').nth(2).and_then(|range| range.split("..").next());
    let physical: u64 = physical.expect("a range").trim().parse().expect("a number");
    (physical + 4096).to_string()
}

#[test]
fn they_print_the_same_wherever_they_look() {
    let image = image();
    let file = &image.devices()[0];
    let theirs = image.mount("ro,subvolid=5");
    let shared = address_in(&theirs.path().join("subvolumes/first/file-20"));
    let plain = address_in(&theirs.path().join("data/text-300007"));
    drop(theirs);
    let questions: Vec<String> = [
        "subvolume list %",
        "subvolume list -pcuqRs @/",
        "subvolume list -a -t --sort=-gen,path @/subvolumes/first",
        "subvolume list -o @/subvolumes/first",
        "subvolume show @/",
        "subvolume show @/subvolumes/read-only",
        "subvolume show @/subvolumes/received/read-only",
        "subvolume show @/subvolumes",
        "subvolume show --rootid 257 %",
        "subvolume get-default %",
        "property get @/subvolumes/first",
        "property get @/subvolumes/read-only ro",
        "property get @/",
        "property get @/ label",
        "property list @/subvolumes/first",
        "property list @/data/text-renamed",
        "property get @/data/text-renamed ro",
        "property get @/nothing",
        "filesystem label %",
        "filesystem df %",
        "filesystem df --raw %",
        "filesystem usage %",
        "filesystem usage --raw %",
        "filesystem show --raw %",
        "inspect rootid @/subvolumes/first/plain",
        "inspect rootid @/data/text-renamed",
        "inspect subvolid-resolve 257 %",
        "inspect subvolid-resolve 999 %",
        "inspect inode-resolve 257 @/subvolumes/first",
        "inspect inode-resolve 999999 @/subvolumes/first",
        "inspect logical-resolve 4096 @/",
    ]
    .map(str::to_owned)
    .into_iter()
    .chain([&shared, &plain].into_iter().flat_map(|address| {
        ["", "-P ", "-o "].map(|options| format!("inspect logical-resolve {options}{address} @/"))
    }))
    .collect();
    let ask = |place: &Place| questions.iter().map(|text| place.run(text)).collect::<Vec<_>>();
    let expected = ask(&Place::image(file));

    let mut ours = Mounted::unmounted();
    fs::rename(file, ours.image()).unwrap();
    fs::hard_link(ours.image(), file).unwrap();
    for options in ["ro,subvolid=5", "subvolid=5"] {
        ours.mount(&["-o", options]);
        let answers = ask(&Place::mount(&ours.path()));
        ours.unmount();
        for ((text, expected), answer) in questions.iter().zip(&expected).zip(answers) {
            let said =
                answer.1.replace(&ours.image().display().to_string(), &file.display().to_string());
            assert_eq!(
                (answer.0, &said),
                (expected.0, &expected.1),
                "{text} on a mount, {options}"
            );
        }
    }

    let theirs = image.mount("ro,subvolid=5");
    let device = theirs.devices().next().unwrap().display().to_string();
    let answers = ask(&Place::mount(theirs.path()));
    for ((text, expected), answer) in questions.iter().zip(&expected).zip(answers) {
        let said = answer.1.replace(&device, &file.display().to_string());
        assert_eq!((answer.0, &said), (expected.0, &expected.1), "{text} on the kernel's");
    }
    as_btrfs_says(&theirs, &shared);
}

/// Files are found by address as btrfs-progs finds them.
fn as_btrfs_says(mount: &KernelMount, address: &str) {
    let sorted = |text: String| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let arguments = ["inspect-internal", "logical-resolve", "-P", address];
    let theirs = sorted(succeed(Command::new("btrfs").args(arguments).arg(mount.path())));
    let ours = sorted(
        Place::mount(mount.path()).run(&format!("inspect logical-resolve -P {address} @/")).1,
    );
    assert!(theirs.len() > 2, "{theirs:?}");
    assert_eq!(ours, theirs);
}

#[test]
fn they_do_the_same_wherever_they_work() {
    let image = image();
    let changes = [
        "subvolume create @/new",
        "subvolume create @/new",
        "subvolume create @/new/inner",
        "subvolume create @/none/inner",
        "subvolume snapshot -r @/subvolumes/first @/snapshot",
        "subvolume snapshot @/subvolumes/first @/new",
        "subvolume snapshot @/data @/new/data",
        "subvolume delete -C @/new",
        "subvolume delete -C @/new/inner",
        "subvolume delete -C @/data",
        "property set @/new/first ro true",
        "property get @/new/first ro",
        "property set @/new/first ro maybe",
        "property set @/subvolumes/received/read-only ro false",
        "property set -f @/subvolumes/received/read-only ro false",
        "property set @/data/text-renamed compression zstd",
        "property set @/data/text-renamed compression rar",
        "property get @/data/text-renamed compression",
        "filesystem label % a-new-label",
        "filesystem label %",
        "property set @/ label another",
        "filesystem label %",
        "subvolume set-default @/new",
        "subvolume get-default %",
        "subvolume set-default 5 %",
        "subvolume set-default 999 %",
        "reflink @/data/text-300007 @/copy",
        "reflink @/data/text-300007 @/data/text-renamed",
        "reflink @/none @/copy",
        "reflink @/copy @/copy",
        "subvolume list -r %",
        "subvolume list -s %",
    ];
    // Generations, ids that follow from them, and times are those of commits at other times.
    let without_numbers = |said: String| {
        let is_number = |word: &&str| word.bytes().all(|byte| b"0123456789-:".contains(&byte));
        said.split([' ', '\n']).filter(|word| !is_number(word)).collect::<Vec<_>>().join(" ")
    };
    let run = |place: &Place| {
        changes.map(|text| {
            let (done, said) = place.run(text);
            (text, done, without_numbers(said))
        })
    };
    let copies = [image.duplicate(), image.duplicate()];
    let [in_image, in_kernel] = &copies;
    let expected = run(&Place::image(&in_image.devices()[0]));
    assert!(expected.iter().filter(|(_, done, _)| *done).count() > 18, "{expected:#?}");

    let mut ours = Mounted::unmounted();
    fs::copy(&image.devices()[0], ours.image()).unwrap();
    ours.mount(&["-o", "subvolid=5"]);
    let answers = run(&Place::mount(&ours.path()));
    succeed(larder().args(["filesystem", "sync"]).arg(ours.path()));
    let sum = |folder: &Path| shell(folder, "sha256sum copy");
    let copy = sum(&ours.path());
    ours.unmount();
    ours.check();
    let mount = in_kernel.mount("subvolid=5");
    let theirs = run(&Place::mount(mount.path()));
    succeed(larder().args(["filesystem", "sync"]).arg(mount.path()));
    assert_eq!(copy, sum(mount.path()));
    drop(mount);
    oracle::check(in_kernel.devices(), true).unwrap();
    for ((expected, ours), theirs) in expected.iter().zip(&answers).zip(&theirs) {
        assert_eq!(ours, expected, "on a mount");
        assert_eq!(theirs, expected, "on the kernel's");
    }
    let mount = KernelMount::open(&[ours.image()], "ro,subvolid=5");
    let shown = succeed(Command::new("filefrag").arg("-v").arg(mount.path().join("copy")));
    assert!(shown.contains("shared"), "{shown}");
}

/// Commands that only images need name the system's own where a path is on a mount.
#[test]
fn commands_for_images_name_the_way_out_on_mounts() {
    let mounted = Mounted::new();
    mounted.shell("touch f; mkdir d");
    let image = KernelImage::empty(&ImageSpec::new("way-out"));
    let kernel = image.mount("");
    shell(kernel.path(), "touch f; mkdir d");
    for place in [&mounted.path(), kernel.path()] {
        for words in [&["stat"][..], &["getfattr"], &["truncate", "-s", "1"]] {
            for name in ["f", "d"] {
                let output = larder().args(words).arg(place.join(name)).output().unwrap();
                let said = String::from_utf8_lossy(&output.stderr);
                let way_out = "on a mount use the system's own commands";
                assert!(!output.status.success() && said.contains(way_out), "{words:?}: {said}");
            }
        }
    }
    mounted.finish();
}
