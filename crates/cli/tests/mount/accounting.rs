//! What files take and where they are: the commands for that say of an image and of a mount of
//! larder what `btrfs` says of the kernel's mount of the same image.

use std::fs;
use std::path::Path;
use std::process::Command;

use larder_testkit::content::Content;
use larder_testkit::{ImageSpec, KernelImage, KernelMount};

use crate::support::{Mounted, larder, shell, succeed};

/// The lines that a command prints about `place`, which are shown with `@` there, in any order.
#[track_caller]
fn lines(mut program: Command, words: &str, place: &str) -> Vec<String> {
    program.args(words.split(' ').map(|word| word.replace('@', place)));
    let said = succeed(&mut program).replace(place, "@").replace("@/\n", "@\n");
    // `btrfs subvolume find-new` has no room for this item, and shows zeros.
    let is_kept = |line: &&str| !line.ends_with(" links/symlink-long");
    let mut lines: Vec<String> = said.lines().filter(is_kept).map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn on_images_and_mounts_it_is_the_same() {
    let image = KernelImage::build(&ImageSpec::new("accounting"), &Content::new(7));
    let questions = [
        "filesystem du --raw @/",
        "filesystem du -s @/ @/data @/subvolumes/first",
        "subvolume find-new @/subvolumes/first 0",
        "subvolume find-new @/ 0",
        "inspect-internal min-dev-size @/",
    ];
    let ask = |program: &dyn Fn() -> Command, place: &str| {
        questions.map(|words| lines(program(), words, place))
    };
    let kernel = image.mount("subvolid=5");
    let expected = ask(&|| Command::new("btrfs"), &kernel.path().display().to_string());
    drop(kernel);
    let compare = |ours: &[Vec<String>], place: &str| {
        for ((words, ours), expected) in questions.iter().zip(ours).zip(&expected) {
            for (ours, expected) in ours.iter().zip(expected) {
                assert_eq!(ours, expected, "{words} on {place}");
            }
            assert_eq!(ours.len(), expected.len(), "{words} on {place}");
        }
    };
    compare(&ask(&larder, &format!("{}:", image.devices()[0].display())), "an image");
    let mut mounted = Mounted::unmounted();
    fs::copy(&image.devices()[0], mounted.image()).unwrap();
    mounted.mount(&["-o", "ro,subvolid=5"]);
    compare(&ask(&larder, &mounted.path().display().to_string()), "a mount");
    mounted.unmount();
    // Trees are read from the image.
    let without_times = |mut program: Command| {
        let said = succeed(program.args(["inspect-internal", "tree-stats"]).arg(mounted.image()));
        said.lines().filter(|line| !line.contains("read time")).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(without_times(larder()), without_times(Command::new("btrfs")));
}

/// Several seeks over the same distance and over others, in several levels.
#[test]
fn scattered_trees_have_the_same_statistics() {
    let image = KernelImage::empty(&ImageSpec::new("scattered"));
    let mount = image.mount("");
    shell(
        mount.path(),
        "for i in {1..300}; do mkdir $i; echo > $i/f; echo $i > $i/g; done; sync -f .
         cp -r . /dev/null 2>&1 || true; cp -r [1-9]? copy-$$ 2> /dev/null || true
         mkdir copy; cp -r 1* copy; sync -f .; rm -r 1[0-9]*; sync -f .; cp -r copy copy2; sync -f .",
    );
    drop(mount);
    let device = &image.devices()[0];
    for options in [&[][..], &["-b"]] {
        let stats = |mut program: Command| {
            let program =
                program.args(["inspect-internal", "tree-stats"]).args(options).arg(device);
            let said = succeed(program);
            said.lines().filter(|line| !line.contains("read time")).collect::<Vec<_>>().join("\n")
        };
        let expected = stats(Command::new("btrfs"));
        assert!(
            expected.contains("Seek histogram") && expected.contains("avg fanout"),
            "{expected}"
        );
        assert_eq!(stats(larder()), expected);
    }
}

/// Block groups that would move, and gaps between others that they would move to.
#[test]
fn the_least_size_of_a_device_is_the_same() {
    let image = KernelImage::empty(&ImageSpec::new("gaps").devices(&[4 << 30]));
    let mount = image.mount("");
    let size = |mut program: Command| {
        succeed(program.args(["inspect-internal", "min-dev-size"]).arg(mount.path()))
    };
    for line in [
        "for i in 1 2 3 4 5 6; do fallocate -l 400M f$i; sync -f .; done",
        "rm f2 f4; sync -f .; btrfs -q balance start -dusage=0 .",
        "rm f1; btrfs -q balance start -dusage=10 .",
        "rm f5 f6; btrfs -q balance start -dusage=10 -musage=100 .",
    ] {
        shell(mount.path(), line);
        let expected = size(Command::new("btrfs"));
        assert_eq!(size(larder()), expected, "after {line}");
    }
}

#[test]
fn results_are_json_too() {
    let mut mounted = Mounted::new();
    let at = |path: &str| mounted.join(path).display().to_string();
    mounted.shell("mkdir d; head -c 1M /dev/urandom > d/one; echo tiny > d/inline");
    succeed(larder().args(["reflink", &at("d/one"), &at("d/two")]));
    succeed(larder().args(["-q", "filesystem", "mkswapfile", "-s", "1M", &at("swap")]));
    mounted.unmount();
    let image = mounted.image().display().to_string();
    let json = |words: &str| -> serde_json::Value {
        let words = words.split(' ').map(|word| word.replace('@', &image));
        let said = succeed(larder().args(["--format", "json"]).args(words));
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
    };
    let sizes = json("filesystem du @:/d");
    let last = &sizes["filesystem-du"][3];
    assert_eq!((&last["total"], &last["exclusive"]), (&"2097152".into(), &"0".into()), "{sizes}");
    assert_eq!(last["set-shared"], "1048576");
    assert_eq!(sizes["filesystem-du"][0]["set-shared"], serde_json::Value::Null);
    let found = json("subvolume find-new @:/ 0");
    assert_eq!(found["subvolume-find-new"][0]["path"], "d/one", "{found}");
    assert_eq!(found["subvolume-find-new"][1]["flags"], "INLINE", "{found}");
    assert!(found["transid-marker"].is_u64());
    let found = json("subvolume find-new @:/ 999999");
    assert_eq!(found["subvolume-find-new"].as_array().map(Vec::len), Some(0));
    let place = &json("inspect map-swapfile @:/swap")["map-swapfile"][0]["physical-start"];
    assert!(place.as_u64().unwrap() >= 1 << 20);
    assert!(json("inspect min-dev-size @")["min-dev-size"][0]["min-dev-size"].is_u64());
    let trees = json("inspect tree-stats @");
    assert_eq!(trees["tree-stats"][3]["tree"], "fs");
    assert!(trees["tree-stats"][3]["nodes-by-level"][0].is_u64());
}

/// A swapfile has the header of mkswap(8), is one for the kernel, and lies where both programs say.
fn check_swapfile(kernel: &Path, name: &str, len_bytes: u64) {
    let path = kernel.join(name);
    assert_eq!(fs::metadata(&path).unwrap().len(), len_bytes);
    shell(kernel, &format!("swapon {name}; swapoff {name}; test $(stat -c %a {name}) = 600"));
    let place = |mut program: Command| {
        succeed(program.args(["inspect-internal", "map-swapfile"]).arg(&path))
    };
    assert_eq!(place(larder()), place(Command::new("btrfs")));
    let resume = |mut program: Command| {
        succeed(program.args(["inspect-internal", "map-swapfile", "-r"]).arg(&path))
    };
    assert_eq!(resume(larder()), resume(Command::new("btrfs")));
}

#[test]
fn swapfiles() {
    let mut mounted = Mounted::with_size("512M");
    let make = |options: &str, path: &str| {
        let mut mkswapfile = larder();
        mkswapfile.args(["filesystem", "mkswapfile"]).args(options.split(' ')).arg(path);
        mkswapfile.output().expect("it starts")
    };
    let point = mounted.path().display().to_string();
    let made = make("-s 10m -U 00000000-0000-0000-0000-000000000007", &format!("{point}/one"));
    let said = String::from_utf8_lossy(&made.stdout).into_owned();
    assert_eq!(said, format!("create swapfile {point}/one size 10.00MiB (10485760)\n"));
    let before = succeed(larder().args(["inspect", "map-swapfile", &format!("{point}/one")]));
    mounted.shell("fallocate -l 2M plain; truncate -s 2M hole; chattr +C . ; truncate -s 2M nocow");
    for (options, path, expected) in [
        ("-s 39k", "small", "40 KiB at least"),
        ("-s 10m", "one", "File exists"),
        ("-s 2G", "large", "No space left on device"),
        ("-U x", "uuid", "'x' is not a uuid"),
    ] {
        let refused = make(options, &format!("{point}/{path}"));
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains(expected), "{said}");
    }
    for (path, expected) in
        [("plain", "not NOCOW"), ("nocow", "with holes"), ("", "not a regular file")]
    {
        let mut command = larder();
        command.args(["inspect", "map-swapfile", &format!("{point}/{path}")]);
        let said = String::from_utf8_lossy(&command.output().unwrap().stderr).into_owned();
        assert!(said.contains(expected), "{path}: {said}");
    }
    mounted.unmount();
    let image = mounted.image().display().to_string();
    assert!(make("-s 41001 -U clear", &format!("{image}:/two")).status.success());
    assert!(!make("-s 2G", &format!("{image}:/large")).status.success());
    assert_eq!(
        succeed(larder().args(["inspect", "map-swapfile", &format!("{image}:/one")])),
        before
    );
    mounted.check();
    let kernel = KernelMount::open(&[mounted.image()], "subvolid=5");
    check_swapfile(kernel.path(), "one", 10 << 20);
    check_swapfile(kernel.path(), "two", 40 << 10);
    assert_eq!(shell(kernel.path(), "ls"), "hole\nnocow\none\nplain\ntwo\n", "no others are left");
    let uuid = shell(kernel.path(), "blkid -p -o value -s UUID one");
    assert_eq!(uuid.trim(), "00000000-0000-0000-0000-000000000007");
}
