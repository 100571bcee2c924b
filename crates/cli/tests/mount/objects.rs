//! File systems in a directory of objects.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::thread;

use larder_objects::{Directory, ObjectDevice, Policy};
use larder_testkit::manifest::{Manifest, assert_same};
use larder_testkit::{KernelMount, oracle};
use serde_json::{Value, json};

use crate::streams::Web;
use crate::support::{Mounted, comparable, larder, shell, succeed, wait_until};

/// Runs larder with `arguments`, which must fail; returns what it says.
#[track_caller]
fn refused(arguments: &[&str]) -> String {
    let output = larder().args(arguments).output().unwrap();
    assert!(!output.status.success(), "{arguments:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn commit(mountpoint: &Path) {
    succeed(larder().args(["filesystem", "sync"]).arg(mountpoint));
}

/// Makes an image of what is at `url`, and checks that the kernel shows the files of `expected`.
fn export_and_compare(url: &str, folder: &Path, expected: &Manifest) {
    let image = folder.join("exported.img");
    succeed(larder().args(["export", url]).arg(&image));
    oracle::check(std::slice::from_ref(&image), true).unwrap_or_else(|error| panic!("{error}"));
    let kernel = KernelMount::open(std::slice::from_ref(&image), "ro");
    assert_same(&comparable(Manifest::of_tree(kernel.path())), expected);
    drop(kernel);
    fs::remove_file(image).unwrap();
}

#[test]
fn a_directory_of_objects_is_a_file_system() {
    let mut mounted = Mounted::on_objects();
    let url = mounted.source().to_str().unwrap().to_owned();
    assert!(refused(&["ls", &url]).contains("there is no file system here"), "{url}");
    mounted.mount(&["--create", "64G"]);
    mounted.shell(
        "mkdir -p photos/2024 && seq 100000 >photos/2024/a && cp photos/2024/a photos/b
         ln photos/b photos/c && ln -s a photos/2024/link && truncate -s 1G sparse
         dd if=/dev/urandom of=random bs=1M count=30 status=none",
    );
    commit(&mounted.path());
    let before = comparable(Manifest::of_tree(&mounted.path()));
    let in_use = refused(&["objects", "gc", "--keep", "", &url]);
    assert!(in_use.contains("has it open for writing"), "{in_use}");
    assert!(refused(&["cp", "/etc/hostname", &format!("{url}:/")]).contains("open for writing"));
    let states = succeed(larder().args(["objects", "states", &url]));
    let last = states.lines().last().unwrap().split_whitespace().next().unwrap().to_owned();
    mounted.shell("rm -r photos && echo later >later");
    commit(&mounted.path());
    mounted.unmount();

    // What was, and what is.
    let old = format!("{url}@{last}");
    assert_eq!(succeed(larder().args(["ls", &format!("{old}:/photos")])), "2024\nb\nc\n");
    assert_eq!(succeed(larder().args(["ls", &format!("{url}:/")])), "later\nrandom\nsparse\n");
    export_and_compare(&old, mounted.folder(), &before);
    succeed(larder().args(["check", &url]));
    succeed(larder().args(["objects", "verify", &url]));
    assert!(refused(&["mount", &old, "/mnt"]).contains("a kept state can only be read"));

    // A program changes it without a mount.
    succeed(larder().args(["cp", "-r", "/usr/share/common-licenses", &format!("{url}:/")]));
    mounted.mount(&[]);
    mounted.shell("diff -r /usr/share/common-licenses common-licenses && echo more >>later");
    let now = comparable(Manifest::of_tree(&mounted.path()));
    mounted.unmount();
    export_and_compare(&url, mounted.folder(), &now);

    // Nothing is left of what no state needs.
    let keep_nothing = ["--keep", "", "--delete-after", "0s"];
    succeed(larder().args(["objects", "gc"]).args(keep_nothing).arg(&url));
    succeed(larder().args(["objects", "gc", &url]));
    assert_eq!(succeed(larder().args(["objects", "states", &url])).lines().count(), 1);
    assert!(refused(&["ls", &old]).contains("no state"), "{old}");
    export_and_compare(&url, mounted.folder(), &now);
}

/// The number of the newest state at `url`.
fn newest_state(url: &str) -> String {
    let states = succeed(larder().args(["objects", "states", url]));
    states.lines().last().unwrap().split_whitespace().next().unwrap().to_owned()
}

#[test]
fn clones_and_earlier_states_are_file_systems() {
    let mut mounted = Mounted::on_objects();
    let url = mounted.source().to_str().unwrap().to_owned();
    let beside = |name: &str| format!("file://{}/{name}", mounted.folder().display());
    let (copy, older) = (beside("copies/one"), beside("older"));
    mounted.mount(&["--create", "4G"]);
    mounted.shell("mkdir d && seq 100000 >d/numbers && head -c 20M /dev/urandom >random");
    commit(&mounted.path());
    let before = comparable(Manifest::of_tree(&mounted.path()));
    let first = newest_state(&url);
    // The origin is in use.
    succeed(larder().args(["objects", "clone", &url, &copy]));
    mounted.shell("rm random && seq 7 >d/seven");
    commit(&mounted.path());
    let after = comparable(Manifest::of_tree(&mounted.path()));
    succeed(larder().args(["objects", "clone", &format!("{url}@{first}"), &older]));
    // Both are mounted side by side, and change.
    let mut second = Mounted::at(copy.clone(), Vec::new());
    second.mount(&[]);
    assert_same(&comparable(Manifest::of_tree(&second.path())), &before);
    second.shell("echo mine >mine && rm d/numbers");
    commit(&second.path());
    let changed = comparable(Manifest::of_tree(&second.path()));
    assert_same(&comparable(Manifest::of_tree(&mounted.path())), &after);
    second.unmount();
    mounted.unmount();
    for url in [&url, &copy, &older] {
        wait_until("its server has gone", || {
            succeed(larder().args(["objects", "info", url])).contains(": closed")
        });
        let keep_nothing = ["objects", "gc", "--keep", "", "--delete-after", "0s"];
        succeed(larder().args(keep_nothing).arg(url));
        succeed(larder().args(["objects", "gc", url]));
    }
    for (url, expected) in [(&url, &after), (&copy, &changed), (&older, &before)] {
        succeed(larder().args(["objects", "verify", url]));
        export_and_compare(url, mounted.folder(), expected);
    }
    let info = succeed(larder().args(["objects", "info", &url]));
    assert!(info.contains("../copies/one") && info.contains("../older"), "{info}");
    let refused_at = |new: &str| refused(&["objects", "clone", &url, new]);
    assert!(refused_at(&older).contains("there is a file system here already"));
    assert!(refused_at("s3://bucket/elsewhere").contains("in the same bucket"));
    assert!(refused_at(&format!("{url}/inside")).contains("neither inside the other"));

    // Back, and back again.
    let kept = ["objects", "gc", "--keep", "all=1h", &older];
    succeed(larder().args(kept));
    let good = newest_state(&older);
    succeed(larder().args(["rm", "-r", &format!("{older}:/d")]));
    let bad = newest_state(&older);
    assert!(refused(&["objects", "rollback", &older]).contains("say which state"));
    succeed(larder().args(["objects", "rollback", &format!("{older}@{good}")]));
    export_and_compare(&older, mounted.folder(), &before);
    succeed(larder().args(["objects", "rollback", &format!("{older}@{bad}")]));
    assert_eq!(succeed(larder().args(["ls", &format!("{older}:/")])), "random\n");
    succeed(larder().args(["objects", "rollback", &format!("{older}@{good}")]));
    succeed(larder().args(["objects", "verify", &older]));

    // The manifest is damaged, and then lost.
    let manifest = older.strip_prefix("file://").unwrap().to_owned() + "/manifest";
    assert!(refused(&["objects", "rebuild", &older]).contains("needs no rebuilding"));
    let content = fs::read(&manifest).unwrap();
    fs::write(&manifest, &content[..content.len() - 4]).unwrap();
    let said = succeed(larder().args(["ls", &format!("{older}:/")]));
    assert_eq!(said, "d\nrandom\n");
    assert!(!larder().args(["objects", "verify", &older]).output().unwrap().status.success());
    fs::remove_file(&manifest).unwrap();
    assert!(refused(&["ls", &older]).contains("larder objects rebuild"));
    succeed(larder().args(["objects", "rebuild", &older]));
    succeed(larder().args(["objects", "verify", &older]));
    export_and_compare(&older, mounted.folder(), &before);

    // What only the clone needed is given up after it.
    fs::remove_dir_all(older.strip_prefix("file://").unwrap()).unwrap();
    let forgets =
        larder().args(["objects", "gc", "--forget-missing-clones", &url]).output().unwrap();
    let said = String::from_utf8(forgets.stderr).unwrap();
    assert!(said.contains("../older: not there") && !said.contains("../copies/one"), "{said}");
    export_and_compare(&copy, mounted.folder(), &changed);
}

/// Files below `folder` that hold `text`.
fn files_with(folder: &str, text: &str) -> String {
    let grep = Command::new("grep").args(["-rla", text, folder]).output().unwrap();
    String::from_utf8(grep.stdout).unwrap()
}

#[test]
fn an_encrypted_directory_of_objects_is_a_file_system() {
    let unmounted = Mounted::on_objects();
    let (folder, url) = (unmounted.folder().to_owned(), unmounted.source().to_owned());
    let url = url.to_str().unwrap();
    let objects = url.strip_prefix("file://").unwrap();
    let [mine, ann] = ["mine", "ann"].map(|name| folder.join(name));
    fs::write(&mine, "bread\n").unwrap();
    fs::write(&ann, "butter\n").unwrap();
    let key = |path: &Path| ("LARDER_KEY_FILE", path.to_str().unwrap().to_owned());
    let place = unmounted.path().to_str().unwrap().to_owned();
    let create = ["mount", "--create", "4G", "--encrypt", url, &place];
    assert!(refused(&create).contains("none is given"));
    assert!(!Path::new(objects).exists());
    assert!(refused(&["mount", "--create", "4G", "--encrypt", "x.img", &place]).contains("a URL"));
    let with = |path: &Path, arguments: &[&str]| {
        let (name, value) = key(path);
        larder().args(arguments).env(name, value).output().unwrap()
    };
    let refused_with = |path: &Path, arguments: &[&str]| {
        let output = with(path, arguments);
        assert!(!output.status.success(), "{arguments:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let said = refused_with(&mine, &["mount", "--create", "4G", url, &place]);
    assert!(said.contains("--encrypt, or unset LARDER_KEY_FILE"), "{said}");

    let mut mounted = Mounted::at(url.to_owned(), vec![key(&mine)]);
    let run = |path: &Path, arguments: &[&str]| {
        let (name, value) = key(path);
        succeed(larder().args(arguments).env(name, value))
    };
    mounted.mount(&["--create", "4G", "--encrypt"]);
    mounted.shell("cp -r /usr/share/common-licenses licenses && seq 100000 >numbers");
    commit(&mounted.path());
    let before = run(&mine, &["objects", "info", url]);

    // Nobody without the key reads anything, changes it, or ends the writing of the mount.
    assert!(refused(&["ls", url]).contains("none is given"));
    assert!(refused(&["ls", objects]).contains("none is given"));
    for arguments in [&["ls", url][..], &["objects", "gc", "--take-over", url]] {
        let said = refused_with(&ann, arguments);
        assert!(said.contains("that LARDER_KEY_FILE gives is none of those here"), "{said}");
    }
    assert_eq!(run(&mine, &["objects", "info", url]), before);

    // Keys come and go meanwhile.
    let new = ["--new-key-file", ann.to_str().unwrap(), "--name", "ann", url];
    let id = run(&mine, &[&["objects", "key", "add"], &new[..]].concat());
    let listed = succeed(larder().args(["objects", "key", "list", url]));
    assert!(listed.lines().count() == 2 && listed.contains(id.trim()), "{listed}");
    let old = listed.split_whitespace().next().unwrap();
    run(&ann, &["objects", "key", "remove", old, url]);
    assert!(refused_with(&mine, &["ls", url]).contains("none of those here"));
    let shown = run(&ann, &["--format", "json", "objects", "key", "list", url]);
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown["keys"][0]["name"], "ann");
    assert_eq!(shown["keys"][0]["in_use"], true);
    mounted.shell("echo more >more && sync more && rm more");
    let snapshot = mounted.path().join("monday");
    let take = ["subvolume", "snapshot", "-r"];
    succeed(larder().args(take).arg(mounted.path()).arg(&snapshot));
    let files = comparable(Manifest::of_tree(&snapshot));
    let sent = format!("file://{}/streams", folder.display());
    let send = ["send", "--to", &sent, snapshot.to_str().unwrap()];
    assert!(refused_with(&ann, &send).contains("nothing here is encrypted"));
    run(&ann, &[&send[..], &["--encrypt"]].concat());
    mounted.unmount();

    run(&ann, &["check", url]);
    run(&ann, &["objects", "verify", url]);
    run(&ann, &["objects", "gc", url]);
    // A clone has the same keys, and nothing of it can be read without them.
    let cloned = format!("file://{}/cloned", folder.display());
    run(&ann, &["objects", "clone", url, &cloned]);
    assert!(refused(&["ls", &cloned]).contains("none is given"));
    assert!(refused_with(&ann, &["objects", "clone", url, &cloned]).contains("already"));
    run(&ann, &["rm", &format!("{cloned}:/numbers")]);
    run(&ann, &["objects", "gc", &cloned]);
    for url in [url, &cloned] {
        run(&ann, &["objects", "verify", url]);
    }
    assert!(run(&ann, &["ls", url]).contains("numbers"));
    assert!(!run(&ann, &["ls", &cloned]).contains("numbers"));
    assert!(run(&ann, &["objects", "info", url]).contains("../cloned"));
    assert!(run(&ann, &["streams", "list", &sent]).contains("monday"));
    run(&ann, &["streams", "verify", &sent]);
    let image = folder.join("exported.img");
    run(&ann, &["export", url, image.to_str().unwrap()]);
    let kernel = KernelMount::open(std::slice::from_ref(&image), "ro");
    let exported = comparable(Manifest::of_tree(&kernel.path().join("monday")));
    assert_same(&exported, &files);
    drop(kernel);
    let imported = format!("file://{}/imported", folder.display());
    run(&ann, &["import", "--encrypt", image.to_str().unwrap(), &imported]);
    fs::remove_file(image).unwrap();
    assert!(run(&ann, &["ls", &imported]).contains("numbers"));
    for text in ["licenses", "numbers", "monday", "GNU GENERAL", "99999"] {
        assert_eq!(files_with(folder.to_str().unwrap(), text), "", "{text}");
    }

    // As a line of fstab has it.
    let key_file = format!("key-file={}", ann.display());
    let mut mounted = Mounted::at(url.to_owned(), Vec::new());
    mounted.mount(&["-o", &key_file]);
    assert!(mounted.shell("ls").contains("numbers"));
    mounted.unmount();
    mounted.serve(&["-o", &format!("ro,{key_file}")]);
    assert!(mounted.shell("ls").contains("numbers"));
    mounted.unmount();

    let web = Web::new(&folder);
    let far = web.url("objects");
    assert!(run(&ann, &["cat", &format!("{far}:/numbers")]).ends_with("100000\n"));
    assert!(refused(&["ls", &far]).contains("none is given"));
}

/// Somebody brings back the manifest of an earlier time.
#[test]
fn a_store_that_was_set_back_is_found_out() {
    let unmounted = Mounted::on_objects();
    let (folder, url) = (unmounted.folder().to_owned(), unmounted.source().to_owned());
    let url = url.to_str().unwrap();
    let manifest = Path::new(url.strip_prefix("file://").unwrap()).join("manifest");
    let cache = folder.join("cache");
    let environment = vec![("LARDER_CACHE", cache.to_str().unwrap().to_owned())];
    let mut mounted = Mounted::at(url.to_owned(), environment);
    let listed = |mounted: &Mounted| {
        let output = mounted.larder().args(["ls", url]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (text(output.stdout), text(output.stderr))
    };
    mounted.mount(&["--create", "1G"]);
    mounted.shell("echo bread >bread");
    mounted.unmount();
    wait_until("the server has gone", || {
        succeed(larder().args(["objects", "info", url])).contains(": closed")
    });
    let before = fs::read(&manifest).unwrap();
    mounted.mount(&[]);
    mounted.shell("echo butter >butter");
    mounted.unmount();
    wait_until("the server has gone", || {
        succeed(larder().args(["objects", "info", url])).contains(": closed")
    });
    assert_eq!(listed(&mounted), ("bread\nbutter\n".to_owned(), String::new()));
    fs::write(&manifest, before).unwrap();
    let (files, said) = listed(&mounted);
    assert_eq!(files, "bread\n");
    assert!(said.contains("somebody has set it back"), "{said}");
    let note = said.split("remove ").nth(1).unwrap().trim_end();
    fs::remove_file(note).unwrap();
    for _ in 0..2 {
        assert_eq!(listed(&mounted), ("bread\n".to_owned(), String::new()));
    }
}

#[test]
fn metrics_say_what_health_says() {
    let mounted = Mounted::on_objects();
    let (folder, url) = (mounted.folder().to_owned(), mounted.source().to_owned());
    let prices = folder.join("prices");
    fs::write(&prices, "put 1000 # a dollar each\nget 0\nlist 0\ndelete 0\n").unwrap();
    let prices = vec![("LARDER_PRICES", prices.to_str().unwrap().to_owned())];
    let mut mounted = Mounted::at(url.to_str().unwrap().to_owned(), prices);
    let file = folder.join("larder.prom");
    mounted.mount(&["--create", "1G", "--metrics", file.to_str().unwrap()]);
    mounted.shell("seq 100000 >numbers");
    commit(&mounted.path());
    let health = || -> Value {
        let mut command = mounted.larder();
        let said = succeed(command.args(["--format", "json", "health"]).arg(mounted.path()));
        serde_json::from_str::<Value>(&said).unwrap()["health"]["metrics"].clone()
    };
    let metrics = health();
    let number = |name: &str| metrics[name].as_f64().unwrap_or_else(|| panic!("{name}: {metrics}"));
    let puts = number("larder_objects_requests_total{kind=\"put\"}");
    let replaces = number("larder_objects_requests_total{kind=\"replace\"}");
    assert!(puts > 0.0 && replaces > 0.0, "{metrics}");
    let cost = number("larder_objects_cost_dollars_total{kind=\"put\"}");
    assert!((cost - puts - replaces).abs() < 1e-6, "{metrics}");
    assert_eq!(metrics["larder_objects_undurable_seconds"], 0.0);
    assert_eq!(metrics["larder_read_only"], 0.0);
    let info = succeed(larder().args(["--format", "json", "objects", "info"]).arg(&url));
    let info = &serde_json::from_str::<Value>(&info).unwrap()["objects-info"];
    for (metric, fact) in [("epoch", "epoch"), ("state", "state"), ("kept_states", "states")] {
        let name = format!("larder_objects_{metric}");
        assert_eq!(Some(number(&name)), info[fact].as_f64(), "{name}");
    }
    wait_until("the file has the last state", || {
        let text = fs::read_to_string(&file).unwrap_or_default();
        let line = format!("larder_objects_state {}\n", number("larder_objects_state"));
        text.contains(&line) && text.contains("# TYPE larder_objects_requests_total counter\n")
    });
    let shown = succeed(mounted.larder().arg("health").arg(mounted.path()));
    assert!(shown.contains("The store has:   everything that was committed\n"), "{shown}");
    mounted.unmount();
    wait_until("the file has gone", || !file.exists());
    assert!(refused(&["mount", "--metrics", "/x", url.to_str().unwrap()]).contains("directory"));
}

/// A process ended between making the disk and the file system on it.
#[test]
fn a_creation_that_was_interrupted_goes_on() {
    let mut mounted = Mounted::on_objects();
    let url = mounted.source().to_str().unwrap().to_owned();
    let store = Directory::new(url.strip_prefix("file://").unwrap());
    ObjectDevice::create(&store, 4 << 30, Policy::default(), 0).unwrap();
    let folder = mounted.path().to_str().unwrap().to_owned();
    let said = refused(&["mount", "--create", "2G", &url, &folder]);
    assert!(said.contains("there is a file system here already"), "{said}");
    mounted.mount(&["--create", "4G"]);
    mounted.shell("echo kept >kept");
    mounted.unmount();
    assert!(refused(&["mount", "--create", "4G", &url, &folder]).contains("already"));
    mounted.mount(&[]);
    assert_eq!(mounted.shell("cat kept"), "kept\n");
    mounted.unmount();
}

#[test]
fn json_says_what_the_text_says() {
    let mut mounted = Mounted::on_objects();
    let url = mounted.source().to_str().unwrap().to_owned();
    mounted.mount(&["--create", "1G"]);
    mounted.shell("seq 100000 >numbers");
    commit(&mounted.path());
    mounted.unmount();
    let text = |command: &str| succeed(larder().args(["objects", command, &url]));
    // The server closes after its last word.
    wait_until("the server has gone", || text("info").contains(": closed"));
    let json = |command: &str| -> Value {
        let said = succeed(larder().args(["--format", "json", "objects", command, &url]));
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{said}: {error}"))
    };
    let states = json("states");
    let numbers = states["states"].as_array().unwrap().iter().map(|state| &state["number"]);
    let first_column = text("states");
    let first_column = first_column.lines().filter_map(|line| line.split_whitespace().next());
    assert!(numbers.map(ToString::to_string).eq(first_column), "{states}");
    let (info, shown) = (json("info"), text("info"));
    let info = &info["objects-info"];
    for part in [
        format!("{} of 20", info["state"]),
        format!("{} (all=1h,hourly=1d,daily=30d)", info["states"]),
        format!("epoch {}: closed", info["epoch"]),
        format!("{}, ", info["segments"]),
        format!("after {} s", info["delete-after"]),
    ] {
        assert!(shown.contains(&part), "{part}: {shown}");
    }
    assert_eq!((&info["size"], &info["closed"]), (&json!(1_u64 << 30), &json!(true)));
    let collected = &json("gc")["objects-gc"];
    assert!(collected["deleted"].is_u64() && collected["waiting"].is_u64(), "{collected}");
}

#[test]
fn a_file_system_is_deleted_when_nobody_uses_it() {
    let mut mounted = Mounted::on_objects();
    let url = mounted.source().to_str().unwrap().to_owned();
    mounted.mount(&["--create", "4G"]);
    mounted.shell("seq 100000 >numbers");
    let delete = |arguments: &[&str]| {
        let mut all = vec!["objects", "delete"];
        all.extend(arguments.iter().chain([&&*url]));
        all.into_iter().map(ToOwned::to_owned).collect::<Vec<String>>()
    };
    let said = |arguments: &[&str]| {
        let arguments = delete(arguments);
        refused(&arguments.iter().map(|it| &**it).collect::<Vec<_>>())
    };
    assert!(said(&["--force"]).contains("has it open for writing"));
    mounted.unmount();
    let info = || succeed(larder().args(["objects", "info", &url]));
    wait_until("the server has gone", || info().contains(": closed"));
    assert!(said(&[]).contains("--force does that"));
    let would = succeed(larder().args(delete(&["--dry-run"])));
    assert!(would.contains("would be deleted"), "{would}");
    let json = ["--format", "json"].into_iter().map(ToOwned::to_owned);
    let json = succeed(larder().args(json.chain(delete(&["-n"]))));
    let json: Value = serde_json::from_str(&json).unwrap();
    let objects = &json["objects-delete"];
    assert!(would.starts_with(&format!("{} objects", objects["objects"])), "{json} {would}");
    assert_eq!(objects["deleted"], false);
    succeed(larder().args(["ls", &url]));
    assert!(succeed(larder().args(delete(&["--force"]))).contains("were deleted"));
    assert!(refused(&["ls", &url]).contains("there is no file system here"));
    assert!(said(&["--force"]).contains("there is no file system here"));
    // The place is free for another one.
    mounted.mount(&["--create", "1G"]);
    mounted.unmount();
}

/// The bytes of the objects of a file system that lies in a directory.
fn stored_bytes(url: &str) -> u64 {
    let segments = Path::new(url.strip_prefix("file://").unwrap()).join("segments");
    let lens =
        fs::read_dir(segments).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len());
    lens.sum()
}

#[test]
fn space_that_was_freed_takes_none_in_the_store() {
    let mut mounted = Mounted::on_objects();
    let url = mounted.source().to_str().unwrap().to_owned();
    mounted.mount(&["--create", "4G"]);
    // Each segment has parts that stay, and more that go.
    for round in 0..8 {
        mounted.shell(&format!(
            "mkdir {round} && head -c 300k /dev/urandom >{round}/stays
             head -c 7M /dev/urandom >{round}/goes"
        ));
        commit(&mounted.path());
    }
    mounted.shell("rm */goes");
    commit(&mounted.path());
    mounted.shell("cat */stays | sha256sum >sum");
    mounted.unmount();
    let info = || succeed(larder().args(["objects", "info", &url]));
    wait_until("the server has gone", || info().contains(": closed"));
    assert!(stored_bytes(&url) > 56 << 20, "the states before are kept");
    let collect = |options: &[&str]| -> Value {
        let arguments = ["--format", "json", "objects", "gc"];
        let said = succeed(larder().args(arguments).args(options).arg(&url));
        serde_json::from_str::<Value>(&said).unwrap()["objects-gc"].clone()
    };
    let rewritten = collect(&["--keep", "", "--delete-after", "0s"])["rewritten"].as_u64().unwrap();
    assert!(rewritten >= 4, "{rewritten}");
    collect(&[]);
    assert!(stored_bytes(&url) < 16 << 20, "{}", stored_bytes(&url));
    succeed(larder().args(["check", &url]));
    mounted.mount(&["-o", "ro"]);
    mounted.shell("cat */stays | sha256sum | cmp - sum");
    mounted.unmount();
}

#[test]
fn a_command_tells_its_requests_and_the_cache_saves_them() {
    let mut mounted = Mounted::on_objects();
    let url = mounted.source().to_str().unwrap().to_owned();
    mounted.mount(&["--create", "4G"]);
    mounted.shell("head -c 20M /dev/urandom >random");
    commit(&mounted.path());
    mounted.unmount();
    let cache = mounted.folder().join("cache");
    let read = |size: &str| {
        let mut command = larder();
        command.args(["--stats", "cat", &format!("{url}:/random")]);
        command.env("LARDER_CACHE", &cache).env("LARDER_CACHE_SIZE", size);
        let output = command.output().unwrap();
        assert!(output.status.success() && output.stdout.len() == 20 << 20);
        let said = String::from_utf8(output.stderr).unwrap();
        let gets = said.lines().find(|line| line.starts_with("get ")).expect(&said).to_owned();
        gets.split_whitespace().last().unwrap().to_owned()
    };
    assert!(read("0").ends_with("MiB") && !cache.exists());
    assert!(read("1G").ends_with("MiB"));
    assert!(!read("1G").ends_with("iB"), "only what leads to the content");
    let mut wrong = larder();
    wrong.args(["ls", &format!("{url}:/")]).env("LARDER_CACHE_SIZE", "much");
    let said = String::from_utf8(wrong.output().unwrap().stderr).unwrap();
    assert!(said.contains("LARDER_CACHE_SIZE: 'much' is not a size"), "{said}");
}

/// This web server sends whole objects only, whatever part is asked for.
#[test]
fn a_web_server_is_read() {
    let mut mounted = Mounted::on_objects();
    mounted.mount(&["--create", "4G"]);
    mounted.shell("seq 100000 >numbers && head -c 20M /dev/urandom >random");
    let files = comparable(Manifest::of_tree(&mounted.path()));
    mounted.unmount();
    let objects = Path::new(mounted.source().to_str().unwrap().strip_prefix("file://").unwrap());
    let (web, folder) = (Web::new(objects), mounted.path().to_str().unwrap().to_owned());
    let url = web.url("");
    succeed(larder().args(["check", "--check-data-csum", &url]));
    let said = refused(&["mount", &url, &folder]);
    assert!(said.contains("it can only be read"), "{said}");
    succeed(larder().args(["mount", "-o", "ro", &url, &folder]));
    assert_same(&comparable(Manifest::of_tree(&mounted.path())), &files);
    succeed(larder().args(["umount", &folder]));
}

#[test]
fn an_image_goes_to_objects_and_back() {
    let mut mounted = Mounted::with_size("1G");
    mounted.shell("mkdir d && seq 300000 >d/numbers && cp d/numbers copy");
    let files = comparable(Manifest::of_tree(&mounted.path()));
    mounted.unmount();
    let url = format!("file://{}/objects", mounted.folder().display());
    succeed(larder().arg("import").arg(mounted.image()).arg(&url));
    let again = larder().arg("import").arg(mounted.image()).arg(&url).output().unwrap();
    assert!(String::from_utf8_lossy(&again.stderr).contains("there is a file system here already"));
    export_and_compare(&url, mounted.folder(), &files);
}

#[test]
fn what_was_synced_outlives_a_killed_server() {
    let mut mounted = Mounted::on_objects();
    let url = mounted.source().to_str().unwrap().to_owned();
    mounted.serve(&["--create", "8G"]);
    for round in 0..4_u8 {
        let content = vec![round; 3 << 20];
        let name = format!("synced {round}");
        let mut file = File::create(mounted.join(&name)).unwrap();
        file.write_all(&content).unwrap();
        file.sync_all().unwrap();
        fs::write(mounted.join(format!("not synced {round}")), &content).unwrap();
        mounted.kill();
        succeed(larder().args(["check", &url]));
        mounted.serve(&[]);
        assert!(fs::read(mounted.join(&name)).unwrap() == content, "{name}");
    }
    mounted.unmount();
    succeed(larder().args(["objects", "verify", &url]));
}

/// In a network namespace of its own, a program does not see that another one on this machine has
/// the file system open: as on another machine.
#[test]
fn a_writer_that_another_one_has_followed_writes_no_more() {
    let mut mounted = Mounted::on_objects();
    let url = mounted.source().to_str().unwrap().to_owned();
    mounted.serve(&["--create", "8G"]);
    let write = |name: &str, text: &str| {
        let mut file = File::create(mounted.join(name))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    write("first", "one").unwrap();
    let elsewhere = || {
        let mut elsewhere = Command::new("unshare");
        elsewhere.arg("--net").arg(env!("CARGO_BIN_EXE_larder"));
        elsewhere
    };
    // Maintenance ends no writing unless it is told to.
    let output = elsewhere().args(["objects", "gc", &url]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("--take-over"), "{said}");
    write("first again", "one").unwrap();
    let other = mounted.folder().join("other");
    fs::write(&other, "two").unwrap();
    succeed(elsewhere().arg("cp").arg(&other).arg(format!("{url}:/second")));
    let error = write("third", "three").unwrap_err();
    assert!(matches!(error.raw_os_error(), Some(5 | 30)), "{error}");
    // It has lost nothing of the other, and tells that changes did not reach the store.
    assert_eq!(succeed(larder().args(["ls", &format!("{url}:/")])), "first\nfirst again\nsecond\n");
    let _ = larder().arg("umount").arg(mounted.path()).output();
    mounted.kill();
    succeed(larder().args(["check", &url]));
    succeed(larder().args(["objects", "gc", "--take-over", &url]));
}

#[test]
fn a_full_disk_below_the_objects_is_waited_for() {
    const NO_SPACE: Option<i32> = Some(28);
    let mut mounted = Mounted::on_objects();
    let url = mounted.source().to_str().unwrap().to_owned();
    let disk = mounted.folder().join("objects");
    fs::create_dir(&disk).unwrap();
    shell(&disk, "mount -t tmpfs -o size=40M none .");
    let _unmounted = Unmounted(&disk);
    mounted.serve(&["--create", "8G"]);
    mounted.shell("echo kept >kept");
    commit(&mounted.path());
    let full = mounted.join("large");
    let writer = thread::spawn(move || {
        let mut file = File::create(&full).unwrap();
        let piece = vec![7; 1 << 20];
        (0..100).try_for_each(|_| file.write_all(&piece).and_then(|()| file.sync_all()))
    });
    let health = || {
        let output = larder().arg("health").arg(mounted.path()).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    wait_until("it waits for room", || health().contains("waits"));
    let error = fs::write(mounted.join("more"), vec![7; 1 << 20]).unwrap_err();
    assert_eq!(error.raw_os_error(), NO_SPACE, "{error}");
    shell(&disk, "mount -o remount,size=400M .");
    if let Err(error) = writer.join().unwrap() {
        assert_eq!(error.raw_os_error(), NO_SPACE, "{error}");
    }
    mounted.shell("echo more >more && sync more && cat kept more");
    mounted.unmount();
    succeed(larder().args(["check", &url]));
    assert_eq!(succeed(larder().args(["cat", &format!("{url}:/kept")])), "kept\n");
}

struct Unmounted<'a>(&'a Path);

impl Drop for Unmounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

/// Commands take the path of a directory in place of its URL: a relative path too, with any
/// characters that a URL of objects may have.
#[test]
fn a_directory_is_named_by_its_path_too() {
    let mut mounted = Mounted::with_size("1G");
    mounted.shell("seq 3000 > numbers");
    let files = comparable(Manifest::of_tree(&mounted.path()));
    mounted.unmount();
    let folder = mounted.folder();
    let run = |words: &[&str]| succeed(larder().args(words).current_dir(folder));
    for name in ["plain", "a b%ä=,", "./with space/below"] {
        fs::create_dir_all(folder.join(name)).unwrap();
        run(&["import", "disk.img", name]);
        assert!(fs::read_dir(folder.join(name)).unwrap().count() > 0, "{name}");
        run(&["objects", "info", name]);
        run(&["objects", "verify", name]);
        // It is an image, too.
        assert_eq!(run(&["ls", name]), "numbers\n");
        assert_eq!(run(&["ls", &format!("{name}:/")]), "numbers\n");
        run(&["check", name]);
        run(&["subvolume", "list", name]);
        run(&["filesystem", "show", name]);
        run(&["report", "--text", name]);
        run(&["mount", name, "mnt"]);
        assert_eq!(comparable(Manifest::of_tree(&folder.join("mnt"))), files);
        run(&["umount", "mnt"]);
        export_and_compare(folder.join(name).to_str().unwrap(), folder, &files);
        run(&["mkdir", &format!("{name}:/made")]);
        assert_eq!(run(&["ls", name]), "made\nnumbers\n");
    }
    for name in ["a#b", "a?b", "a%20b", "a\\b", "a@b"] {
        let said =
            larder().args(["import", "disk.img", name]).current_dir(folder).output().unwrap();
        let said = String::from_utf8(said.stderr).unwrap();
        assert!(said.contains("choose another name") || said.contains("state"), "{name}: {said}");
        assert!(!folder.join(name).exists(), "{name}");
    }
    // States are named after an @, as in a URL.
    let said = larder().args(["export", "plain@none", "new.img"]).current_dir(folder).output();
    let said = String::from_utf8(said.unwrap().stderr).unwrap();
    assert!(said.contains("none"), "{said}");
    let said = larder().args(["objects", "info", "s4://bucket"]).output().unwrap();
    assert!(!said.status.success());
    run(&["subvolume", "snapshot", "-r", "disk.img:/", "disk.img:/monday"]);
    run(&["send", "--to", "streams", "disk.img:/monday"]);
    assert!(run(&["streams", "list", "streams"]).contains("monday"));
    run(&["mkfs", "-q", "-b", "1G", "new.img"]);
    run(&["receive", "--from", "streams", "new.img:/"]);
    assert_eq!(run(&["ls", "new.img:/monday"]), "numbers\n");
}
