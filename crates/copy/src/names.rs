//! Users and groups by name.

use std::fs;
use std::process::{Command, Stdio};

/// Stands for no user and no group.
pub const NO_ID: u32 = u32::MAX;

/// Databases of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Names {
    /// Of users.
    Users,
    /// Of groups.
    Groups,
}

impl Names {
    /// The file of the database, and its name for getent(1).
    pub fn file(self) -> &'static str {
        match self {
            Self::Users => "passwd",
            Self::Groups => "group",
        }
    }

    fn noun(self) -> &'static str {
        match self {
            Self::Users => "user",
            Self::Groups => "group",
        }
    }

    /// The id of `name` in `table`, the content of a file like `/etc/passwd` or `/etc/group`.
    pub fn find(table: &[u8], name: &str) -> Option<u32> {
        let lines = table.split(|byte| *byte == b'\n').filter_map(|line| str::from_utf8(line).ok());
        lines
            .map(|line| line.split(':').collect::<Vec<_>>())
            .find(|fields| fields[0] == name)
            .and_then(|fields| fields.get(2)?.parse().ok())
    }

    /// The id of `name` on this system.
    fn of_system(self, name: &str) -> Option<u32> {
        let table = fs::read(format!("/etc/{}", self.file())).unwrap_or_default();
        Self::find(&table, name).or_else(|| {
            // Names may come from elsewhere too.
            let getent =
                Command::new("getent").args([self.file(), name]).stderr(Stdio::null()).output();
            Self::find(&getent.ok()?.stdout, name)
        })
    }

    /// Reads a number, or a name that `other` or this system knows.
    pub fn read(self, text: &str, other: impl FnOnce(&str) -> Option<u32>) -> Result<u32, String> {
        let noun = self.noun();
        if text.bytes().all(|byte| byte.is_ascii_digit()) {
            let number = text.parse().ok().filter(|id| *id != NO_ID);
            let last = NO_ID - 1;
            return number
                .ok_or_else(|| format!("'{text}' is not an id; ids are numbers from 0 to {last}"));
        }
        let found = other(text).or_else(|| self.of_system(text));
        found.ok_or_else(|| format!("'{text}': no {noun} has this name"))
    }
}
