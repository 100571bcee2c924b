//! Copies a file within an image, without copying its data: `copy IMAGE FROM TO`

use anyhow::bail;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    let [image, from, to] = &arguments[..] else { bail!("usage: copy IMAGE FROM TO") };
    let fs = larder::OpenOptions::new().write(true).open([image])?;
    let len_bytes = fs.default_subvolume()?.copy(from, to)?;
    fs.sync()?;
    println!("{len_bytes} bytes");
    Ok(())
}
