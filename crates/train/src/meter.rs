//! What this process has used so far: memory and processor time, as the operating system counts them.

/// The most memory this process ever held, in bytes.
pub fn peak_rss_bytes() -> u64 {
    // On Linux `getrusage` counts what the process held that this one was started from, too.
    if let Some(peak) =
        std::fs::read_to_string("/proc/self/status").ok().and_then(|status| high_water(&status))
    {
        return peak;
    }
    // macOS counts bytes here, others kilobytes.
    let unit = if cfg!(target_os = "macos") { 1 } else { 1024 };
    u64::try_from(usage().ru_maxrss).unwrap_or(0) * unit
}

/// The high-water mark in Linux's words about a process.
fn high_water(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(1024 * line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?)
}

/// Seconds that all threads of this process have computed, in user and system mode.
pub fn cpu_seconds() -> f64 {
    let usage = usage();
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// Seconds that the calling thread has computed.
pub fn thread_cpu_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `clock_gettime` writes only into the time it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// The middle of `values`, or the mean of the two in the middle; 0 of none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (sorted.len(), sorted.len() / 2) {
        (0, _) => 0.0,
        (len, middle) if len % 2 == 1 => sorted[middle],
        (_, middle) => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

fn usage() -> libc::rusage {
    // SAFETY: all-zero bytes are a valid `rusage`, and `getrusage` writes only into the one it is given.
    unsafe {
        let mut usage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_uses_processor_time_and_memory() {
        let before = cpu_seconds();
        let rows = vec![1u8; 32 << 20];
        let mut sum = 0;
        for _ in 0..4 {
            sum += rows.iter().map(|&byte| u64::from(byte)).sum::<u64>();
        }
        assert_eq!(sum, 4 * (32 << 20));
        assert!(cpu_seconds() > before);
        assert!(peak_rss_bytes() >= 32 << 20);
    }

    #[test]
    fn the_peak_is_read_from_what_linux_says() {
        assert_eq!(high_water("Name:\tarchi\nVmHWM:\t    1520 kB\nVmRSS:\t 8 kB\n"), Some(1520 * 1024));
        assert_eq!(high_water("Name:\tarchi\n"), None);
    }

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    }
}
