//! Quota groups.

use larder_format::item::{QgroupInfoItem, QgroupLimitItem, QgroupStatusItem, qgroup_status_flags};
use larder_format::{FormatError, read_exact_item};

use super::text::{Hex, Put, put};

const STATUS_FLAGS: [(u64, &str); 4] = [
    (qgroup_status_flags::ON, "ON"),
    (qgroup_status_flags::RESCAN, "SCANNING"),
    (qgroup_status_flags::INCONSISTENT, "INCONSISTENT"),
    (qgroup_status_flags::SIMPLE_MODE, "SIMPLE_MODE"),
];

pub fn put_status(out: &mut Vec<u8>, data: &[u8]) -> Result<(), FormatError> {
    let (status, _) = QgroupStatusItem::parse(data)?;
    let bits = status.flags.get();
    put!(out, "\t\tversion ", status.version, " generation ", status.generation, " flags ");
    let start = out.len();
    if bits & qgroup_status_flags::ON == 0 {
        "OFF".put(out);
    }
    for (bit, name) in STATUS_FLAGS {
        if bits & bit != 0 {
            if out.len() > start {
                out.push(b'|');
            }
            name.put(out);
        }
    }
    put!(out, " scan ", status.rescan, "\n");
    Ok(())
}

pub fn put_info(out: &mut Vec<u8>, data: &[u8]) -> Result<(), FormatError> {
    let info = read_exact_item::<QgroupInfoItem>(data)?;
    put!(out, "\t\tgeneration ", info.generation, "\n");
    put!(out, "\t\treferenced ", info.rfer, " referenced_compressed ", info.rfer_cmpr, "\n");
    put!(out, "\t\texclusive ", info.excl, " exclusive_compressed ", info.excl_cmpr, "\n");
    Ok(())
}

pub fn put_limit(out: &mut Vec<u8>, data: &[u8]) -> Result<(), FormatError> {
    let limit = read_exact_item::<QgroupLimitItem>(data)?;
    put!(out, "\t\tflags ", Hex(limit.flags.get()), "\n");
    put!(out, "\t\tmax_referenced ", limit.max_rfer, " max_exclusive ", limit.max_excl, "\n");
    put!(out, "\t\trsv_referenced ", limit.rsv_rfer, " rsv_exclusive ", limit.rsv_excl, "\n");
    Ok(())
}
