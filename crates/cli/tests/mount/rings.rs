//! The same tests over rings of io_uring, and when rings are used at all.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Stdio};

use larder_testkit::{RingsOffered, Scratch};

use crate::support::{Mounted, as_nobody, larder_in, over_rings, rings_of, succeed, wait_until};

/// Repeats tests of other files with their mounts served through rings.
macro_rules! over_rings {
    ($($file:ident::$test:ident),* $(,)?) => {
        $(
            #[test]
            fn $test() {
                over_rings(crate::$file::$test);
            }
        )*
    };
}

over_rings! {
    cached::any_number_of_calls_finds_data_in_mappings,
    cached::any_number_of_calls_finds_data_that_is_kept,
    cached::any_number_of_subvolumes_is_made_beside_directories,
    cached::any_number_of_calls_of_all_kinds_is_answered,
    cached::direct_writes_are_seen_through_the_cache,
    cached::bytes_past_the_end_of_a_mapped_file_are_not_content,
    cached::a_listing_ends_though_renames_go_on,
    cached::attributes_follow_at_once,
    cached::attributes_stay_known_while_data_waits,
    ledger::everyday_programs_send_as_many_requests_as_documented,
    listing::attributes_are_true_while_files_change,
    listing::listed_files_outlive_their_names,
    listing::listed_attributes_follow_changes,
    memory::writes_fit_into_the_memory,
    memory::reads_fit_into_the_memory,
    memory::seeking_data_in_many_files_fits_into_the_memory,
    posix::names_have_any_byte_and_up_to_255,
    posix::symbolic_links_hold_up_to_4095_bytes,
    posix::names_that_are_there_or_not,
    posix::renames_with_flags,
    posix::special_files_and_types,
    posix::data_is_where_it_was_written,
    largest::calls_near_the_largest_offset_do_the_same_as_on_the_kernels,
    posix::appending_truncating_and_replacing,
    posix::deleted_files_stay_for_programs_that_have_them_open,
    posix::files_without_a_name_get_one,
    posix::times_and_attributes,
    posix::extended_attributes,
    posix::writing_removes_capabilities_from_a_program,
    posix::running_programs_are_not_written,
    posix::holes_are_punched,
    posix::room_is_allocated_and_zeroed,
    posix::copies_share_data_where_possible,
    posix::data_that_the_kernel_keeps_is_found,
    posix::locks_exclude,
    posix::a_listing_survives_changes,
    posix::flags_are_set_and_hold,
    posix::attributes_are_made_and_replaced_as_on_the_kernels,
    posix::calls_without_effect_set_times_as_on_the_kernels,
    posix::nothing_is_older_than_its_birth,
    handles::handles_lead_to_inodes_that_the_kernel_has_forgotten,
    open_files::files_synced_without_a_name_are_there_once_named,
    open_files::unlinked_files_keep_their_data_when_synced,
    open_files::open_inodes_of_a_deleted_subvolume_work_as_on_the_kernels,
    open_files::the_room_of_a_deleted_subvolume_comes_back_when_nothing_of_it_is_open,
    open_files::nothing_shows_in_the_place_of_a_deleted_subvolume,
    subvolumes::empty_ones_are_removed_as_on_the_kernels,
    privileges::changing_a_file_removes_the_same_as_on_the_kernels,
    refusals::programs_with_a_file_open_may_do_the_same_as_on_the_kernels,
    refusals::protected_files_are_refused_when_they_are_opened,
    refusals::append_only_files_lose_nothing,
    refusals::append_only_files_are_not_overwritten,
    refusals::files_mapped_before_are_written,
    options::times_of_last_access_are_kept_as_on_the_kernels,
    programs::fs_mark,
    programs::dbench,
    programs::fio_verifies,
    programs::sqlite,
    programs::git,
    programs::rsync_and_tar,
    programs::stress_ng,
    programs::many_at_once,
    programs::an_unused_mount_sleeps,
    ending::a_script_that_unmounts_and_mounts_again_is_never_refused,
    crash::a_killed_server_leaves_a_sound_file_system,
    crash::signals_unmount,
    crash::a_signal_waits_for_users_of_the_mount,
    full::write_says_that_there_is_no_room,
    killed::during_fs_mark,
    killed::during_dbench,
    killed::during_fio,
    killed::during_sqlite,
    killed::during_git,
    killed::during_rsync,
    killed::during_tar,
    killed::during_cargo,
    killed::during_stress_ng,
    sync::data_that_programs_synced_is_durable,
    sync::the_table_of_mounts_leads_to_the_image,
    sync::umount_waits_for_the_last_commit,
    sync::a_signal_leaves_nothing_behind,
    owners::users_see_and_do_what_the_kernel_lets_them,
    remount::from_writing_to_reading_and_back,
    remount::no_request_is_lost,
    subvolumes::they_are_made_snapshotted_marked_and_deleted,
    users::the_kernel_checks_permissions,
    users::other_users_mount_use_and_unmount,
}

#[test]
fn they_are_used_where_they_are_wanted() {
    let without = Mounted::in_foreground();
    fs::write(without.join("f"), "through /dev/fuse").unwrap();
    assert_eq!(without.count_rings(), 0);
    without.finish();
    over_rings(|| {
        let with = Mounted::in_foreground();
        fs::write(with.join("f"), "through a ring").unwrap();
        let processors = std::thread::available_parallelism().unwrap().get();
        assert!(with.count_rings() >= processors);
        with.finish();
    });
}

/// Features that a system may deny to users other than root.
struct NoRingsForUsers(String);

const IO_URING_DISABLED: &str = "/proc/sys/kernel/io_uring_disabled";

impl NoRingsForUsers {
    fn new() -> Self {
        let before = fs::read_to_string(IO_URING_DISABLED).unwrap();
        fs::write(IO_URING_DISABLED, "1").unwrap();
        Self(before)
    }
}

impl Drop for NoRingsForUsers {
    fn drop(&mut self) {
        let _ = fs::write(IO_URING_DISABLED, self.0.trim());
    }
}

/// Ends with its test.
pub(crate) struct Server(pub(crate) Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn users_without_rings_are_served_without() {
    let _offered = RingsOffered::new();
    let _forbidden = NoRingsForUsers::new();
    let scratch = Scratch::new();
    let at = |name: &str| scratch.path().join(name);
    larder_in(scratch.path());
    fs::create_dir(at("mnt")).unwrap();
    fs::set_permissions(scratch.path(), Permissions::from_mode(0o777)).unwrap();
    fs::set_permissions(at("mnt"), Permissions::from_mode(0o777)).unwrap();
    let mut command = as_nobody(at("larder"));
    command.args(["mount", "-f", "--create", "1G", "disk.img", "mnt"]).current_dir(scratch.path());
    let mut server = Server(command.stdin(Stdio::null()).spawn().unwrap());
    let user = |line: &str| {
        as_nobody("bash").args(["-euc", line]).current_dir(scratch.path()).output().unwrap()
    };
    wait_until("it is mounted", || user("mountpoint -q mnt").status.success());
    assert_eq!(user("echo bread > mnt/f; cat mnt/f").stdout, b"bread\n");
    assert_eq!(rings_of(server.0.id()), 0);
    succeed(as_nobody(at("larder")).args(["umount", "mnt"]).current_dir(scratch.path()));
    assert!(server.0.wait().unwrap().success());
}
