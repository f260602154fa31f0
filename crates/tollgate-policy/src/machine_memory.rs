//! How much memory this process may use.

/// The memory of the machine, or of the smallest cgroup around this process where that is less. None where the system does
/// not report it.
pub(crate) fn machine_memory() -> Option<u64> {
    available(&|file| std::fs::read_to_string(file).ok())
}

fn available(read: &dyn Fn(&str) -> Option<String>) -> Option<u64> {
    let cgroups = read("/proc/self/cgroup").unwrap_or_default();
    let limits = cgroups.lines().flat_map(limit_files).filter_map(|file| read(&file)?.trim().parse().ok());
    total(&read("/proc/meminfo")?).into_iter().chain(limits).min()
}

/// The line `MemTotal:  16303444 kB`.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The files that may hold a limit for the cgroup in a line of `/proc/self/cgroup`, up to the root: each cgroup is also bound
/// by those around it. In a container the path may be that of the host, and the container's own cgroup is the root.
fn limit_files(line: &str) -> Vec<String> {
    let mut fields = line.splitn(3, ':');
    let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else {
        return Vec::new();
    };
    let (root, file) = match controllers {
        "" => ("/sys/fs/cgroup", "memory.max"), // version 2, where `max` is no number and no limit
        _ if controllers.split(',').any(|name| name == "memory") => {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes") // version 1, where no limit is a very large number
        }
        _ => return Vec::new(),
    };
    let path = path.trim_end_matches('/');
    let slashes = path.match_indices('/').map(|(at, _)| &path[..at]);
    slashes.chain([path]).map(|path| format!("{root}{path}/{file}")).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// Its name and what is in it.
    type File = (&'static str, &'static str);

    const MEMINFO: File = ("/proc/meminfo", "MemTotal:       16384 kB\nMemFree:        100 kB\n");
    const MACHINE: u64 = 16 << 20;

    #[test]
    fn the_smallest_limit_around_the_process_counts() {
        let v2 = ("/proc/self/cgroup", "0::/system.slice/tollgate.service\n");
        let v1 = ("/proc/self/cgroup", "12:cpu,cpuacct:/docker/1\n4:memory:/docker/1\n");
        let own = "/sys/fs/cgroup/system.slice/tollgate.service/memory.max";
        let cases: &[(&[File], Option<u64>)] = &[
            (&[], None),
            (&[MEMINFO], Some(MACHINE)),
            (&[MEMINFO, v2, (own, "max\n")], Some(MACHINE)),
            (&[MEMINFO, v2, (own, "4194304\n")], Some(4 << 20)),
            (
                &[MEMINFO, v2, (own, "max\n"), ("/sys/fs/cgroup/system.slice/memory.max", "2097152\n")],
                Some(2 << 20),
            ),
            (
                &[MEMINFO, ("/proc/self/cgroup", "0::/\n"), ("/sys/fs/cgroup/memory.max", "1048576\n")],
                Some(1 << 20),
            ),
            (&[MEMINFO, v1, ("/sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes", "1024\n")], Some(1024)),
            (&[MEMINFO, v1, ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "2048\n")], Some(2048)),
            (
                &[MEMINFO, v1, ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")],
                Some(MACHINE),
            ),
            (&[MEMINFO, ("/proc/self/cgroup", "nonsense\n1:name\n")], Some(MACHINE)),
        ];
        for (files, expected) in cases {
            let files: HashMap<&str, &str> = files.iter().copied().collect();
            assert_eq!(available(&|file| files.get(file).map(|&text| text.into())), *expected, "{files:?}");
        }
    }
}
