//! The process that a report is about.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

/// Arguments kept of a command line.
const ARGUMENTS: usize = 256;

/// The variables that launchers put a process's rank in, in the order in which they are asked:
/// Open MPI, PMI (MPICH, Intel MPI), Slurm, torchrun. One launcher often starts another, and
/// both variables are there then: a batch script has Slurm's, and so has what its `mpirun`
/// starts.
const RANK_VARIABLES: [&str; 4] = ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "RANK"];

/// Set by torchrun alone, which makes `RANK` its own, whatever started torchrun.
const TORCHRUN: &str = "TORCHELASTIC_RUN_ID";

/// Who ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// The process id.
    pub pid: u32,
    /// The executable's path.
    pub exe: String,
    /// The command line.
    pub argv: Vec<String>,
    /// The host's name.
    pub host: String,
    /// The rank in a distributed job, if a launcher gave one.
    pub rank: Option<u32>,
}

impl Process {
    /// The running process.
    #[must_use]
    pub fn this() -> Self {
        // The kernel's copy: it's right in a preloaded library too, whatever
        // the C runtime did with the arguments.
        let command_line = fs::read("/proc/self/cmdline").unwrap_or_default();
        Self {
            pid: std::process::id(),
            exe: fs::read_link("/proc/self/exe")
                .map(|path| path.to_string_lossy().into_owned())
                .unwrap_or_default(),
            argv: arguments(&command_line),
            host: host(Path::new("/proc/sys/kernel/hostname")),
            rank: rank(|name| std::env::var_os(name)),
        }
    }
}

/// Splits a command line at its NUL bytes.
fn arguments(command_line: &[u8]) -> Vec<String> {
    let text = command_line.strip_suffix(b"\0").unwrap_or(command_line);
    if text.is_empty() {
        return Vec::new();
    }
    text.split(|byte| *byte == 0)
        .take(ARGUMENTS)
        .map(|argument| String::from_utf8_lossy(argument).into_owned())
        .collect()
}

/// The host's name, or `localhost` where there is none to be read.
fn host(file: &Path) -> String {
    let name = fs::read_to_string(file).unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "localhost" } else { name }.to_owned()
}

/// The rank that a launcher gave this process.
fn rank(variable: impl Fn(&str) -> Option<OsString>) -> Option<u32> {
    let number = |name: &str| variable(name)?.to_str()?.trim().parse().ok();
    variable(TORCHRUN)
        .and_then(|_| number("RANK"))
        .or_else(|| RANK_VARIABLES.iter().find_map(|name| number(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_split_at_nul() {
        assert_eq!(arguments(b"a\0b c\0\0"), ["a", "b c", ""]);
        assert_eq!(arguments(b"a\0\xff\0"), ["a", "\u{fffd}"]);
        assert!(arguments(b"").is_empty());
        assert_eq!(arguments(&b"x\0".repeat(5000)).len(), ARGUMENTS);
    }

    #[test]
    fn the_first_launcher_with_a_number_gives_the_rank() {
        let with = |pairs: &'static [(&str, &str)]| {
            rank(|name| {
                let (_, value) = pairs.iter().find(|(key, _)| *key == name)?;
                Some(OsString::from(value))
            })
        };
        assert_eq!(with(&[]), None);
        assert_eq!(with(&[("RANK", "3")]), Some(3));
        assert_eq!(with(&[("RANK", "3"), ("SLURM_PROCID", "7")]), Some(7));
        assert_eq!(with(&[("SLURM_PROCID", "x"), ("PMI_RANK", "2")]), Some(2));
    }

    #[test]
    fn the_launcher_that_was_started_last_gives_the_rank() {
        let rank = |pairs: &[(&str, &str)]| {
            rank(|name| {
                let (_, value) = pairs.iter().find(|(key, _)| *key == name)?;
                Some(OsString::from(value))
            })
        };
        let slurm = ("SLURM_PROCID", "0");
        assert_eq!(rank(&[slurm, ("OMPI_COMM_WORLD_RANK", "3")]), Some(3));
        assert_eq!(rank(&[slurm, ("PMI_RANK", "3")]), Some(3));
        let torchrun = [("TORCHELASTIC_RUN_ID", "none"), ("RANK", "5")];
        assert_eq!(rank(&[slurm, torchrun[0], torchrun[1]]), Some(5));
        assert_eq!(rank(&[slurm, torchrun[1]]), Some(0), "RANK may be anyone's");
    }

    #[test]
    fn this_process_knows_itself() {
        let this = Process::this();
        assert_eq!(this.pid, std::process::id());
        assert!(this.exe.contains("report"), "{}", this.exe);
        assert!(!this.argv.is_empty() && !this.host.is_empty());
    }
}
