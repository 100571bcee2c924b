//! `--format json`: what the text says is said, and every command either writes it or has a reason.
//!
//! Each case makes the text of a command from its JSON, and compares it with what `btrfs` prints on
//! a mount, or larder itself on an image.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use larder_testkit::{Content, ImageSpec, KernelImage, KernelMount, Quota, Scratch};
use serde_json::Value;

use crate::options::{commands, refused_format};
use crate::support::{larder, succeed};

/// A file system where things lie, as a user names it.
struct Place<'a> {
    /// The mount; otherwise an image is meant.
    mount: Option<&'a Path>,
    image: &'a Path,
}

impl Place<'_> {
    /// A command line, in which `@` stands for the place.
    fn line(&self, words: &str) -> Vec<String> {
        let place = |word: &str| match self.mount {
            Some(mount) => word.replace('@', &mount.display().to_string()),
            None => {
                let image = self.image.display().to_string();
                word.replace("@/", &format!("{image}:/")).replace('@', &image)
            }
        };
        words.split(' ').map(place).collect()
    }

    fn json(&self, words: &str) -> Value {
        parsed(self.line(words), words)
    }

    fn text(&self, words: &str) -> String {
        let line = self.line(words);
        // What btrfs finds in subvolumes that it cannot open is no path.
        let asks_btrfs = self.mount.is_some() && !words.contains("logical-resolve");
        let output = if asks_btrfs {
            Command::new("btrfs").args(line).output().expect("btrfs starts")
        } else {
            larder(line)
        };
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words}: {said}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

#[track_caller]
fn parsed<S: AsRef<OsStr>>(line: impl IntoIterator<Item = S>, shown: &str) -> Value {
    let line = line.into_iter().map(|word| word.as_ref().to_owned());
    let output = larder(["--format", "json"].into_iter().map(OsString::from).chain(line));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{shown}: {said}");
    let text = String::from_utf8(output.stdout).expect("JSON is UTF-8");
    let value: Value =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(value["__header"]["version"], "1", "{shown}");
    value
}

fn list<'a>(value: &'a Value, name: &str) -> &'a Vec<Value> {
    value[name].as_array().unwrap_or_else(|| panic!("{name} is no list: {value}"))
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no number: {value}"))
}

/// The bytes of a name or value.
fn bytes(value: &Value) -> Vec<u8> {
    match value {
        Value::String(text) => text.as_bytes().to_vec(),
        Value::Array(bytes) => bytes.iter().map(|byte| number(byte) as u8).collect(),
        _ => panic!("no name: {value}"),
    }
}

fn shown(value: &Value) -> String {
    String::from_utf8_lossy(&bytes(value)).into_owned()
}

fn or_dash(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::Number(number) => number.to_string(),
        other => shown(other),
    }
}

fn lines(lines: impl IntoIterator<Item = String>) -> String {
    lines.into_iter().map(|line| line + "\n").collect()
}

/// A command on a file system that may be mounted, and its text.
struct Case {
    command: &'static str,
    /// What follows the command.
    arguments: &'static str,
    /// Options that the text needs to show all.
    options: &'static str,
    text: fn(&Value) -> String,
}

const fn case(
    command: &'static str,
    options: &'static str,
    arguments: &'static str,
    text: fn(&Value) -> String,
) -> Case {
    Case { command, arguments, options, text }
}

const CASES: &[Case] = &[
    case("subvolume list", "-p -c -u -q -R", "@", subvolume_list),
    case("subvolume list", "-p -c -u -q -R", "-o --sort=-path @/subvolumes/first", subvolume_list),
    case("subvolume list", "-p -c -u -q -R", "-a @/subvolumes/first", subvolume_list),
    case("subvolume show", "--raw", "@", subvolume_show),
    case("subvolume show", "--raw", "@/subvolumes/first", subvolume_show),
    case("subvolume show", "--raw", "@/subvolumes/writable", subvolume_show),
    case("subvolume get-default", "", "@", get_default),
    case("filesystem label", "", "@", |value| shown(&value["filesystem-label"]["label"]) + "\n"),
    case("filesystem show", "--raw", "@", filesystem_show),
    case("filesystem usage", "--raw", "@", filesystem_usage),
    case("device usage", "--raw", "@", device_usage),
    case("property get", "", "@", property_get),
    case("property get", "", "@/subvolumes/read-only ro", property_get),
    case("property get", "", "@/xattrs/compression-zstd", property_get),
    case("property list", "", "@", property_list),
    case("inspect-internal rootid", "", "@/subvolumes/first/plain", |value| {
        format!("{}\n", number(&value["rootid"]["rootid"]))
    }),
    case("inspect-internal subvolid-resolve", "", "257 @", |value| {
        shown(&value["subvolid-resolve"]["path"]) + "\n"
    }),
    case("inspect-internal inode-resolve", "", "257 @/subvolumes/first", |value| {
        lines(list(&value["inode-resolve"], "paths").iter().map(shown))
    }),
    case("inspect-internal logical-resolve", "", "ADDRESS @", |value| {
        let paths = list(value, "logical-resolve").iter().flat_map(|part| list(part, "paths"));
        lines(paths.map(shown))
    }),
    case("inspect-internal logical-resolve", "-P", "ADDRESS @", |value| {
        lines(list(value, "logical-resolve").iter().map(|part| {
            let [inode, offset, root] = ["inode", "offset", "root"].map(|name| number(&part[name]));
            format!("inode {inode} offset {offset} root {root}")
        }))
    }),
    case("subvolume find-new", "", "@/subvolumes/first 9", find_new),
];

fn subvolume_list(value: &Value) -> String {
    lines(list(value, "subvolume-list").iter().map(|subvolume| {
        let [id, generation, cgeneration, parent, top] =
            ["id", "generation", "cgeneration", "parent", "top_level"]
                .map(|name| number(&subvolume[name]));
        let [parent_uuid, received, uuid] =
            ["parent_uuid", "received_uuid", "uuid"].map(|name| or_dash(&subvolume[name]));
        let path = shown(&subvolume["path"]);
        format!(
            "ID {id} gen {generation} cgen {cgeneration} parent {parent} top level {top} \
             parent_uuid {parent_uuid:<36} received_uuid {received:<36} uuid {uuid:<36} path {path}"
        )
    }))
}

fn subvolume_show(value: &Value) -> String {
    let value = &value["subvolume-show"];
    let field = |name: &str| or_dash(&value[name]);
    let flags: Vec<_> = list(value, "flags").iter().map(shown).collect();
    let flags = if flags.is_empty() { "-".into() } else { flags.join("|") };
    let mut text = vec![format!("{}\n", field("path"))];
    for (label, value) in [
        ("Name: \t\t\t", field("name")),
        ("UUID: \t\t\t", field("uuid")),
        ("Parent UUID: \t\t", field("parent_uuid")),
        ("Received UUID: \t\t", field("received_uuid")),
        ("Creation time: \t\t", field("otime")),
        ("Subvolume ID: \t\t", field("id")),
        ("Generation: \t\t", field("generation")),
        ("Gen at creation: \t", field("cgeneration")),
        ("Parent ID: \t\t", field("parent")),
        ("Top level ID: \t\t", field("top_level")),
        ("Flags: \t\t\t", flags),
        ("Send transid: \t\t", field("stransid")),
        ("Send time: \t\t", field("stime")),
        ("Receive transid: \t", field("rtransid")),
        ("Receive time: \t\t", field("rtime")),
        ("Snapshot(s):", String::new()),
    ] {
        text.push(format!("\t{label}{value}\n"));
    }
    text.push(lines(
        list(value, "snapshots").iter().map(|path| format!("\t\t\t\t{}", shown(path))),
    ));
    let qgroup = &value["qgroup"];
    let usage = |name: &str| number(&qgroup["usage"][name]);
    let limit = |name: &str| or_dash(&qgroup["limit"][name]);
    text.push(format!("\tQuota group:\t\t{}\n", shown(&qgroup["qgroupid"])));
    text.push(format!("\t  Limit referenced:\t{}\n", limit("referenced")));
    text.push(format!("\t  Limit exclusive:\t{}\n", limit("exclusive")));
    text.push(format!("\t  Usage referenced:\t{}\n", usage("referenced")));
    text.push(format!("\t  Usage exclusive:\t{}\n", usage("exclusive")));
    text.concat()
}

fn get_default(value: &Value) -> String {
    let subvolume = &value["subvolume-get-default"];
    let [id, generation, top] =
        ["id", "generation", "top_level"].map(|name| number(&subvolume[name]));
    match shown(&subvolume["path"]) {
        root if root == "/" => format!("ID {id} (FS_TREE)\n"),
        path => format!("ID {id} gen {generation} top level {top} path {path}\n"),
    }
}

fn filesystem_show(value: &Value) -> String {
    let filesystem = &list(value, "filesystem-list")[0];
    let (label, uuid) = (shown(&filesystem["label"]), shown(&filesystem["uuid"]));
    let [total, used] = ["total_devices", "used"].map(|name| number(&filesystem[name]));
    let mut text = vec![format!("Label: '{label}'  uuid: {uuid}\n")];
    text.push(format!("\tTotal devices {total} FS bytes used {used}\n"));
    for device in list(filesystem, "device-list") {
        let [id, size, used] = ["devid", "size", "used"].map(|name| number(&device[name]));
        let path = shown(&device["path"]);
        text.push(format!("\tdevid {id:>4} size {size} used {used} path {path}\n"));
    }
    text.push("\n".into());
    text.concat()
}

fn filesystem_usage(value: &Value) -> String {
    let usage = &list(value, "filesystem-usage")[0];
    let of = |name: &str| format!("{:>18}", number(&usage[name]));
    let ratio = |name: &str| format!("{:>18}", format!("{:.2}", usage[name].as_f64().unwrap()));
    let several = if usage["multiple-profiles"].as_bool().unwrap() { "yes" } else { "no" };
    let reserve = match &usage["global-reserve"] {
        Value::Null => String::new(),
        reserve => {
            format!("{:>18}\t(used: {})", number(&reserve["total"]), number(&reserve["used"]))
        }
    };
    let mut text = vec!["Overall:\n".to_owned()];
    for (label, value) in [
        ("Device size:\t\t", of("device-size")),
        ("Device allocated:\t\t", of("device-allocated")),
        ("Device unallocated:\t\t", of("device-unallocated")),
        ("Device missing:\t\t", of("device-missing")),
        ("Device slack:\t\t", of("device-slack")),
        ("Used:\t\t\t", of("used")),
        (
            "Free (estimated):\t\t",
            format!("{}\t(min: {})", of("free-estimated"), number(&usage["free-min"])),
        ),
        ("Free (statfs, df):\t\t", of("free-statfs")),
        ("Data ratio:\t\t\t", ratio("data-ratio")),
        ("Metadata ratio:\t\t", ratio("metadata-ratio")),
        ("Global reserve:\t\t", reserve),
        ("Multiple profiles:\t\t", format!("{several:>18}")),
    ] {
        if !value.is_empty() {
            text.push(format!("    {label}{value}\n"));
        }
    }
    let devices = list(usage, "devices");
    let path = |id: &Value| {
        let device = devices.iter().find(|device| device["devid"] == *id).expect("it is listed");
        shown(&device["path"])
    };
    for group in list(usage, "block-groups") {
        let (kind, profile) = (shown(&group["bg-type"]), shown(&group["bg-profile"]));
        let [total, used] = ["total", "used"].map(|name| number(&group[name]));
        let percent = 100.0 * used as f64 / total as f64;
        text.push(format!("\n{kind},{profile}: Size:{total}, Used:{used} ({percent:.2}%)\n"));
        for part in list(group, "devices") {
            text.push(format!("   {}\t{:>10}\n", path(&part["devid"]), number(&part["size"])));
        }
    }
    text.push("\nUnallocated:\n".into());
    text.push(lines(devices.iter().map(|device| {
        format!("   {}\t{:>10}", shown(&device["path"]), number(&device["unallocated"]))
    })));
    text.concat()
}

fn device_usage(value: &Value) -> String {
    let mut text = Vec::new();
    for device in list(&list(value, "device-usage")[0], "devices") {
        let [id, size, slack, unallocated] =
            ["devid", "size", "slack", "unallocated"].map(|name| number(&device[name]));
        let groups = list(device, "block-groups").iter().map(|group| {
            let kind = format!("{},{}", shown(&group["bg-type"]), shown(&group["bg-profile"]));
            (kind, number(&group["size"]))
        });
        let first = [("Device size".to_owned(), size + slack), ("Device slack".to_owned(), slack)];
        let last = [("Unallocated".to_owned(), unallocated)];
        text.push(format!("{}, ID: {id}\n", shown(&device["path"])));
        text.push(lines(first.into_iter().chain(groups).chain(last).map(|(label, bytes)| {
            let label = format!("{label}:");
            format!("   {label:<22}{bytes:>10}")
        })));
        text.push("\n".into());
    }
    text.concat()
}

fn property_get(value: &Value) -> String {
    lines(list(value, "property-get").iter().map(|property| {
        let value = match &property["value"] {
            Value::Bool(flag) => flag.to_string(),
            value => shown(value),
        };
        format!("{}={value}", shown(&property["name"]))
    }))
}

fn property_list(value: &Value) -> String {
    lines(list(value, "property-list").iter().map(|property| {
        format!("{:<20}{}", shown(&property["name"]), shown(&property["description"]))
    }))
}

fn find_new(value: &Value) -> String {
    let parts = lines(list(value, "subvolume-find-new").iter().map(|part| {
        let [inode, offset, len, start, disk_offset, generation] =
            ["inode", "file-offset", "len", "disk-start", "disk-offset", "gen"]
                .map(|name| number(&part[name]));
        let (flags, path) = (shown(&part["flags"]), shown(&part["path"]));
        format!(
            "inode {inode} file offset {offset} len {len} disk start {start} \
             offset {disk_offset} gen {generation} flags {flags} {path}"
        )
    }));
    format!("{parts}transid marker was {}\n", number(&value["transid-marker"]))
}

/// Commands whose JSON other tests compare.
const ELSEWHERE: &[&str] = &[
    // images/report.rs
    "report",
    // images/commands.rs
    "check",
    "filesystem df",
    // mount/accounting.rs
    "filesystem du",
    "inspect map-swapfile",
    "inspect min-dev-size",
    "inspect tree-stats",
    // mount/objects.rs
    "objects delete",
    "objects gc",
    "objects info",
    "objects key list",
    "objects states",
    // mount/streams.rs
    "streams list",
    "streams prune",
    "streams verify",
    // mount/reports.rs
    "device stats",
    "health",
    // images/rescue.rs
    "rescue find-roots",
    // images/repair.rs
    "rescue chunk-recover",
    "rescue clear-space-cache",
    "rescue clear-uuid-tree",
    "rescue fix-data-checksum",
    "rescue fix-device-size",
    "rescue super-recover",
    "rescue zero-log",
    // images/balance.rs
    "balance resume",
    "balance start",
    "balance status",
    // images/scrub.rs, mount/scrub.rs
    "scrub limit",
    "scrub resume",
    "scrub start",
    "scrub status",
    // images/replace.rs
    "device replace status",
    "filesystem redundancy",
    "replace status",
    // below
    "du",
    "getfattr",
    "inspect dump-super",
    "ls",
    "receive",
    "stat",
    "version",
];

#[test]
fn every_command_writes_it_or_has_a_reason() {
    let cases = CASES.iter().map(|case| case.command.replace("inspect-internal", "inspect"));
    let tested: BTreeSet<String> =
        cases.chain(ELSEWHERE.iter().map(|command| (*command).to_owned())).collect();
    let writing = commands().into_iter().filter(|path| refused_format(path).is_none());
    assert_eq!(writing.collect::<BTreeSet<_>>(), tested);
    let unsupported = larder(["--format", "json", "inspect", "dump-tree", "nowhere"]);
    let said = String::from_utf8_lossy(&unsupported.stderr).into_owned();
    assert!(said.contains("output format json is unsupported for this command: a dump"), "{said}");
}

/// A program that reads the results gets a whole document or none.
#[test]
fn what_fails_at_once_prints_no_half_of_it() {
    let image = image();
    let image = image.devices()[0].display();
    for line in [
        format!("ls {image}:/missing"),
        format!("du {image}:/missing"),
        format!("getfattr -d {image}:/missing"),
        format!("filesystem du {image}:/missing"),
        format!("subvolume find-new {image}:/missing 0"),
        format!("inspect logical-resolve 1 {image}"),
        "inspect dump-super missing".to_owned(),
    ] {
        let output = larder(["--format", "json"].into_iter().chain(line.split(' ')));
        assert_eq!(output.status.code(), Some(1), "{line}");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.is_empty() || serde_json::from_str::<Value>(&said).is_ok(), "{line}: {said}");
    }
}

fn image() -> KernelImage {
    let spec = ImageSpec::new("json").label("pantry").quota(Quota::Full);
    KernelImage::build(&spec, &Content::new(11))
}

#[test]
fn on_mounts_and_images_it_says_what_the_text_says() {
    let image = image();
    let kernel = image.mount("");
    let first = kernel.path().join("subvolumes/first");
    let limit = ["qgroup", "limit", "512M"].map(OsStr::new);
    btrfs(&[&limit[..], &[first.as_os_str()]].concat());
    drop(kernel);
    let device = &image.devices()[0];
    let address = {
        let found = Place { mount: None, image: device }.json("subvolume find-new @/ 0");
        let shared = list(&found, "subvolume-find-new").iter().find(|part| {
            number(&part["disk-start"]) > 0 && shown(&part["path"]).starts_with("sharing/")
        });
        number(&shared.expect("it has data")["disk-start"])
    };
    let mount = image.mount("ro,subvolid=5");
    let mut values = Vec::new();
    for place in [Some(mount.path()), None] {
        let place = Place { mount: place, image: device };
        let mut of_place = Vec::new();
        for Case { command, arguments, options, text } in CASES {
            let arguments = arguments.replace("ADDRESS", &address.to_string());
            let line = |options: &str| {
                [*command, options, &arguments].map(str::trim).join(" ").replace("  ", " ")
            };
            let mut value = place.json(&line(""));
            let expected = place.text(&line(options));
            // btrfs prints the time of sending otherwise.
            let known = |text: &str| -> Vec<String> {
                let known = |line: &&str| !line.contains("Send time");
                text.lines().filter(known).map(str::to_owned).collect()
            };
            let (seen, expected) = (known(&text(&value)), known(&expected));
            // Snapshots are in the order of their ids, in btrfs not.
            let sorted = |mut lines: Vec<String>| {
                lines.sort();
                lines
            };
            if *command == "subvolume show" {
                assert_eq!(sorted(seen), sorted(expected), "{}", line(options));
            } else {
                assert_eq!(seen, expected, "{}", line(options));
            }
            // Only a mount has a reserve, and leaves it out of what is free.
            if let Some(Value::Object(usage)) = value.pointer_mut("/filesystem-usage/0") {
                usage.retain(|name, _| name != "global-reserve" && name != "free-statfs");
            }
            of_place.push((line(""), without_place(&place, &mount, &value)));
        }
        values.push(of_place);
    }
    for (mounted, image) in values[0].iter().zip(&values[1]) {
        assert_eq!(mounted, image);
    }
    drop(mount);
    let kernel = image.mount("");
    let set_default = ["subvolume", "set-default", "257"].map(OsStr::new);
    btrfs(&[&set_default[..], &[kernel.path().as_os_str()]].concat());
    drop(kernel);
    let place = Place { mount: None, image: device };
    let value = place.json("subvolume get-default @");
    assert_eq!(get_default(&value), place.text("subvolume get-default @"));
}

fn btrfs(line: &[&OsStr]) {
    larder_testkit::command::run("btrfs", line).unwrap_or_else(|error| panic!("{error}"));
}

/// A result without the names of the place and of its device.
fn without_place(place: &Place<'_>, mount: &KernelMount, value: &Value) -> String {
    let device = mount.devices().next().expect("a device").display().to_string();
    let image = place.image.display().to_string();
    let point = mount.path().display().to_string();
    let text = value.to_string().replace(&format!("{point}/"), "@/").replace(&point, "@");
    text.replace(&device, "@").replace(&format!("{image}:/"), "@/").replace(&image, "@")
}

/// The paths below a directory, in the same file system.
fn walk(directory: &Path, found: &mut BTreeSet<PathBuf>) {
    for entry in fs::read_dir(directory).expect("it is a directory") {
        let path = entry.expect("it can be read").path();
        if path.symlink_metadata().expect("it is there").is_dir() {
            walk(&path, found);
        }
        found.insert(path);
    }
}

fn path_of(value: &Value) -> PathBuf {
    OsString::from_vec(bytes(value)).into()
}

/// `2026-11-20 09:21:37.000000001 +0000`, as GNU stat prints it.
fn time_of(path: &Path, format: &str) -> String {
    let mut stat = Command::new("stat");
    let output = stat.args(["-c", format]).arg(path).output().expect("stat starts");
    String::from_utf8(output.stdout).expect("it is text").trim_end().to_owned()
}

#[test]
fn files_are_as_the_kernel_shows_them() {
    let image = image();
    let device = &image.devices()[0];
    let in_image = |path: &Path| {
        OsString::from_vec(
            [device.as_os_str().as_bytes(), b":/", path.as_os_str().as_bytes()].concat(),
        )
    };
    let listed = parsed([OsStr::new("ls"), OsStr::new("-aR"), device.as_os_str()], "ls");
    let mount = image.mount("ro,subvolid=5");
    let mut expected = BTreeSet::new();
    walk(mount.path(), &mut expected);
    let expected: BTreeSet<_> =
        expected.iter().map(|path| path.strip_prefix(mount.path()).unwrap().to_owned()).collect();
    let prefix = in_image(Path::new(""));
    let below =
        |path: &Value| -> PathBuf { path_of(path).strip_prefix(&prefix).unwrap().to_owned() };
    let seen: BTreeSet<_> = list(&listed, "ls").iter().map(|file| below(&file["path"])).collect();
    assert_eq!(seen, expected);
    assert!(list(&listed, "ls").iter().any(|file| file["path"].is_array()), "some are not UTF-8");
    for file in list(&listed, "ls") {
        let path = mount.path().join(below(&file["path"]));
        let metadata = path.symlink_metadata().unwrap();
        let [inode, nlink, mode, uid, gid, size] =
            ["inode", "nlink", "mode", "uid", "gid", "size"].map(|name| number(&file[name]));
        assert_eq!((inode, size), (metadata.ino(), metadata.size()), "{}", path.display());
        assert_eq!((nlink, mode), (metadata.nlink(), metadata.mode().into()), "{}", path.display());
        assert_eq!((uid, gid), (metadata.uid().into(), metadata.gid().into()));
        assert_eq!(number(&file["allocated"]), metadata.blocks() * 512, "{}", path.display());
        let target = fs::read_link(&path).ok();
        assert_eq!((!file["target"].is_null()).then(|| path_of(&file["target"])), target);
    }
    let sample = list(&listed, "ls").iter().filter(|file| {
        let path = below(&file["path"]);
        path.starts_with("xattrs") || path.starts_with("links") || file["path"].is_array()
    });
    for file in sample.step_by(7) {
        let inner = below(&file["path"]);
        let outer = mount.path().join(&inner);
        let operand = in_image(&inner);
        let shown = outer.display();
        let stat = parsed([OsStr::new("stat"), &operand], "stat");
        let stat = &list(&stat, "stat")[0];
        for (name, value) in file.as_object().unwrap() {
            assert_eq!(stat[name], *value, "{shown}: {name}");
        }
        for (name, format) in [("atime", "%x"), ("mtime", "%y"), ("ctime", "%z"), ("otime", "%w")] {
            assert_eq!(stat[name].as_str().unwrap(), time_of(&outer, format), "{shown}: {name}");
        }
        let names: Vec<_> = list(stat, "names").iter().map(path_of).collect();
        assert!(names.is_empty() || names.contains(&Path::new("/").join(&inner)), "{names:?}");
        let line = ["getfattr", "-h", "-m", "-"].map(OsStr::new);
        let attributes = parsed([&line[..], &[&operand]].concat(), "getfattr");
        let mut of_stat = list(stat, "xattrs").clone();
        of_stat.sort_by_key(|xattr| bytes(&xattr["name"]));
        assert_eq!(*list(&list(&attributes, "getfattr")[0], "xattrs"), of_stat);
        for xattr in of_stat {
            let name = OsString::from_vec(bytes(&xattr["name"]));
            let mut value = vec![0; 1 << 16];
            let len = rustix::fs::lgetxattr(&outer, &*name, &mut value).expect("the kernel has it");
            assert_eq!(bytes(&xattr["value"]), value[..len], "{shown}");
        }
    }
    let text = device.display();
    let sums = parsed(["du", "-b", "-a", &format!("{text}:/data")], "du");
    let lines = lines(
        list(&sums, "du")
            .iter()
            .map(|sum| format!("{}\t{}", number(&sum["size"]), shown(&sum["path"]))),
    );
    assert_eq!(lines, succeed(&format!("du -b -a {text}:/data")));
    let total = succeed(&format!("du -b -s -c {text}:/data"));
    assert!(total.ends_with(&format!("\n{}\ttotal\n", number(&sums["total"]))), "{total}");
    let sums = parsed(["du", "-s", &text.to_string()], "du");
    assert_eq!(list(&sums, "du")[0]["path"], format!("{text}:/"));
    // As text, too, a name can be given to the next command.
    assert!(succeed(&format!("ls -R {text}")).contains(&format!("\n{text}:/data:\n")));
    assert!(succeed(&format!("du {text}")).contains(&format!("\t{text}:/data\n")));
}

#[test]
fn a_superblock_has_the_fields_of_the_text() {
    let image = KernelImage::empty(&ImageSpec::new("superblock").label("pantry"));
    let device = image.devices()[0].display().to_string();
    let value = parsed(["inspect", "dump-super", "-a", &device], "dump-super");
    let copies = list(&value, "dump-super");
    let text = succeed(&format!("inspect dump-super -f {device}"));
    let field = |name: &str| {
        let line = text.lines().find(|line| line.split(['\t', ' ']).next() == Some(name));
        let line = line.unwrap_or_else(|| panic!("{name} is not in the text"));
        line.rsplit_once('\t').map(|(_, value)| value).expect("it has a value").to_owned()
    };
    let check = |prefix: &str, fields: &Value| {
        for (name, value) in fields.as_object().expect("it is an object") {
            let expected = match value {
                Value::Number(number) => number.to_string(),
                Value::String(text) => text.clone(),
                Value::Object(flags) if flags.contains_key("names") => {
                    for flag in list(value, "names") {
                        assert!(text.contains(&shown(flag)), "{flag}");
                    }
                    format!("0x{:x}", number(&value["value"]))
                }
                _ => continue,
            };
            if !["device", "offset"].contains(&name.as_str()) {
                let seen = field(&format!("{prefix}{name}"));
                let seen = seen.trim_start_matches(if name == "csum" { "0x" } else { "" });
                let seen = if name == "csum_type" {
                    seen.split(['(', ')']).nth(1).expect("its name")
                } else {
                    seen.split(" [").next().expect("a part")
                };
                assert_eq!(seen, expected, "{prefix}{name}");
            }
        }
    };
    assert_eq!(copies.len(), 2);
    check("", &copies[0]);
    check("dev_item.", &copies[0]["dev_item"]);
    for matches in [&copies[0]["csum_matches"], &copies[1]["magic_matches"]] {
        assert_eq!(*matches, true);
    }
    let chunk = &list(&copies[0], "sys_chunk_array")[0];
    let [length, stripe_len] = ["length", "stripe_len"].map(|name| number(&chunk[name]));
    let kind = shown(&chunk["type"]);
    let line = format!("\t\tlength {length} owner 2 stripe_len {stripe_len} type {kind}\n");
    assert!(text.contains(&line), "{line}{text}");
    for backup in list(&copies[0], "backup_roots") {
        let root = &backup["tree_root"];
        let [bytenr, generation, level] =
            ["bytenr", "gen", "level"].map(|name| number(&root[name]));
        let line = format!("backup_tree_root:\t{bytenr}\tgen: {generation}\tlevel: {level}\n");
        assert!(text.contains(&line), "{line}{text}");
    }
}

#[test]
fn a_stream_has_the_operations_of_the_text() {
    let image = image();
    let device = image.devices()[0].display().to_string();
    let scratch = Scratch::new();
    let stream = scratch.path().join("stream").display().to_string();
    succeed(&format!("send -q -f {stream} {device}:/subvolumes/of-everything"));
    let value = parsed(["receive", "--dump", "-f", &stream], "receive");
    let operations = list(&value, "operations");
    let text = succeed(&format!("receive --dump -f {stream}"));
    // Values of attributes may have lines of their own.
    let known: BTreeSet<String> = operations.iter().map(|each| shown(&each["op"])).collect();
    let starts = |line: &&str| known.contains(line.split(' ').next().unwrap_or_default());
    let lines: Vec<&str> = text.lines().filter(starts).collect();
    assert_eq!(operations.len(), lines.len());
    // Names in the text, where the JSON has others.
    let names = [("transid", "ctransid"), ("len", "length"), ("parent_transid", "parent_ctransid")];
    let mut compared = BTreeSet::new();
    for (operation, line) in operations.iter().zip(lines) {
        let op = shown(&operation["op"]);
        assert_eq!(Some(op.as_str()), line.split(' ').next());
        for (name, value) in line.split(' ').filter_map(|word| word.split_once('=')) {
            // A path or the value of an attribute may have the character too.
            let is_name = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
            if !is_name || op == "set_xattr" && name != "len" {
                continue;
            }
            let name = names.iter().find(|(text, _)| *text == name).map_or(name, |(_, json)| json);
            let value = value.trim_end_matches(',');
            let value = match (name, value.strip_prefix("0x")) {
                ("mode", _) if op != "fallocate" => u64::from_str_radix(value, 8).ok(),
                ("dev", Some(hex)) => u64::from_str_radix(hex, 16).ok(),
                ("name" | "dest" | "from", _) => continue,
                _ => value.parse().ok(),
            };
            match value {
                Some(value) => assert_eq!(number(&operation[name]), value, "{line}"),
                None => assert!(line.contains(&shown(&operation[name])), "{name}: {line}"),
            }
            compared.insert((op.clone(), name.to_owned()));
        }
        if op == "rename" || op == "clone" {
            let name = if op == "clone" { "from" } else { "dest" };
            assert!(bytes(&operation[name]).starts_with(b"./of-everything/"), "{line}");
        }
    }
    assert!(compared.len() > 15, "{compared:?}");
    let not_text = operations.iter().filter(|operation| operation["path"].is_array()).count();
    assert!(not_text > 100, "names of single bytes");
}

#[test]
fn versions() {
    let value = &parsed(["version"], "version")["version"];
    let text = succeed("version");
    let words = |name: &str| list(value, name).iter().map(shown).collect::<Vec<_>>().join(", ");
    for line in [
        format!("larder {}", shown(&value["version"])),
        format!("commit:      {}", shown(&value["commit"])),
        format!("target:      {}", shown(&value["target"])),
        format!("checksums:   {}", words("checksums")),
        format!("compression: {}", words("compression")),
    ] {
        assert!(text.lines().any(|seen| seen == line), "{line}: {text}");
    }
    assert_eq!(value["output-of"], "btrfs-progs v6.2");
}
