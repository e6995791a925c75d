//! Which doors of CUDA a program goes through, and what is known of its kernels.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::Check;
use super::elf::Elf;
use super::loader::Loaded;

/// NVIDIA's own libraries, whose kernels nobody can build anew.
const NVIDIA: [&str; 14] = [
    "libcublas",
    "libcudnn",
    "libcufft",
    "libcurand",
    "libcusolver",
    "libcusparse",
    "libnccl",
    "libnpp",
    "libnvjpeg",
    "libnvrtc",
    "libnvJitLink",
    "libnvinfer",
    "libcutensor",
    "libcudart",
];

/// What holds for a program or library with what it is loaded with. `brings_in_more` where it
/// is known to load others as it runs.
pub(super) fn examine(loaded: &Loaded, brings_in_more: bool) -> Vec<Check> {
    let mut checks = Vec::new();
    let shared: Vec<&Elf> = loaded.files().filter(|file| file.is_runtime()).collect();
    let inside: Vec<&Elf> = loaded
        .files()
        .filter(|file| file.holds_runtime && !file.is_runtime() && !is_nvidia(file))
        .collect();
    let about = "CUDA runtime";
    for runtime in &shared {
        let real = fs::canonicalize(&runtime.path).unwrap_or_else(|_| runtime.path.clone());
        let version = version_in(&real).map_or_else(String::new, |version| format!(" ({version})"));
        checks.push(Check::ok(
            about,
            format!(
                "shared: {}{version}; its calls are seen by their names",
                runtime.path.display()
            ),
        ));
    }
    for program in &inside {
        checks.push(Check::ok(
            about,
            format!(
                "static, within {}: its calls are seen where they reach the driver, and findings \
                 show the driver's names (cuMemAllocAsync for cudaMallocAsync)",
                program.path.display()
            ),
        ));
    }
    let driver = loaded
        .files()
        .any(|file| !file.is_driver() && !file.is_runtime() && file.calls_driver())
        || loaded.files().any(|file| {
            file.needed
                .iter()
                .any(|name| name.starts_with("libcuda.so"))
        });
    if driver {
        checks.push(Check::ok(
            "CUDA driver API",
            "it is linked; its calls are seen by their names",
        ));
    }
    // A runtime that is called but not found is told as a missing one.
    let called = loaded.files().any(Elf::calls_runtime);
    if shared.is_empty() && inside.is_empty() && !driver && !called {
        checks.push(none(loaded, brings_in_more));
    }
    checks.extend(kernels(loaded));
    checks
}

/// Nothing of CUDA is in sight.
fn none(loaded: &Loaded, brings_in_more: bool) -> Check {
    let opens = brings_in_more
        || loaded
            .files()
            .any(|file| file.loads_libraries() && !file.name().starts_with("libc.so"));
    let what = if opens {
        "no CUDA is linked; it may load some as it runs, which is seen then, so this is unknown \
         until it runs"
    } else {
        "no CUDA is linked, and it does not load libraries as it runs; only programs that it \
         starts can make CUDA calls"
    };
    Check::note("CUDA runtime", what)
        .remedy("`streamcheck run` ends with exit code 67 if no process makes a CUDA call")
}

/// Whether the kernels' PTX is there, which says what they do with their pointers.
fn kernels(loaded: &Loaded) -> Vec<Check> {
    let about = "kernels";
    let mut checks = Vec::new();
    for file in loaded.files().filter(|file| !is_nvidia(file)) {
        let shown = file.path.display();
        let images = file
            .images
            .iter()
            .filter(|image| !image.compiled.is_empty() || !image.text.is_empty());
        let (mut count, mut bare) = (0, BTreeSet::new());
        for image in images {
            count += 1;
            // The PTX of another architecture may be of other source lines.
            bare.extend(image.compiled.difference(&image.text).copied());
        }
        if count > 0 && bare.is_empty() {
            checks.push(Check::ok(
                about,
                format!("{shown} holds PTX: what its kernels do with their pointers is known"),
            ));
        } else if count > 0 {
            let list = |prefix: &str| {
                let all: Vec<_> = bare.iter().map(|made| format!("{prefix}{made}")).collect();
                all.join(", ")
            };
            let options: Vec<_> = bare
                .iter()
                .map(|made| format!("-gencode arch=compute_{made},code=compute_{made}"))
                .collect();
            checks.push(
                Check::note(
                    about,
                    format!(
                        "{shown} holds code for {} without its PTX: what kernels do with their \
                         pointers is not known there, so each counts as read and written",
                        list("sm_")
                    ),
                )
                .remedy(format!("add {} to nvcc's options", options.join(" "))),
            );
        }
        if file.unread_images {
            checks.push(Check::note(
                about,
                format!("{shown} holds device code that is too large to look at here"),
            ));
        }
    }
    checks
}

fn is_nvidia(file: &Elf) -> bool {
    let name = file.name();
    NVIDIA.iter().any(|known| name.starts_with(known))
}

/// The version in a library's file name: `libcudart.so.13.0.88` has 13.0.88.
pub(super) fn version_in(path: &Path) -> Option<String> {
    let name = path.file_name()?.to_str()?;
    let (_, version) = name.split_once(".so.")?;
    (!version.is_empty()).then(|| version.to_owned())
}

#[cfg(test)]
mod tests {
    use streamcheck_image::Architectures;

    use super::super::loader::Search;
    use super::*;

    fn with_images(images: &[(&[u32], &[u32])]) -> Vec<Check> {
        let main = Elf {
            path: "/x/app".into(),
            images: images
                .iter()
                .map(|(compiled, text)| Architectures {
                    compiled: compiled.iter().copied().collect(),
                    text: text.iter().copied().collect(),
                })
                .collect(),
            ..Elf::default()
        };
        kernels(&Search::default().load(main))
    }

    #[test]
    fn machine_code_wants_the_ptx_of_its_own_architecture() {
        use super::super::Mark;
        let marks = |images: &[(&[u32], &[u32])]| {
            let checks = with_images(images);
            checks.iter().map(|check| check.mark).collect::<Vec<_>>()
        };
        assert_eq!(marks(&[]), []);
        assert_eq!(marks(&[(&[], &[])]), []);
        assert_eq!(marks(&[(&[90], &[90]), (&[], &[80])]), [Mark::Ok]);
        assert_eq!(marks(&[(&[90], &[80])]), [Mark::Note]);
        let remedy = with_images(&[(&[80, 90], &[]), (&[90], &[90])])[0]
            .remedy
            .clone();
        assert_eq!(
            remedy.as_deref(),
            Some(
                "add -gencode arch=compute_80,code=compute_80 \
                 -gencode arch=compute_90,code=compute_90 to nvcc's options"
            )
        );
    }

    #[test]
    fn versions_are_what_follows_so() {
        let version = |path: &str| version_in(Path::new(path));
        assert_eq!(
            version("/l/libcudart.so.13.0.88").as_deref(),
            Some("13.0.88")
        );
        assert_eq!(version("/l/libcudart.so"), None);
    }
}
