//! The paths that a stream may use.

use super::error::CommandProblem;
use crate::wire::Command;

/// The longest part of a path.
const NAME_MAX: usize = 255;

/// Refuses a command with a path that does not lead down from the root of its subvolume.
pub(super) fn check_paths(command: &Command<'_>) -> Result<(), CommandProblem> {
    if let Some(path) = command.path() {
        check_path(path)?;
    }
    match command {
        Command::Rename { to, .. } => check_path(to),
        Command::Link { existing, .. } => check_path(existing),
        Command::Clone { clone_path, .. } => check_path(clone_path),
        _ => Ok(()),
    }
}

/// Refuses invalid names of a subvolume.
pub(super) fn check_name(name: &[u8]) -> Result<(), CommandProblem> {
    if name.is_empty() || name.contains(&b'/') {
        return Err(refused(name, "it is no name"));
    }
    check_path(name)
}

/// Refuses a path that does not lead down.
pub(super) fn check_path(path: &[u8]) -> Result<(), CommandProblem> {
    if path.is_empty() {
        // The root of the subvolume.
        return Ok(());
    }
    path.split(|byte| *byte == b'/').try_for_each(|part| match part {
        b"" => Err(refused(path, "it has an empty part")),
        b"." | b".." => Err(refused(path, "it does not lead down")),
        _ if part.contains(&0) => Err(refused(path, "it has a zero in it")),
        _ if part.len() > NAME_MAX => Err(refused(path, "a name is longer than 255 bytes")),
        _ => Ok(()),
    })
}

fn refused(path: &[u8], reason: &'static str) -> CommandProblem {
    CommandProblem::Path { path: path.to_vec(), reason }
}

#[cfg(test)]
mod tests {
    use super::{check_name, check_path};

    #[test]
    fn only_paths_that_lead_down_pass() {
        for path in ["", "a", "a/b", "...", "a/..b"] {
            assert!(check_path(path.as_bytes()).is_ok(), "{path}");
        }
        for path in ["/", "/a", "a/", "a//b", ".", "..", "a/..", "../a", "a/./b", "a\0b"] {
            assert!(check_path(path.as_bytes()).is_err(), "{path}");
        }
        assert!(check_path(&[b'x'; 255]).is_ok());
        assert!(check_path(&[b'x'; 256]).is_err());
        assert!(check_name(b"a").is_ok());
        assert!(check_name(b"").is_err());
        assert!(check_name(b"a/b").is_err());
    }
}
