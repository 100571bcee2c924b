//! Users and groups, by number or by name.

use clap::Args;
pub use larder_copy::Names;
use larder_format::{IdMap, IdRange, OwnerMap};
use larder_mkfs::Owner;

/// No comma, which comes between mount options.
const BETWEEN_RANGES: char = '/';
const RANGES: &str = "OUTER:INNER[:COUNT]/...";

/// Reads `USER:GROUP`.
pub fn parse_owner(text: &str) -> Result<Owner, String> {
    let (user, group) = text.split_once(':').ok_or_else(|| {
        format!("'{text}' is not a user and a group: 1000:100 or ann:users would be")
    })?;
    let none = |_: &str| None;
    Ok(Owner { uid: Names::Users.read(user, none)?, gid: Names::Groups.read(group, none)? })
}

/// Options that give files other owners.
#[derive(Clone, Debug, Default, Args)]
pub struct MapOptions {
    /// Users with ids from OUTER on, COUNT of them, become those from INNER on in the file system;
    /// OUTER is outside: in a directory of this system, or on a mount. Copying out of a file system
    /// turns this round. Several ranges have slashes between them
    #[arg(long, value_name = RANGES, value_delimiter = BETWEEN_RANGES)]
    #[arg(value_parser = parse_user_range)]
    map_users: Vec<IdRange>,
    /// The same for groups
    #[arg(long, value_name = RANGES, value_delimiter = BETWEEN_RANGES)]
    #[arg(value_parser = parse_group_range)]
    map_groups: Vec<IdRange>,
    /// The owner of all copies that no --map-users or --map-groups is for
    #[arg(long, value_name = "USER:GROUP", value_parser = parse_owner)]
    squash: Option<Owner>,
}

impl MapOptions {
    /// The map into the file system.
    pub fn map(&self) -> anyhow::Result<OwnerMap> {
        self.map_said("--")
    }

    /// Sets what the mount option `name` says, one of `map-users`, `map-groups` and `squash`.
    pub fn set_mount_option(&mut self, name: &str, value: &str) -> Result<(), String> {
        let ranges = |names| -> Result<Vec<IdRange>, String> {
            value.split(BETWEEN_RANGES).map(|text| parse_range(names, text)).collect()
        };
        match name {
            "map-users" => self.map_users = ranges(Names::Users)?,
            "map-groups" => self.map_groups = ranges(Names::Groups)?,
            _ => self.squash = Some(parse_owner(value)?),
        }
        Ok(())
    }

    /// The map from what a mount shows into the file system.
    pub fn map_of_mount(&self) -> anyhow::Result<OwnerMap> {
        self.map_said("")
    }

    /// The map. In errors `dashes` come before the names of options.
    fn map_said(&self, dashes: &str) -> anyhow::Result<OwnerMap> {
        let (uid, gid) = self.squash.map(|owner| (owner.uid, owner.gid)).unzip();
        Ok(OwnerMap {
            users: IdMap::new(self.map_users.clone(), uid)
                .map_err(|error| anyhow::anyhow!("{dashes}map-users: {error}"))?,
            groups: IdMap::new(self.map_groups.clone(), gid)
                .map_err(|error| anyhow::anyhow!("{dashes}map-groups: {error}"))?,
        })
    }
}

fn parse_user_range(text: &str) -> Result<IdRange, String> {
    parse_range(Names::Users, text)
}

fn parse_group_range(text: &str) -> Result<IdRange, String> {
    parse_range(Names::Groups, text)
}

fn parse_range(names: Names, text: &str) -> Result<IdRange, String> {
    let no_range = || format!("'{text}' is not a range: 100000:0:65536 or ann:0 would be");
    let parts: Vec<&str> = text.split(':').collect();
    let (outer, inner, count) = match parts.as_slice() {
        [outer, inner] => (outer, inner, "1"),
        [outer, inner, count] => (outer, inner, *count),
        _ => return Err(no_range()),
    };
    let none = |_: &str| None;
    Ok(IdRange {
        outer: names.read(outer, none)?,
        inner: names.read(inner, none)?,
        count: count.parse().map_err(|_| no_range())?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_read() {
        let table = b"root:x:0:0::/root:/bin/sh\nann:x:1000:1000\nodd:x\n\xff:x:1:1\n";
        let read = |text| Names::Users.read(text, |name| Names::find(table, name));
        assert_eq!(read("ann"), Ok(1000));
        assert_eq!(read("17"), Ok(17));
        assert_eq!(read("root"), Ok(0));
        assert!(read("4294967295").unwrap_err().contains("not an id"));
        assert!(read("odd").unwrap_err().contains("no user has this name"));
        let root = parse_owner("root:0").unwrap();
        assert_eq!((root.uid, root.gid), (0, 0));
        assert!(parse_owner("root").is_err());
        let of = |outer, inner, count| Ok(IdRange { outer, inner, count });
        assert_eq!(parse_user_range("100000:0:65536"), of(100_000, 0, 65536));
        assert_eq!(parse_user_range("5:root"), of(5, 0, 1));
        for text in ["", "5", "1:2:3:4", "1:2:x"] {
            assert!(parse_user_range(text).is_err(), "{text}");
        }
    }
}
