//! How a command ends: with an exit code, or with an error, which `main` reports.
//!
//! | code | meaning |
//! | --- | --- |
//! | 0 | success; of `check`: the file system is sound |
//! | 1 | failure; of `check`: it is not sound |
//! | 2 | the command line is wrong, or `check` could not begin: 1 if called as `btrfs` |
//! | 8 | `fsck.btrfs`: [there is no such device](OPERATION_FAILED) |
//! | 64 | `device stats --check`: [errors were counted](ERRORS_COUNTED) |
//! | 129 | `btrfs`: [an unknown option before the command](UNKNOWN_GLOBAL_OPTION) |
//!
//! A command that a signal ends has no code: see [`interrupt`](crate::interrupt).

use std::process::ExitCode;

/// The result of a command: an exit code, or an error for standard error.
pub type Outcome = anyhow::Result<ExitCode>;

/// The exit code of a command of which so many parts failed.
pub fn exit_code(failures: usize) -> ExitCode {
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The exit code of fsck(8) for an operation that failed.
pub const OPERATION_FAILED: u8 = 8;

/// The exit code of `device stats --check` if a device counted errors: the bit that btrfs-progs sets.
pub const ERRORS_COUNTED: u8 = 64;

/// The exit code of btrfs for an option that it does not know, before the command.
pub const UNKNOWN_GLOBAL_OPTION: u8 = 129;
