//! `larder report`: its numbers are those of the kernel and its tools, and its page is safe and
//! small.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use larder_testkit::{ImageSpec, KernelImage, Scratch, damage};
use serde_json::Value;

use crate::support::{fail, succeed};

const LARDER: &str = env!("CARGO_BIN_EXE_larder");

/// The standard output of a line in a shell in `folder`; it must succeed.
#[track_caller]
fn shell(folder: &Path, line: &str) -> String {
    let mut bash = Command::new("bash");
    let output = bash.args(["-euo", "pipefail", "-c", line]).current_dir(folder).output();
    let output = output.expect("bash starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {said}");
    String::from_utf8(output.stdout).expect("it is text")
}

#[track_caller]
fn report(image: &Path) -> Value {
    let said = succeed(&format!("report --format json {}", image.display()));
    serde_json::from_str(&said).expect("it is json")
}

#[track_caller]
fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// The place with this path.
#[track_caller]
fn place<'a>(report: &'a Value, path: &str) -> &'a Value {
    let mut places = report["places"].as_array().expect("a list").iter();
    places.find(|place| place["path"] == path).unwrap_or_else(|| panic!("{path} is no place"))
}

/// The lines of `compsize` about some paths: bytes on disk, uncompressed and referenced, by type.
fn compsize(folder: &Path, paths: &str) -> BTreeMap<String, [u64; 3]> {
    let said = shell(folder, &format!("compsize -b {paths}"));
    let rows = said.lines().filter_map(|line| {
        let [kind, _, disk, uncompressed, referenced] =
            line.split_whitespace().collect::<Vec<_>>().try_into().ok()?;
        let bytes = [disk, uncompressed, referenced].map(|word: &str| word.parse().ok());
        let [Some(disk), Some(uncompressed), Some(referenced)] = bytes else { return None };
        Some((kind.to_owned(), [disk, uncompressed, referenced]))
    });
    rows.collect()
}

/// Reflinks, snapshots that share most, little and nothing, parts of extents, every compression,
/// preallocated space, inline files, and files with several names.
const SHARED: &str = r"
    mkdir -p home/a/b media empty
    head -c 3M /dev/urandom > home/a/random
    cp --reflink=always home/a/random home/a/b/copy
    cp --reflink=always home/a/random media/copy
    head -c 2M /dev/urandom > home/a/b/two; cp --reflink=always home/a/b/two home/a/two
    head -c 1M /dev/urandom > home/a/linked; ln home/a/linked media/linked
    mkdir home/b; for i in {1..300}; do head -c 8K /dev/urandom > home/b/$i; done
    cp -r --reflink=always home/b media/b; rm home/b/2??
    fallocate -l 5M home/room
    for kind in zlib lzo zstd; do
        touch media/$kind; btrfs property set media/$kind compression $kind
        head -c 4M <(yes $kind) > media/$kind
    done
    btrfs -q subvolume create vol
    mkdir vol/many; for i in {1..1500}; do echo $i > vol/many/$i; done
    head -c 4M /dev/urandom > vol/big; head -c 1M /dev/urandom > vol/gone
    sync -f .
    for at in 1 3 5 7 9; do
        dd if=/dev/urandom of=vol/big bs=4k seek=$((at * 50)) count=2 conv=notrunc status=none
        sync -f .
    done
    for i in 1 2 3 4; do
        btrfs -q subvolume snapshot -r vol snap$i
        head -c $((i * 100))K /dev/urandom > vol/new$i; echo $i > vol/many/1; sync -f .
    done
    rm vol/gone vol/new2
    btrfs -q subvolume snapshot vol writable; mkdir writable/own; head -c 600K /dev/urandom > writable/own/data
    btrfs -q subvolume create writable/own/nested; head -c 300K /dev/urandom > writable/own/nested/data
    cp --reflink=always vol/big media/big
    btrfs -q subvolume create alone; head -c 700K /dev/urandom > alone/data
    sync -f .; btrfs quota enable .; btrfs -q quota rescan -w . > /dev/null; sync -f .
";

#[test]
fn numbers_are_those_of_the_kernel() {
    let image = KernelImage::empty(&ImageSpec::new("report").devices(&[1 << 30]));
    let mount = image.mount("noatime");
    shell(mount.path(), SHARED);
    drop(mount);
    let report = report(&image.devices()[0]);
    let mount = image.mount("ro,noatime");
    let root = mount.path();

    // Every subvolume, with its trees: what quota groups count.
    let said = shell(root, "btrfs qgroup show --raw .");
    let mut subvolumes = 0;
    for line in said.lines().filter(|line| line.starts_with("0/")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let id: u64 = words[0][2..].parse().expect("an id");
        let all = report["subvolumes"].as_array().expect("a list");
        let one = all.iter().find(|one| one["id"] == id).expect("it is listed");
        let sum =
            |first: &str, second: &str| (number(&one[first]) + number(&one[second])).to_string();
        assert_eq!(sum("disk_bytes", "tree_bytes"), words[1], "{line}");
        assert_eq!(sum("exclusive_bytes", "exclusive_tree_bytes"), words[2], "{line}");
        subvolumes += 1;
    }
    assert_eq!(subvolumes, 9);
    let states: Vec<&Value> = report["subvolumes"].as_array().unwrap().iter().collect();
    let closed = states.iter().filter(|one| one["state"] == "closed").count();
    assert!(closed >= 3, "most snapshots look as their source does: {states:?}");

    // Compression: compsize counts inline data as extents, once for each subvolume.
    let mut ours: BTreeMap<String, [u64; 3]> = BTreeMap::new();
    for row in report["compression"].as_array().expect("a list") {
        let sums = ours.entry(row["stored_as"].as_str().unwrap().to_owned()).or_default();
        let fields = if row["is_inline"] == true {
            ["referenced_bytes"; 3]
        } else {
            ["disk_bytes", "uncompressed_bytes", "referenced_bytes"]
        };
        sums.iter_mut().zip(fields).for_each(|(sum, field)| *sum += number(&row[field]));
    }
    let mut theirs = compsize(root, ".");
    let total = theirs.remove("TOTAL").expect("it has a total");
    // It counts what files refer to once for each name.
    theirs.get_mut("none").expect("some is not compressed")[2] -= 1 << 20;
    assert_eq!(ours, theirs);
    assert_eq!(ours.len(), 5);
    let inline =
        report["compression"].as_array().unwrap().iter().find(|row| row["is_inline"] == true);
    let inline = number(&inline.expect("small files are inline")["referenced_bytes"]);
    let data_bytes = number(&report["data"]["disk_bytes"]);
    assert_eq!(data_bytes, total[0] - inline);
    let space = report["space"].as_array().expect("a list").iter();
    let used: u64 =
        space.filter(|one| one["kind"] == "Data").map(|one| number(&one["used_bytes"])).sum();
    assert_eq!(data_bytes, used, "all data has a place");
    assert_eq!(number(&place(&report, "everything")["exclusive_bytes"]), data_bytes);

    // Places without inline files: what they hold, and what is left without them.
    for (path, others) in [
        ("home", "media alone vol snap* writable"),
        ("home/a", "home/b home/room media alone vol snap* writable"),
        ("home/a/b", "home/b home/room home/a/[a-z]?* media alone vol snap* writable"),
        ("home/a/random", "home/b home/room home/a/b home/a/[^r]* media alone vol snap* writable"),
        ("home/room", "home/a home/b media alone vol snap* writable"),
        ("media", "home alone vol snap* writable"),
        ("alone", "home media vol snap* writable"),
        ("vol/big", "home media alone vol/[^b]* snap* writable"),
        ("writable/own", "home media alone vol snap* writable/[^o]*"),
        ("writable/own/nested", "home media alone vol snap* writable/[^o]* writable/own/data"),
    ] {
        let place = place(&report, &format!("/{path}"));
        let here = compsize(root, path)["TOTAL"];
        assert_eq!(number(&place["disk_bytes"]), here[0], "{path}");
        let rest = compsize(root, others)["TOTAL"][0];
        assert_eq!(number(&place["exclusive_bytes"]), total[0] - rest, "{path}");
        // The kernel's own view of sharing. Files with two names count where the first is.
        if path != "media" {
            let du = shell(root, &format!("btrfs filesystem du --raw -s {path}"));
            let words: Vec<&str> = du.lines().last().expect("a line").split_whitespace().collect();
            assert_eq!(number(&place["file_bytes"]).to_string(), words[0], "{path}");
            assert_eq!(number(&place["unshared_file_bytes"]).to_string(), words[1], "{path}");
        }
    }
    // Another command that counts the same, with more extents than it asks for one by one.
    let lines = |said: String| {
        let mut lines: Vec<String> = said.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let device = image.devices()[0].display().to_string();
    let ours =
        succeed(&format!("filesystem du --raw {device}:/")).replace(&format!("{device}:/"), "./");
    let theirs = shell(root, "btrfs filesystem du --raw ./").replace("  .\n", "  ./\n");
    assert_eq!(lines(ours), lines(theirs));

    assert_eq!(place(&report, "/home/b")["files"], 200);
    assert_eq!(place(&report, "/vol/big")["files"], 1);
    let nested = place(&report, "/writable/own/nested");
    let above = &report["places"][number(&nested["parent"]) as usize];
    assert_eq!(above["path"], "/writable/own");

    let most = &report["fragmentation"]["most"][0];
    assert!(most["path"].as_str().expect("it has a name").ends_with("big"), "{most}");
    let filefrag = shell(root, "filefrag vol/big");
    assert_eq!(filefrag.trim(), format!("vol/big: {} extents found", most["fragments"]));
}

/// Checks that a page is whole, loads nothing, and keeps text where it belongs. Prints what is in
/// elements named `bdi`, and the lengths of tables.
const PARSER: &str = r#"
import html.parser, json, sys
class Page(html.parser.HTMLParser):
    void = {"meta", "br"}
    def __init__(self):
        super().__init__()
        self.open, self.names, self.data, self.ids = [], [], "", set()
    def handle_starttag(self, tag, attributes):
        allowed = {"html", "head", "meta", "title", "style", "body", "header", "main", "footer", "h1",
            "h2", "h3", "p", "bdi", "dl", "div", "dt", "dd", "b", "section", "span", "nav", "noscript",
            "script", "details", "summary", "table", "caption", "thead", "tbody", "tr", "th", "td",
            "svg", "g", "rect", "code"}
        assert tag in allowed, tag
        for name, value in attributes:
            assert name not in ("src", "href", "onload", "onerror", "onclick"), name
            if name == "id":
                assert value not in self.ids, value
                self.ids.add(value)
        if tag not in self.void:
            self.open.append((tag, dict(attributes)))
            if tag == "bdi":
                self.names.append("")
    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag, tag
    def handle_data(self, data):
        if self.open and self.open[-1][0] == "bdi":
            self.names[-1] += data
        if self.open and self.open[-1][1].get("type") == "application/json":
            self.data += data
page = Page()
text = open(sys.argv[1], encoding="utf-8").read()
assert "http" not in text.replace("http-equiv", ""), "it loads nothing"
page.feed(text)
page.close()
assert not page.open, page.open
print(json.dumps({"names": page.names, "places": json.loads(page.data)}))
"#;

#[test]
fn a_page_is_whole_small_and_safe() {
    let scratch = Scratch::new();
    let content = scratch.path().join("content");
    fs::create_dir_all(content.join("many")).expect("it is made");
    let evil = [
        &b"<img src=x onerror=alert(1)>"[..],
        b"</script><script>alert(1)<!--",
        b"a & \"b\" 'c'",
        b"not utf-8: \xff\xc3(",
        b"line\nback\\slash",
        "turned \u{202e}gpj".as_bytes(),
    ];
    let shown = [
        "<img src=x onerror=alert(1)>",
        "</script><script>alert(1)<!--",
        "a & \"b\" 'c'",
        "not utf-8: \\xff\\xc3(",
        "line\\x0aback\\\\slash",
        "turned \\u{202e}gpj",
    ];
    for name in evil {
        // A slash cannot be in a name: there it is a directory of that name.
        let path = content.join(OsStr::from_bytes(name));
        fs::create_dir_all(path.parent().expect("one is above")).expect("it is made");
        fs::write(path, vec![1; 1 << 20]).expect("it is written");
    }
    // More than a page lists.
    for number in 0..2100 {
        fs::write(content.join(format!("many/{number}")), [2; 5000]).expect("it is written");
    }
    let image = scratch.path().join("image");
    let page = scratch.path().join("page.html");
    succeed(&format!("mkfs -q -b 1G --rootdir {} {}", content.display(), image.display()));
    succeed(&format!("report -o {} {}", page.display(), image.display()));
    let text = fs::read(&page).expect("it was written");
    assert!(text.len() < 1 << 20, "{} bytes", text.len());
    let mut parser = Command::new("/usr/bin/python3");
    let parsed = parser.args(["-c", PARSER]).arg(&page).output().expect("python starts");
    assert!(parsed.status.success(), "{}", String::from_utf8_lossy(&parsed.stderr));
    let parsed: Value = serde_json::from_slice(&parsed.stdout).expect("it is json");
    let names: Vec<&str> =
        parsed["names"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    for name in shown {
        assert!(names.iter().any(|found| *found == format!("/{name}")), "{name}: {names:?}");
        let rows = parsed["places"].as_array().expect("a list");
        let last = name.rsplit('/').next();
        assert!(rows.iter().any(|row| row[2].as_str() == last), "{name}");
    }
    let json = report(&image);
    let places = json["places"].as_array().expect("a list");
    assert_eq!(places.len(), 2000);
    let many = place(&json, "/many");
    let listed = places.iter().filter(|one| one["path"].as_str().unwrap().starts_with("/many/"));
    let listed = listed.count() as u64;
    let rest = number(&many["others"]["disk_bytes"]) + number(&many["loose_files"]["disk_bytes"]);
    assert_eq!(number(&many["disk_bytes"]), 2100 * 8192);
    assert_eq!(rest, (2100 - listed) * 8192, "{many}");
}

#[test]
fn findings_name_files_and_other_operands_are_refused() {
    let scratch = Scratch::new();
    let content = scratch.path().join("content");
    fs::create_dir(&content).expect("it is made");
    let pattern: Vec<u8> = (0..16384_u32).flat_map(|at| (at ^ 0x5eed_5eed).to_le_bytes()).collect();
    fs::write(content.join("damaged <i>"), &pattern).expect("it is written");
    let image = scratch.path().join("image");
    succeed(&format!("mkfs -q -b 256M --rootdir {} {}", content.display(), image.display()));
    let bytes = fs::read(&image).expect("it is there");
    let at =
        bytes.windows(4096).position(|window| window == &pattern[..4096]).expect("it is in it");
    damage::invert(&image, at as u64..at as u64 + 1).expect("it is changed");
    let sound = succeed(&format!("report --check {}", image.display()));
    assert!(sound.contains("A check of all trees found nothing."), "{sound}");
    let page = succeed(&format!("report --check-data {}", image.display()));
    assert!(page.contains("<bdi>/damaged &lt;i&gt;</bdi>"), "{page}");
    let json = succeed(&format!("--format json report --check-data {}", image.display()));
    let json: Value = serde_json::from_str(&json).expect("it is json");
    assert_eq!(json["check"]["kinds"][0]["findings"][0]["files"][0]["path"], "/damaged <i>");
    let refused = fail(&format!("report {}", scratch.path().display()));
    assert!(refused.contains("name an image file or a block device"), "{refused}");
    let refused = fail(&format!("report {}:/damaged", image.display()));
    assert!(refused.contains("leave out :/damaged"), "{refused}");
    let image = image.display();
    let refused = fail(&format!("report -o {image} {image}"));
    assert!(refused.contains("name another file for the report"), "{refused}");
    let page = scratch.path().join("page");
    let refused = fail(&format!("report -o {0} {0}-missing", page.display()));
    assert!(refused.contains("page-missing: No such file or directory"), "{refused}");
    assert!(!page.exists(), "it was not written");
    succeed(&format!("check {image}"));
}

/// Fills a small tmpfs except for one page of memory. The tmpfs goes when the shell ends.
const ON_A_FULL_DISK: &str = r#"
unshare --mount bash -euo pipefail -c '
    mkdir full && mount -t tmpfs -o size=64k tmpfs full
    echo old >full/old
    head -c 48k /dev/zero >full/other
    for name in new old; do
        "$0" report -o "full/$name" image 2>said && exit 1
        grep -qx "ERROR: full/$name: No space left on device.*" said
    done
    [ "$(echo full/*)" = "full/old full/other" ] && [ "$(cat full/old)" = old ]
' "$LARDER"
"#;

#[test]
fn a_full_disk_has_no_part_of_a_report() {
    let scratch = Scratch::new();
    let folder = scratch.path();
    succeed(&format!("mkfs -q -b 256M {}", folder.join("image").display()));
    let line = format!("LARDER={}; {ON_A_FULL_DISK}", env!("CARGO_BIN_EXE_larder"));
    shell(folder, &line);
}

#[test]
fn a_dash_is_standard_output() {
    let scratch = Scratch::new();
    let image = scratch.path().join("image");
    succeed(&format!("mkfs -q -b 256M {}", image.display()));
    let page = succeed(&format!("report -o - {}", image.display()));
    assert!(page.starts_with("<!"), "{page}");
    // A longer file becomes as short as the report.
    let file = scratch.path().join("page");
    fs::write(&file, vec![b'x'; 1 << 20]).expect("it is written");
    succeed(&format!("report -o {} {}", file.display(), image.display()));
    assert_eq!(fs::read(&file).expect("it is there").len(), page.len());
}

/// The script draws the map, and a click opens a directory in it.
#[test]
#[ignore = "needs a browser, which is a large download"]
fn a_browser_shows_the_map() {
    let scratch = Scratch::new();
    let content = scratch.path().join("content");
    for (name, len_bytes) in [("one/a", 300_000), ("one/b", 200_000), ("two/c", 400_000)] {
        let path = content.join(name);
        fs::create_dir_all(path.parent().expect("one is above")).expect("it is made");
        fs::write(path, vec![3; len_bytes]).expect("it is written");
    }
    let image = scratch.path().join("image");
    succeed(&format!("mkfs -q -b 256M --rootdir {} {}", content.display(), image.display()));
    let page = succeed(&format!("report {}", image.display()));
    let click = r#"<script>document.querySelector("[title^='/one: ']").click()</script></body>"#;
    let path = scratch.path().join("page.html");
    fs::write(&path, page.replace("</body>", click)).expect("it is written");
    let mut browser = Command::new("chromium");
    browser.args(["--headless", "--no-sandbox", "--disable-gpu", "--window-size=390,844"]);
    browser.args(["--virtual-time-budget=2000", "--dump-dom"]).arg(&path);
    let shown = browser.env("HOME", scratch.path()).output().expect("chromium starts");
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    let trail = shown.split("<nav").nth(1).and_then(|rest| rest.split("</nav>").next());
    let trail = trail.unwrap_or_else(|| panic!("no map: {shown}"));
    for name in [">everything<", ">/<", " aria-current=\"true\">one<"] {
        assert!(trail.contains(name), "{name}: {trail}");
    }
    let tiles: Vec<&str> = shown.split("<div class=\"tile\"").skip(1).collect();
    assert_eq!(tiles.len(), 2, "{shown}");
    assert!(
        tiles[0].contains("title=\"/one/a: 296.00KiB on disk, 296.00KiB alone here"),
        "{}",
        tiles[0]
    );
}

/// Text says what deleting each thing frees: the numbers of the JSON, the largest first.
#[test]
fn text_says_what_can_be_freed() {
    let image = KernelImage::empty(&ImageSpec::new("report-text").devices(&[1 << 30]));
    let mount = image.mount("noatime");
    shell(mount.path(), SHARED);
    drop(mount);
    let device = &image.devices()[0];
    let text = succeed(&format!("report --text {}", device.display()));
    let lines_after = |heading: &str| {
        let part = text.split(heading).nth(1).unwrap_or_else(|| panic!("{heading}: {text}"));
        let lines = part
            .lines()
            .skip(2)
            .take_while(|line| line.starts_with("  ") && !line.starts_with("  and "));
        let row = |line: &str| {
            let mut words = line.split_whitespace().map(str::to_owned);
            Some((words.next()?, words.nth(1)?))
        };
        lines.filter_map(row).collect::<Vec<_>>()
    };
    let size = |bytes: u64| {
        let units = ["B", "KiB", "MiB", "GiB"];
        let power = units.iter().enumerate().rfind(|(power, _)| bytes >= 1 << (10 * power));
        let (power, unit) = power.unwrap_or((0, &"B"));
        let number = match power {
            0 => bytes as f32,
            _ => (bytes >> (10 * (power - 1))) as f32 / 1024.0,
        };
        format!("{number:.2}{unit}")
    };
    let report = report(device);
    let freed = lines_after("these subvolumes frees:");
    assert_eq!(freed.len(), 8, "{text}");
    let mut last = u64::MAX;
    for (said, path) in freed {
        let all = report["subvolumes"].as_array().expect("a list");
        let one = all.iter().find(|one| one["path"] == path.as_str()).expect("it is listed");
        let bytes = number(&one["exclusive_bytes"]) + number(&one["exclusive_tree_bytes"]);
        assert_eq!(said, size(bytes), "{path}");
        assert!(bytes <= last, "{text}");
        last = bytes;
    }
    let freed = lines_after("directories or files frees:");
    assert!(freed.len() > 3, "{text}");
    for (said, path) in freed {
        let path = if path == "/" { &path } else { path.trim_end_matches('/') };
        assert_eq!(said, size(number(&place(&report, path)["exclusive_bytes"])), "{path}");
    }
    assert!(text.contains("\nSaved: "), "{text}");
    // It is what a terminal gets; a file gets a page.
    let line = format!("'{LARDER}' report {}", device.display());
    let terminal = shell(Path::new("/"), &format!("script -qefc \"{line}\" /dev/null"));
    assert_eq!(terminal.replace("\r\n", "\n"), text);
    assert!(shell(Path::new("/"), &line).starts_with("<!"));
}
