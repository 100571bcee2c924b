//! The memory that the cgroups of this process allow: a container's, for example.

use std::fs;
use std::path::{Path, PathBuf};

use larder_fuse::usage::MountTable;

/// The files with a limit in a directory of a memory cgroup, of version 2 and of version 1.
const LIMITS: [&str; 3] = ["memory.max", "memory.high", "memory.limit_in_bytes"];

/// The least limit of the memory cgroups that this process is in, in bytes, and of those that
/// contain them. `None` if there is none.
pub fn memory_limit() -> Option<u64> {
    let cgroups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let table = MountTable::of_this_process().unwrap_or_default();
    let limits = cgroups.lines().filter_map(|line| {
        // A number, controllers, a path. Version 2 has no controllers here.
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let is_memory = |mount: &larder_fuse::usage::MountEntry| match controllers {
            "" => mount.kind == "cgroup2",
            _ => {
                mount.kind == "cgroup"
                    && mount.superblock_options.split(',').any(|word| word == "memory")
            }
        };
        let has_memory = controllers.is_empty() || controllers.split(',').any(|it| it == "memory");
        let mount = table.all().find(|mount| has_memory && is_memory(mount))?;
        limit_up_to(&mount.path, &directory_in(&mount.path, &mount.root, Path::new(path)))
    });
    limits.min()
}

/// The directory of the cgroup `path` in a mount that shows the cgroup `root`. In a container that
/// may be another than the process is in: the mount itself has its limits then.
fn directory_in(mount: &Path, root: &Path, path: &Path) -> PathBuf {
    let below = path.strip_prefix(root).ok();
    let is_below = |path: &&Path| !path.iter().any(|name| name == "..");
    below.filter(is_below).map_or_else(|| mount.to_owned(), |below| mount.join(below))
}

/// The least limit in `directory` and those above it, up to `top`.
fn limit_up_to(top: &Path, directory: &Path) -> Option<u64> {
    let directories = directory.ancestors().take_while(|at| at.starts_with(top));
    let files = directories.flat_map(|at| LIMITS.map(|name| at.join(name)));
    // No limit is the word max, or in version 1 a number above all memory.
    files.filter_map(|file| fs::read_to_string(file).ok()?.trim().parse().ok()).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_on_the_way_up_counts() {
        let folder = tempfile_folder();
        let at = |path: &str| folder.join(path);
        fs::create_dir_all(at("a/b")).unwrap();
        fs::write(at("memory.max"), "max\n").unwrap();
        assert_eq!(limit_up_to(&folder, &at("a/b")), None);
        fs::write(at("a/memory.max"), "200000000\n").unwrap();
        fs::write(at("a/b/memory.high"), "300000000\n").unwrap();
        assert_eq!(limit_up_to(&folder, &at("a/b")), Some(200_000_000));
        fs::write(at("a/b/memory.limit_in_bytes"), "1000\n").unwrap();
        assert_eq!(limit_up_to(&folder, &at("a/b")), Some(1000));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_mount_shows_a_part_of_the_cgroups() {
        let found = |root: &str, path: &str| {
            directory_in(Path::new("/sys/fs/cgroup"), Path::new(root), Path::new(path))
        };
        assert_eq!(found("/", "/a/b"), Path::new("/sys/fs/cgroup/a/b"));
        assert_eq!(found("/a", "/a/b"), Path::new("/sys/fs/cgroup/b"));
        assert_eq!(found("/docker/1", "/"), Path::new("/sys/fs/cgroup"));
        assert_eq!(found("/", "/../other"), Path::new("/sys/fs/cgroup"));
    }

    fn tempfile_folder() -> PathBuf {
        let folder = std::env::temp_dir().join(format!("larder-cgroup-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        folder
    }
}
