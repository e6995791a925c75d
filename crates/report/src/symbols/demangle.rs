//! Names as a person wrote them.

/// The longest mangled name that is taken apart.
const LONGEST: usize = 1 << 14;

/// Whether a name is a C++ or Rust symbol's, types and all.
pub(super) fn is_mangled(name: &str) -> bool {
    ["_Z", "__Z", "_R"]
        .iter()
        .any(|start| name.starts_with(start))
}

/// A C++ or Rust name demangled; any other as it is.
pub(super) fn demangle(name: &str) -> String {
    if name.len() > LONGEST {
        return name.to_owned();
    }
    // Versioned symbols: `memcpy@@GLIBC_2.14`.
    let name = name.split('@').next().unwrap_or(name);
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        // The alternate form leaves the hash out.
        return format!("{rust:#}");
    }
    if name.starts_with("_Z") || name.starts_with("__Z") {
        let options = cpp_demangle::ParseOptions::default().recursion_limit(96);
        let demangled = cpp_demangle::Symbol::new_with_options(name, &options)
            .ok()
            .and_then(|symbol| symbol.demangle().ok());
        if let Some(demangled) = demangled {
            return demangled;
        }
    }
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_languages() {
        assert_eq!(
            demangle("_Z5saxpyifPfS_"),
            "saxpy(int, float, float*, float*)"
        );
        assert_eq!(
            demangle("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE"),
            "core::fmt::Write::write_fmt"
        );
        assert_eq!(demangle("main"), "main");
        assert_eq!(
            demangle("cudaMallocAsync@@libcudart.so.13"),
            "cudaMallocAsync"
        );
        assert_eq!(demangle("_Z"), "_Z");
        assert_eq!(
            demangle(&format!("_Z{}", "P".repeat(100_000))).len(),
            100_002
        );
        let deep = format!("_Z1f{}i", "P".repeat(10_000));
        assert!(!demangle(&deep).is_empty());
    }
}
