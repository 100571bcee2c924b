//! The files, by their paths, and the places on devices of each finding.
//!
//! Runs last, for the findings that are kept. Reads a few blocks for each; a bound on all of them
//! together limits the time for hostile images.

mod data;
mod paths;

use larder_format::{ItemType, Logical, objectid};

use crate::blocks::Forest;
use crate::context::Context;
use crate::extents::ExtentTable;
use crate::report::{AffectedFile, DeviceOffset, Finding, KindFindings, Location};
use crate::roots::RootTree;
use data::DataUsers;
use paths::Paths;

/// Most files that are named for one finding.
const MOST_FILES: usize = 16;

/// Finds the files and places of findings.
pub(crate) struct Locator<'a, 'v> {
    context: &'a Context<'v>,
    users: DataUsers<'a, 'v>,
    paths: Paths<'a, 'v>,
}

impl<'a, 'v> Locator<'a, 'v> {
    pub(crate) fn new(
        context: &'a Context<'v>,
        forest: &'a Forest,
        roots: &'a RootTree,
        extents: &'a ExtentTable,
    ) -> Self {
        let users = DataUsers::new(context, forest, extents);
        Self { context, users, paths: Paths::new(context, forest, roots) }
    }

    /// Adds to each finding its files and places, as far as they can be found.
    pub(crate) fn locate(&mut self, kinds: &mut [KindFindings]) {
        for finding in kinds.iter_mut().flat_map(|kind| &mut kind.findings) {
            finding.files = self.files(finding);
            finding.devices = self.devices(&finding.location);
        }
    }

    fn files(&mut self, finding: &Finding) -> Vec<AffectedFile> {
        let location = &finding.location;
        let tree = location.tree.filter(|tree| objectid::is_subvolume(*tree));
        if let Some(subvolume) = tree {
            let of_key = location.key.map(|key| key.objectid);
            let is_inode = |ino: &u64| (objectid::FIRST_FREE..=objectid::LAST_FREE).contains(ino);
            let inode = location.inode.or(of_key).filter(is_inode);
            let path = self.paths.of(subvolume, inode.unwrap_or(objectid::FIRST_FREE));
            return vec![AffectedFile { subvolume, inode, path }];
        }
        let Some(logical) = data_address(location) else { return Vec::new() };
        let users = self.users.of(logical, MOST_FILES);
        let files = users.into_iter().map(|(subvolume, inode)| {
            let path = self.paths.of(subvolume, inode);
            AffectedFile { subvolume, inode: Some(inode), path }
        });
        files.collect()
    }

    fn devices(&self, location: &Location) -> Vec<DeviceOffset> {
        let name = |devid: u64| self.context.volume.device(devid).map(|device| device.name());
        let at = |devid: u64, offset: Option<u64>| {
            name(devid).map(|device| DeviceOffset { device, devid, offset })
        };
        if let Some(devid) = location.device {
            return at(devid, location.physical).into_iter().collect();
        }
        let Some(logical) = location.logical.filter(|_| location.key.is_none()) else {
            return Vec::new();
        };
        let ranges = self.context.volume.map(Logical(logical), 1).unwrap_or_default();
        let mirrors = ranges.into_iter().flat_map(|range| range.mirrors);
        mirrors.filter_map(|mirror| at(mirror.devid, Some(mirror.physical.0))).collect()
    }
}

/// The address of the data that a finding is about: the extent's, or its own.
fn data_address(location: &Location) -> Option<u64> {
    let Some(key) = location.key else { return location.logical };
    let is_of_extent = matches!(
        key.item_type,
        ItemType::EXTENT_ITEM | ItemType::EXTENT_DATA_REF | ItemType::SHARED_DATA_REF
    );
    is_of_extent.then_some(key.objectid)
}
