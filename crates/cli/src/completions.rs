//! `completions`: what a shell needs to complete the command line.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Arguments;
use crate::failure::Failure;
use crate::output;

/// Prints the script that a shell reads.
pub(crate) fn print(shell: Shell) -> Result<u8, Failure> {
    output::out(&script(shell))?;
    Ok(0)
}

fn script(shell: Shell) -> String {
    let mut script = Vec::new();
    let mut command = Arguments::command();
    clap_complete::generate(shell, &mut command, "streamcheck", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Whether a program can be started here.
    fn is_there(program: &str) -> bool {
        Command::new(program).arg("--version").output().is_ok()
    }

    /// What bash would complete the words to; the last one is begun.
    fn bash_completes(words: &[&str]) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("streamcheck.bash");
        std::fs::write(&file, script(Shell::Bash)).unwrap();
        let text = r#"
            set -eu
            file=$1; shift
            source "$file"
            COMP_WORDS=("$@")
            COMP_CWORD=$(($# - 1))
            _streamcheck streamcheck "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}" || true
            printf '%s\n' "${COMPREPLY[@]}"
        "#;
        let output = Command::new("bash")
            .args(["--norc", "-c", text, "bash"])
            .arg(&file)
            .args(words)
            .output()
            .unwrap();
        assert!(
            output.status.success() && output.stderr.is_empty(),
            "{output:?}"
        );
        let text = String::from_utf8_lossy(&output.stdout);
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn bash_completes_commands_options_and_values() {
        assert!(is_there("bash"), "the tests' scripts need it too");
        assert_eq!(bash_completes(&["streamcheck", "re"]), ["replay", "report"]);
        assert_eq!(
            bash_completes(&["streamcheck", "run", "--fail-"]),
            ["--fail-on"]
        );
        assert_eq!(
            bash_completes(&["streamcheck", "doctor", "--format", ""]),
            ["text", "json"]
        );
    }

    #[test]
    fn shells_that_are_here_accept_their_scripts() {
        for (shell, program) in [
            (Shell::Bash, "bash"),
            (Shell::Zsh, "zsh"),
            (Shell::Fish, "fish"),
        ] {
            let text = script(shell);
            assert!(text.contains("doctor"), "{shell}");
            if !is_there(program) {
                continue;
            }
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), text).unwrap();
            let output = Command::new(program)
                .arg("-n")
                .arg(file.path())
                .output()
                .unwrap();
            assert!(
                output.status.success() && output.stderr.is_empty(),
                "{shell}: {output:?}"
            );
        }
    }
}
