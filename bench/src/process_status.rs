//! Reads figures of a process from `/proc/PID/status`.

use anyhow::Context;

/// The number in the line `name`, such as `VmRSS:` (in KiB) or `Threads:`.
pub(crate) fn status_number(pid: u32, name: &str) -> anyhow::Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|line| line.starts_with(name));
    let line = line.with_context(|| format!("/proc/{pid}/status has no line {name}"))?;
    let number = line.split_whitespace().nth(1).with_context(|| format!("{name} has no number"))?;
    Ok(number.parse()?)
}

/// The memory of a process that is resident now, in MiB.
pub(crate) fn resident_mib(pid: u32) -> anyhow::Result<f64> {
    Ok(status_number(pid, "VmRSS:")? / 1024.0)
}
