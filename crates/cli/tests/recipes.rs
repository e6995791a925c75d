//! The recipes of `docs/ci`, done as they say, over the simulated CUDA.
//!
//! Each page is worked through in a folder of its own, which begins as `recipes/PAGE` does:
//! - a block below `<!-- file: NAME -->` is written to that file;
//! - a `bash` block is run, and must end with 0, or with the code in `bash,exit=66`;
//! - a `text` block right behind it tells what is printed: each of its lines must be there, in
//!   that order, and `…` stands for anything;
//! - a block below `<!-- not run: WHY -->` is left alone.
//!
//! What a machine lacks is left out, and standard error says so; with `RECIPES_REQUIRED=1`
//! it is a failure.

mod common;

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use common::rules;
use fixtures::{Build, Stage, fixtures, repository, stage};
use serde_json::Value;
use tempfile::TempDir;

/// A fenced block of a page.
#[derive(Debug, PartialEq, Eq)]
struct Block {
    /// What the comment right above it says.
    comment: String,
    /// What stands behind the fence.
    language: String,
    text: String,
    line: usize,
}

fn blocks(page: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut comment = String::new();
    let mut open: Option<Block> = None;
    for (number, line) in page.lines().enumerate() {
        let fence = line.strip_prefix("```");
        match (&mut open, fence) {
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(block), None) => {
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, Some(language)) => {
                open = Some(Block {
                    comment: std::mem::take(&mut comment),
                    language: language.to_owned(),
                    text: String::new(),
                    line: number + 1,
                });
            }
            (None, None) => {
                comment = line
                    .strip_prefix("<!-- ")
                    .and_then(|rest| rest.strip_suffix(" -->"))
                    .unwrap_or_default()
                    .to_owned();
            }
        }
    }
    assert_eq!(open, None, "a block is not closed");
    blocks
}

/// A folder to work in, and what a shell needs to find everything.
struct Kitchen {
    folder: TempDir,
    stage: Stage,
    variables: BTreeMap<String, String>,
}

impl Kitchen {
    /// A folder that begins as `recipes/NAME`, with the programs `pipeline`, which has a fault
    /// (SC101, twice), and `pipeline-fixed`.
    fn new(name: &str) -> Self {
        let stage = stage().expect("everything builds");
        let folder = TempDir::new().expect("a folder");
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recipes");
        copy(&data.join(name), folder.path());
        let wanted: Vec<_> = fixtures()
            .expect("the fixtures are well formed")
            .into_iter()
            .filter(|fixture| fixture.name.starts_with("a03_"))
            .collect();
        let programs = fixtures::compile(&stage.root, Build::Cc, &wanted)
            .expect("the fixtures build")
            .expect("a plain C compiler will do");
        for (program, name) in [
            ("a03_use_before_alloc", "pipeline"),
            ("a03_use_before_alloc_fixed", "pipeline-fixed"),
        ] {
            fs::copy(programs.join(program), folder.path().join(name)).expect("a copy");
        }
        let sim = stage.root.join("sim");
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let path = env::var("PATH").unwrap_or_default();
        let variables = [
            (
                "PATH",
                format!(
                    "{}:{}:{}:{path}",
                    text(&folder.path().join("bin")),
                    text(&stage.root.join("bin")),
                    text(&repository().join(".tools/bin")),
                ),
            ),
            ("LD_LIBRARY_PATH", text(&sim)),
            ("CUDART", text(&sim.join("libcudart.so.13"))),
            ("STREAMCHECK", text(&repository())),
            ("PYTHONDONTWRITEBYTECODE", "1".to_owned()),
            ("LANG", "C.UTF-8".to_owned()),
            ("COLUMNS", "120".to_owned()),
            // mpirun takes neither for granted: CI machines run as root and have few cores.
            ("OMPI_ALLOW_RUN_AS_ROOT", "1".to_owned()),
            ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1".to_owned()),
            ("OMPI_MCA_rmaps_base_oversubscribe", "1".to_owned()),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
        Self {
            folder,
            stage,
            variables,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn set(&mut self, name: &str, value: impl Into<String>) {
        self.variables.insert(name.to_owned(), value.into());
    }

    /// Runs lines as a CI system does: by bash, up to the first that fails.
    fn bash(&self, lines: &str) -> Output {
        let mut command = Command::new("bash");
        command
            .args(["-e", "-o", "pipefail", "-c", lines])
            .current_dir(self.folder.path());
        // This test may itself run in a CI job, or in an MPI one.
        for (name, _) in env::vars_os() {
            let name = name.to_string_lossy().into_owned();
            let foreign = ["STREAMCHECK_", "GITHUB_", "CI_", "SLURM_", "OMPI_", "PMI"];
            if foreign.iter().any(|start| name.starts_with(start)) {
                command.env_remove(name);
            }
        }
        command.envs(&self.variables).output().expect("bash")
    }

    fn report(&self, name: &str) -> Value {
        let text = fs::read(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        serde_json::from_slice(&text).expect("JSON")
    }

    /// Works through a page of `docs/ci`.
    fn work_through(&self, page: &str) {
        let text = read(&repository().join("docs/ci").join(page));
        let mut printed: Option<String> = None;
        let mut ran = 0;
        for block in blocks(&text) {
            let place = format!("{page}:{}", block.line);
            if let Some(why) = block.comment.strip_prefix("not run: ") {
                assert!(!why.is_empty(), "{place}");
                printed = None;
                continue;
            }
            if let Some(name) = block.comment.strip_prefix("file: ") {
                let path = self.path(name);
                fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
                fs::write(path, &block.text).expect("a file");
                continue;
            }
            let (language, rest) = block
                .language
                .split_once(',')
                .unwrap_or((&block.language, ""));
            match language {
                "bash" => {
                    let code = match rest.strip_prefix("exit=") {
                        Some(code) => code.parse().expect("a number"),
                        None => 0,
                    };
                    let output = self.bash(&block.text);
                    let all = both(&output);
                    assert_eq!(output.status.code(), Some(code), "{place}\n{all}");
                    printed = Some(all);
                    ran += 1;
                }
                "text" => {
                    let printed = printed.take().unwrap_or_else(|| {
                        panic!("{place}: it is not known what prints this");
                    });
                    assert_prints(&printed, &block.text, &place);
                }
                _ => {}
            }
        }
        assert!(ran > 0, "{page} runs nothing");
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).into_iter().flatten().flatten() {
        let place = to.join(entry.file_name());
        if entry.path().is_dir() {
            fs::create_dir_all(&place).expect("a folder");
            copy(&entry.path(), &place);
        } else {
            fs::copy(entry.path(), place).expect("a copy");
        }
    }
}

fn both(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Each line of `wanted` is in `printed`, in that order; `…` stands for anything.
fn assert_prints(printed: &str, wanted: &str, place: &str) {
    let mut lines = printed.lines();
    for line in wanted.lines().filter(|line| line.trim() != "…") {
        let found = lines.any(|printed| matches(printed.trim_end(), line.trim_end()));
        assert!(found, "{place}: {line:?} is not printed in\n{printed}");
    }
}

fn matches(printed: &str, wanted: &str) -> bool {
    let mut parts = wanted.split('…');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = printed.strip_prefix(first) else {
        return false;
    };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    true
}

/// Whether everything is there; says what is not.
fn have(test: &str, needed: &[(&str, &str)]) -> bool {
    let path = format!(
        "{}:{}",
        repository().join(".tools/bin").display(),
        env::var("PATH").unwrap_or_default()
    );
    let missing: Vec<&str> = needed
        .iter()
        .filter(|(_, probe)| {
            !Command::new("sh")
                .args(["-c", probe])
                .env("PATH", &path)
                .output()
                .is_ok_and(|output| output.status.success())
        })
        .map(|(name, _)| *name)
        .collect();
    if missing.is_empty() {
        return true;
    }
    let line = format!("left out: {test}, for want of {}\n", missing.join(", "));
    assert!(env::var_os("RECIPES_REQUIRED").is_none(), "{line}");
    drop(std::io::stderr().write_all(line.as_bytes()));
    false
}

const CMAKE: (&str, &str) = (
    "CMake 3.29",
    "cmake --version | head -n 1 | { read _ _ v; printf '3.29\\n%s\\n' $v | sort -V -C; }",
);
const CXX: (&str, &str) = ("a C++ compiler", "c++ --version");
const GTEST: (&str, &str) = (
    "GoogleTest",
    "echo '#include <gtest/gtest.h>' | c++ -E -x c++ - && \
     echo 'int main() {}' | c++ -x c++ - -lgtest -o /dev/null",
);
const MPIRUN: (&str, &str) = ("mpirun of Open MPI", "mpirun --version | grep 'Open MPI'");
const PYTEST: (&str, &str) = ("pytest", "python3 -c 'import pytest'");
const PIP: (&str, &str) = (
    "pip and flit-core",
    "python3 -m pip --version && python3 -c 'import flit_core'",
);
const YAML: (&str, &str) = ("PyYAML", "python3 -c 'import yaml'");

/// The plugin, installed by pip into a folder, once.
fn plugin(kitchen: &Kitchen) -> PathBuf {
    static DONE: OnceLock<TempDir> = OnceLock::new();
    let folder = DONE.get_or_init(|| {
        let folder = TempDir::new().expect("a folder");
        let lines = format!(
            "python3 -m pip install --quiet --disable-pip-version-check --no-index --no-deps \
             --no-build-isolation --root-user-action ignore --target '{}' \"$STREAMCHECK/python\"",
            folder.path().display()
        );
        let output = kitchen.bash(&lines);
        assert!(output.status.success(), "{}", both(&output));
        folder
    });
    folder.path().to_owned()
}

/// YAML as JSON.
fn yaml(kitchen: &Kitchen, text: &str) -> Value {
    fs::write(kitchen.path("parsed.yml"), text).expect("a file");
    let output = kitchen.bash(
        "python3 -c 'import json, yaml; print(json.dumps(yaml.safe_load(open(\"parsed.yml\"))))'",
    );
    assert!(output.status.success(), "{}", both(&output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

#[test]
fn pages_are_read_as_they_say() {
    let page = "x\n<!-- file: a -->\n```cmake\nb\n```\n\n```bash,exit=2\nc\n```\n";
    let block = |comment: &str, language: &str, text: &str, line| Block {
        comment: comment.to_owned(),
        language: language.to_owned(),
        text: text.to_owned(),
        line,
    };
    assert_eq!(
        blocks(page),
        [
            block("file: a", "cmake", "b\n", 3),
            block("", "bash,exit=2", "c\n", 7)
        ]
    );
    for (wanted, is) in [
        ("a b c", true),
        ("a…c", true),
        ("…b…", true),
        ("a…", true),
        ("a b", false),
        ("…b", false),
        ("a…x…c", false),
    ] {
        assert_eq!(matches("a b c", wanted), is, "{wanted}");
    }
}

#[test]
fn pytest() {
    if !have("docs/ci/pytest.md", &[PYTEST, PIP]) {
        return;
    }
    let mut kitchen = Kitchen::new("pytest");
    let site = plugin(&kitchen);
    kitchen.set("PYTHONPATH", site.display().to_string());
    kitchen.work_through("pytest.md");
}

#[test]
fn pytest_plugins_own_tests() {
    if !have("python/tests", &[PYTEST, PIP]) {
        return;
    }
    let mut kitchen = Kitchen::new("none");
    let site = plugin(&kitchen);
    kitchen.set("PYTHONPATH", site.display().to_string());
    let output = kitchen.bash(
        "python3 -m pytest -q -rs -p no:cacheprovider --basetemp=tests \"$STREAMCHECK/python/tests\"",
    );
    assert!(output.status.success(), "{}", both(&output));
    // Which of pytest-xdist and pytest-forked was not there.
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        if line.starts_with("SKIPPED") {
            let line = format!("left out: python/tests: {line}\n");
            drop(std::io::stderr().write_all(line.as_bytes()));
        }
    }
}

#[test]
fn cmake_and_ctest() {
    if have("docs/ci/cmake-ctest.md", &[CMAKE, CXX]) {
        let kitchen = Kitchen::new("cmake-ctest");
        kitchen.work_through("cmake-ctest.md");
        assert_eq!(
            rules(&kitchen.report("build/pipeline.json")),
            ["SC101", "SC101"]
        );
    }
}

#[test]
fn mistakes_in_cmake_are_named() {
    if !have("mistakes with scripts/cmake", &[CMAKE]) {
        return;
    }
    let mut kitchen = Kitchen::new("none");
    let project = |text: &str| {
        let begin = "cmake_minimum_required(VERSION 3.20)\nproject(p LANGUAGES NONE)\n\
                     enable_testing()\ninclude($ENV{STREAMCHECK}/scripts/cmake/StreamcheckTest.cmake)\n";
        format!("{begin}{text}\n")
    };
    let said = |kitchen: &Kitchen, text: &str| {
        fs::write(kitchen.path("CMakeLists.txt"), project(text)).expect("a file");
        let output = kitchen.bash("rm -rf b; cmake -S . -B b");
        assert_ne!(output.status.code(), Some(0), "{text}");
        both(&output)
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    };
    let text = said(&kitchen, "streamcheck_add_test(NAME a COMMND b)");
    assert!(text.contains("not understood: COMMND;b"), "{text}");
    let path = kitchen.variables["PATH"].replace(
        &kitchen.stage.root.join("bin").display().to_string(),
        "/nowhere",
    );
    kitchen.set("PATH", path);
    let text = said(&kitchen, "streamcheck_add_test(NAME a COMMAND b)");
    assert!(text.contains("-DSTREAMCHECK_EXECUTABLE="), "{text}");
}

#[test]
fn googletest() {
    if have("docs/ci/googletest.md", &[CMAKE, CXX, GTEST]) {
        Kitchen::new("googletest").work_through("googletest.md");
    }
}

#[test]
fn mpirun_and_slurm() {
    if !have("docs/ci/slurm-mpirun.md", &[MPIRUN]) {
        return;
    }
    let kitchen = Kitchen::new("slurm-mpirun");
    executable(&kitchen.path("bin/srun"));
    kitchen.work_through("slurm-mpirun.md");
    for name in ["whole.json", "merged.json"] {
        let report = kitchen.report(name);
        let mut ranks: Vec<_> = report["processes"]
            .as_array()
            .expect("several processes")
            .iter()
            .map(|process| process["rank"].as_u64())
            .collect();
        ranks.sort_unstable();
        assert_eq!(ranks, [Some(0), Some(1), Some(2), Some(3)], "{name}");
        assert_eq!(rules(&report), ["SC101", "SC101"], "{name}");
        let ranks = &report["findings"][0]["ranks"];
        assert_eq!(*ranks, serde_json::json!([0, 1, 2, 3]), "{name}");
    }
}

fn executable(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("permissions");
}

#[test]
fn gitlab() {
    if !have("docs/ci/gitlab.md", &[YAML]) {
        return;
    }
    let kitchen = Kitchen::new("none");
    let page = read(&repository().join("docs/ci/gitlab.md"));
    let mut jobs = 0;
    for block in blocks(&page) {
        if block.language != "yaml" {
            continue;
        }
        let file = yaml(&kitchen, &block.text);
        for (name, job) in file.as_object().expect("jobs") {
            let script: Vec<_> = job["script"]
                .as_array()
                .expect("a script")
                .iter()
                .filter_map(Value::as_str)
                .filter(|line| !line.starts_with("cargo ") && !line.starts_with("cmake "))
                .collect();
            let output = kitchen.bash(&script.join("\n"));
            assert_eq!(output.status.code(), Some(66), "{name}: {}", both(&output));
            let junit = job["artifacts"]["reports"]["junit"]
                .as_str()
                .expect("JUnit");
            let text = read(&kitchen.path(junit));
            assert!(text.contains("<testcase name=\"SC101"), "{text}");
            for path in job["artifacts"]["paths"].as_array().expect("paths") {
                let path = path.as_str().expect("a path");
                assert!(kitchen.path(path).is_file(), "{name}: {path}");
            }
            assert_eq!(
                job["artifacts"]["when"], "always",
                "failures leave reports too"
            );
            jobs += 1;
        }
    }
    assert!(jobs > 0);
}

/// The composite action's steps, run as a runner runs them.
struct Action<'a> {
    kitchen: &'a Kitchen,
    facts: Value,
}

impl<'a> Action<'a> {
    fn new(kitchen: &'a Kitchen) -> Self {
        let text = read(&repository().join(".github/actions/streamcheck/action.yml"));
        let facts = yaml(kitchen, &text);
        assert_eq!(facts["runs"]["using"], "composite");
        Self { kitchen, facts }
    }

    fn inputs(&self) -> &serde_json::Map<String, Value> {
        self.facts["inputs"].as_object().expect("inputs")
    }

    /// Runs all steps up to one that fails, as the runner would with `with`; gives the last
    /// step's output, and the outputs of the action.
    fn run(&self, with: &[(&str, &str)], before: &str) -> (Output, BTreeMap<String, String>) {
        for (name, _) in with {
            assert!(self.inputs().contains_key(*name), "{name} is no input");
        }
        let kitchen = self.kitchen;
        let mut known: BTreeMap<String, String> = self
            .inputs()
            .iter()
            .map(|(name, input)| {
                let given = with.iter().find(|(given, _)| given == name);
                let value = given.map_or_else(
                    || input["default"].as_str().unwrap_or_default(),
                    |(_, value)| value,
                );
                assert!(
                    given.is_some() || input["required"] != true,
                    "{name} is required"
                );
                (format!("inputs.{name}"), value.to_owned())
            })
            .collect();
        let action = repository().join(".github/actions/streamcheck");
        known.insert(
            "github.action_path".to_owned(),
            action.display().to_string(),
        );
        let mut last = None;
        for step in self.facts["runs"]["steps"].as_array().expect("steps") {
            let script = step["run"].as_str().expect("each step is a script");
            assert!(
                !script.contains("${{"),
                "what the runner puts into a script's text, the shell would run: {script}"
            );
            assert_eq!(step["shell"], "bash");
            let outputs = kitchen.path("github-output");
            fs::write(&outputs, "").expect("a file");
            let mut variables = String::from("set -a\n");
            for (name, value) in step["env"].as_object().into_iter().flatten() {
                let value = resolve(value.as_str().expect("text"), &known);
                variables += &format!("{name}={}\n", quoted(&value));
            }
            let folder = kitchen.folder.path().display();
            variables += &format!(
                "GITHUB_ACTIONS=true GITHUB_OUTPUT={outputs} GITHUB_WORKSPACE={folder} \
                 RUNNER_TEMP={folder}/temp\nset +a\nmkdir -p \"$RUNNER_TEMP\"\n",
                outputs = outputs.display()
            );
            let working = step["working-directory"]
                .as_str()
                .map(|folder| resolve(folder, &known));
            if let Some(folder) = working.filter(|folder| !folder.is_empty()) {
                variables += &format!("cd {}\n", quoted(&folder));
            }
            fs::write(kitchen.path("step.sh"), script).expect("a file");
            let place = kitchen.path("step.sh");
            // The runner's own `bash` for `shell: bash`.
            let output = kitchen.bash(&format!(
                "{variables}{before}\nbash --noprofile --norc -eo pipefail {}",
                quoted(&place.display().to_string())
            ));
            if let Some(id) = step["id"].as_str() {
                for line in read(&outputs).lines() {
                    let (name, value) = line.split_once('=').expect("name=value");
                    known.insert(format!("steps.{id}.outputs.{name}"), value.to_owned());
                }
            }
            let failed = !output.status.success();
            last = Some(output);
            if failed {
                break;
            }
        }
        let outputs = self.facts["outputs"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, output)| {
                let value = output["value"].as_str().expect("a value");
                (name.clone(), resolve(value, &known))
            })
            .collect();
        (last.expect("a step"), outputs)
    }
}

/// Puts in what `${{ … }}` stands for.
fn resolve(text: &str, known: &BTreeMap<String, String>) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${{") {
        let (name, after) = after.split_once("}}").expect("closed");
        out.push_str(before);
        out.push_str(known.get(name.trim()).map_or("", String::as_str));
        rest = after;
    }
    out + rest
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[test]
fn the_github_action_runs_and_reports() {
    if !have("the GitHub action", &[YAML]) {
        return;
    }
    let kitchen = Kitchen::new("none");
    let action = Action::new(&kitchen);
    let bin = kitchen.stage.root.join("bin").display().to_string();
    let (output, outputs) = action.run(
        &[
            ("run", "echo one two\n./pipeline\nexit 0"),
            ("bin", &bin),
            ("json", "out/r.json"),
            ("sarif", "r.sarif"),
            ("html", "r.html"),
        ],
        "mkdir -p out",
    );
    let all = both(&output);
    // `-e`: the program's own exit code is 66 within, and so is the step's.
    assert_eq!(output.status.code(), Some(66), "{all}");
    assert_eq!(outputs["exit-code"], "66");
    assert!(all.contains("one two\n"), "{all}");
    assert!(all.contains("::error "), "annotations: {all}");
    let report = kitchen.report("out/r.json");
    assert_eq!(rules(&report), ["SC101", "SC101"]);
    let sarif = kitchen.report("r.sarif");
    assert_eq!(sarif["version"], "2.1.0");
    assert!(read(&kitchen.path("r.html")).contains("SC101"));

    let (output, outputs) = action.run(&[("run", "./pipeline-fixed"), ("bin", &bin)], "");
    assert_eq!(output.status.code(), Some(0), "{}", both(&output));
    assert_eq!(outputs["exit-code"], "0");
    let (output, _) = action.run(&[("run", "true"), ("bin", &bin)], "");
    assert_eq!(output.status.code(), Some(67), "{}", both(&output));
    let (output, _) = action.run(
        &[("run", "true"), ("bin", &bin), ("require-cuda", "off")],
        "",
    );
    assert_eq!(output.status.code(), Some(0), "{}", both(&output));
}

#[test]
fn the_github_action_takes_inputs_as_data() {
    if !have("the GitHub action", &[YAML]) {
        return;
    }
    let kitchen = Kitchen::new("none");
    let action = Action::new(&kitchen);
    let bin = kitchen.stage.root.join("bin").display().to_string();
    let evil = "'; touch hacked; $(touch hacked) `touch hacked` \"";
    for input in action.inputs().keys() {
        if matches!(input.as_str(), "run" | "bin" | "working-directory") {
            continue;
        }
        action.run(&[("run", "./pipeline"), ("bin", &bin), (input, evil)], "");
        assert!(!kitchen.path("hacked").exists(), "{input}");
    }
    let (output, _) = action.run(&[("run", "./pipeline"), ("bin", evil)], "");
    assert!(!kitchen.path("hacked").exists());
    assert_ne!(output.status.code(), Some(0));
    assert!(both(&output).contains("::error::"), "{}", both(&output));
}

#[test]
fn the_github_action_builds_where_no_folder_is_named() {
    if !have("the GitHub action", &[YAML]) {
        return;
    }
    // Building for real takes minutes; what stands in for cargo has what was built already.
    let kitchen = Kitchen::new("none");
    fs::create_dir(kitchen.path("bin")).expect("a folder");
    let stage = kitchen.stage.root.display();
    let cargo = format!(
        "#!/bin/sh\necho \"$@\" >cargo-ran\nwhile [ $# -gt 0 ]; do\n[ \"$1\" = --target-dir ] && d=$2\n\
         shift\ndone\nmkdir -p \"$d/release\"\n\
         cp {stage}/bin/streamcheck {stage}/lib/libstreamcheck.so \"$d/release/\"\n"
    );
    fs::write(kitchen.path("bin/cargo"), cargo).expect("a file");
    executable(&kitchen.path("bin/cargo"));
    let action = Action::new(&kitchen);
    let (output, _) = action.run(&[("run", "./pipeline-fixed")], "");
    assert_eq!(output.status.code(), Some(0), "{}", both(&output));
    let ran = read(&kitchen.path("cargo-ran"));
    for word in ["build", "--release", "--locked", "streamcheck-interposer"] {
        assert!(ran.split_whitespace().any(|one| one == word), "{ran}");
    }
    let manifest = ran
        .split_whitespace()
        .skip_while(|word| *word != "--manifest-path")
        .nth(1)
        .expect("a manifest");
    assert_eq!(
        fs::canonicalize(manifest).expect("it is there"),
        repository().join("Cargo.toml")
    );
}

#[test]
fn the_github_page_uses_the_action_as_it_is() {
    if !have("docs/ci/github-actions.md", &[YAML]) {
        return;
    }
    let kitchen = Kitchen::new("github-actions");
    let action = Action::new(&kitchen);
    let bin = kitchen.stage.root.join("bin").display().to_string();
    let page = read(&repository().join("docs/ci/github-actions.md"));
    let mut used = 0;
    for block in blocks(&page) {
        if block.language != "yaml" {
            continue;
        }
        let workflow = yaml(&kitchen, &block.text);
        for job in workflow["jobs"].as_object().expect("jobs").values() {
            for step in job["steps"].as_array().expect("steps") {
                let uses = step["uses"].as_str().unwrap_or_default();
                if !uses.contains("/.github/actions/streamcheck") {
                    continue;
                }
                let mut with: Vec<(&str, &str)> = step["with"]
                    .as_object()
                    .expect("inputs")
                    .iter()
                    .map(|(name, value)| (name.as_str(), value.as_str().expect("text")))
                    .collect();
                with.push(("bin", &bin));
                let (output, _) = action.run(&with, "");
                assert_eq!(output.status.code(), Some(66), "{}", both(&output));
                used += 1;
            }
        }
    }
    assert!(used > 0);
    // The table of inputs is the action's.
    for name in action.inputs().keys() {
        assert!(page.contains(&format!("| `{name}` |")), "{name}");
    }
}
