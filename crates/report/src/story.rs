//! Which frames of a stack are the application's.
//!
//! Between a line that somebody wrote and the call that was seen lie this tool, CUDA's
//! own libraries, what nvcc generates for `<<<>>>`, and header-only wrappers. A person wants
//! the line.

use crate::Frame;

/// Libraries whose frames are not the application's, by the beginning of the file name.
const LIBRARIES: &[&str] = &[
    "libstreamcheck.",
    "libcuda.",
    "libcudart.",
    "libcublas.",
    "libcublasLt.",
    "libcudnn",
    "libcufft.",
    "libcufftw.",
    "libcurand.",
    "libcusolver",
    "libcusparse",
    "libcutensor",
    "libnccl.",
    "libnpp",
    "libnvinfer",
    "libnvJitLink.",
    "libnvrtc",
    "libnvidia-",
    "libnvToolsExt.",
    // Between Python and a C function.
    "libffi.",
    "_ctypes.",
];

/// Folders of Python's own modules and of installed ones.
const PYTHON_FOLDERS: &[&str] = &["/site-packages/", "/dist-packages/", "/lib/python3"];

/// Namespaces of wrappers: what CUDA and the languages' libraries put between. Short names
/// that an application may have as well (`core`, `cuda`) are given with what follows.
const NAMESPACES: &[&str] = &[
    "cudarc::",
    "cudart::",
    "thrust::",
    "cub::",
    "cuda::std::",
    "cuda::__",
    "std::",
    "__gnu_cxx::",
    "core::iter::",
    "core::mem::",
    "core::ops::",
    "core::option::",
    "core::ptr::",
    "core::result::",
    "alloc::boxed::",
    "alloc::rc::",
    "alloc::sync::",
    "alloc::vec::",
];

/// Headers and generated files, by file name.
const FILES: &[&str] = &[
    "cuda_runtime.h",
    "cuda_runtime_api.h",
    "host_runtime.h",
    "device_launch_parameters.h",
];

/// What follows `cuda` or `cu` in the names of the calls themselves.
const CALLS: &[&str] = &[
    "Malloc",
    "Free",
    "Mem",
    "Launch",
    "Stream",
    "Event",
    "Graph",
    "HostAlloc",
    "HostRegister",
    "HostUnregister",
    "DeviceSynchronize",
    "DeviceReset",
    "CtxSynchronize",
];

/// What runs before `main` and under every thread.
const STARTERS: &[&str] = &[
    "_start",
    "__libc_start_main",
    "__libc_start_main_impl",
    "__libc_start_call_main",
    "start_thread",
    "clone",
    "clone3",
    "__clone3",
];

/// How demanglers call a namespace without a name.
const ANONYMOUS: &str = "(anonymous namespace)";

/// The application's frames of a stack, innermost first. `kernel` is the demangled name of the
/// kernel that the call launched, if any: its host stub has the same name.
///
/// Where Python called, it is Python's line that somebody wrote, or that of an extension whose
/// lines are known. If nothing would be left, the innermost Python frame is, else the outermost
/// frame (a library's, but all that's known).
#[must_use]
pub fn user_frames(frames: &[Frame], kernel: Option<&str>) -> Vec<Frame> {
    let python = frames.iter().position(Frame::is_python);
    let kept = frames
        .iter()
        .enumerate()
        .position(|(place, frame)| {
            let in_extension = python.is_some_and(|python| place < python);
            !is_wrapper(frame, kernel) && (frame.file.is_some() || !in_extension)
        })
        .or(python)
        .unwrap_or_else(|| frames.len().saturating_sub(1));
    let frames = &frames[kept..];
    let end = frames
        .iter()
        .rposition(|frame| !is_starter(frame))
        .map_or(frames.len().min(1), |last| last + 1);
    frames[..end].to_vec()
}

/// Whether a frame is between the application's line and the call.
fn is_wrapper(frame: &Frame, kernel: Option<&str>) -> bool {
    if frame.is_python() {
        let file = frame.file.as_deref().unwrap_or_default();
        return file.starts_with("<frozen ")
            || PYTHON_FOLDERS.iter().any(|folder| file.contains(folder));
    }
    if let Some(module) = frame.module_name()
        && LIBRARIES.iter().any(|library| module.starts_with(library))
    {
        return true;
    }
    if let Some(file) = &frame.file {
        let name = file.rsplit('/').next().unwrap_or(file);
        if FILES.contains(&name) || name.ends_with(".cudafe1.stub.c") {
            return true;
        }
    }
    let Some(function) = &frame.function else {
        return false;
    };
    let name = bare_name(function);
    let last = last_name(name);
    last.starts_with("__device_stub__")
        || last.starts_with("__wrapper__device_stub_")
        || name.starts_with("__cudart")
        || name.starts_with("__cuda")
        || name.starts_with("libcudart_static_")
        || is_call(name)
        || NAMESPACES.iter().any(|space| name.starts_with(space))
        || kernel.is_some_and(|kernel| is_stub_of(function, kernel))
}

/// Whether a function is called like CUDA's own.
fn is_call(name: &str) -> bool {
    name.strip_prefix("cuda")
        .or_else(|| name.strip_prefix("cu"))
        .is_some_and(|rest| CALLS.iter().any(|call| rest.starts_with(call)))
        && !name.contains("::")
}

/// What comes after the namespaces and classes.
fn last_name(name: &str) -> &str {
    name.rsplit("::").next().unwrap_or(name)
}

/// Whether a function is the host stub of a kernel: the same name and parameters, or, where
/// debug information gives the mere name, that.
fn is_stub_of(function: &str, kernel: &str) -> bool {
    let squeezed = |text: &str| text.replace(' ', "");
    let complete = |text: &str| text.replace(ANONYMOUS, "").contains('(');
    if complete(function) && complete(kernel) {
        squeezed(function) == squeezed(kernel)
    } else {
        last_name(bare_name(function)) == last_name(bare_name(kernel))
    }
}

fn is_starter(frame: &Frame) -> bool {
    frame.function.as_deref().is_some_and(|function| {
        STARTERS.contains(&function)
            || function.starts_with("std::rt::")
            || function.starts_with("std::sys::backtrace::")
            || function.starts_with("core::ops::function::")
    })
}

/// A function's qualified name without return type, template arguments and parameters:
/// `a::f` of `void a::f<int>(float*)`.
#[must_use]
pub fn bare_name(function: &str) -> &str {
    // Python's names have brackets of their own: `<module>`, `f.<locals>.<lambda>`.
    if function.contains(".<locals>.")
        || function.find('>').map(|at| at + 1) == Some(function.len()) && function.starts_with('<')
    {
        return function;
    }
    // `<T as Trait>::method`, as Rust says it: the type names it.
    let function = function.strip_prefix('<').unwrap_or(function);
    // Parameters and template arguments begin at the first bracket that is no part
    // of such a namespace.
    let mut end = 0;
    for (place, c) in function.char_indices() {
        if place < end {
            continue;
        }
        end = place;
        match c {
            '(' if function[place..].starts_with(ANONYMOUS) => end += ANONYMOUS.len(),
            '(' | '<' => break,
            _ => end += c.len_utf8(),
        }
    }
    let head = function[..end].trim_end();
    // The return type ends at the last space that is not the namespace's own.
    let mut spaces = head.match_indices(' ').map(|(place, _)| place);
    let own = |place: usize| {
        head[..place].ends_with("(anonymous") && head[place..].starts_with(" namespace)")
    };
    match spaces.rfind(|place| !own(*place)) {
        Some(space) => &head[space + 1..],
        None => head,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(module: &str, function: &str, file: Option<&str>) -> Frame {
        Frame {
            function: (!function.is_empty()).then(|| function.to_owned()),
            file: file.map(str::to_owned),
            line: file.map(|_| 1),
            module: Some(module.to_owned()),
            offset: Some(1),
        }
    }

    fn names(frames: &[Frame], kernel: Option<&str>) -> Vec<String> {
        user_frames(frames, kernel)
            .iter()
            .map(|frame| frame.function.clone().unwrap_or_default())
            .collect()
    }

    #[test]
    fn a_launch_is_where_the_chevrons_are() {
        let saxpy = "saxpy(int, float, float*, float*)";
        let stack = [
            frame("/x/libstreamcheck.so", "streamcheck::hook", None),
            frame("/cuda/libcudart.so.13", "", None),
            frame(
                "/a",
                "cudaError cudaLaunchKernel<char>(char*, dim3, dim3, void**)",
                Some("/cuda/include/cuda_runtime.h"),
            ),
            frame(
                "/a",
                "__device_stub__Z5saxpyifPfS_(int, float, float*, float*)",
                None,
            ),
            frame("/a", saxpy, Some("/src/a.cu")),
            frame("/a", "train(Model&)", Some("/src/a.cu")),
            frame("/a", "main", Some("/src/a.cu")),
            frame("/lib/libc.so.6", "__libc_start_main_impl", None),
            frame("/a", "_start", None),
        ];
        assert_eq!(names(&stack, Some(saxpy)), ["train(Model&)", "main"]);
        // Without a kernel, a function of that name is the application's.
        assert_eq!(names(&stack, None)[0], saxpy);
    }

    #[test]
    fn a_wrapper_with_the_kernels_name_is_the_applications() {
        let stack = [
            frame("/a", "saxpy(int, float*)", None),
            frame("/a", "saxpy(Vector&)", Some("/src/a.cu")),
        ];
        assert_eq!(
            names(&stack, Some("saxpy(int, float*)")),
            ["saxpy(Vector&)"]
        );
        let stack = [frame("/a", "saxpy", None), frame("/a", "main", None)];
        assert_eq!(names(&stack, Some("saxpy(int, float*)")), ["main"]);
    }

    #[test]
    fn a_template_has_a_stub_more() {
        let kernel = "void (anonymous namespace)::k<float>(float*, int)";
        for stub in [kernel, "k<float>", "(anonymous namespace)::k<float>"] {
            let stack = [
                frame("/a", "__cudaLaunchKernel_helper", None),
                frame("/a", "__device_stub__ZN40_GLOBAL__N__1_1kIfEEvPT_i", None),
                frame(
                    "/a",
                    "(anonymous namespace)::__wrapper__device_stub_k<float>",
                    None,
                ),
                frame("/a", stub, Some("/src/a.cu")),
                frame("/a", "go(float*)", Some("/src/a.cu")),
            ];
            assert_eq!(names(&stack, Some(kernel)), ["go(float*)"], "{stub}");
        }
    }

    #[test]
    fn the_languages_own_wrappers_are_skipped() {
        let stack = [
            frame("/a", "cudarc::driver::result::malloc_async", None),
            frame("/a", "core::result::Result<T,E>::map", None),
            frame("/a", "app::Buffer::new", None),
            frame("/a", "std::rt::lang_start", None),
        ];
        assert_eq!(names(&stack, None), ["app::Buffer::new"]);
        let stack = [
            frame("/a", "void thrust::fill<int*>(int*)", None),
            frame(
                "/a",
                "<cudarc::driver::CudaSlice<T> as core::ops::drop::Drop>::drop",
                None,
            ),
            frame("/a", "cudaFreeAsync", None),
            frame("/a", "work()", None),
        ];
        assert_eq!(names(&stack, None), ["work()"]);
    }

    #[test]
    fn python_lines_are_the_applications() {
        let python = |function: &str, file: &str| {
            Frame::python(function.to_owned(), file.to_owned(), Some(7))
        };
        let torch = "/venv/lib/python3.12/site-packages/torch/nn/functional.py";
        let stack = [
            frame("/t/libtorch_cuda.so", "at::native::empty_cuda(long)", None),
            frame("/t/libtorch_python.so", "THPVariable_zeros", None),
            python("linear", torch),
            python("saxpy", "/home/me/train.py"),
            python("<module>", "/home/me/train.py"),
            frame("/lib/libc.so.6", "__libc_start_main", None),
        ];
        // A function with the kernel's name is no stub of it.
        let kernel = Some("saxpy(int, float*)");
        assert_eq!(names(&stack, kernel), ["saxpy", "<module>"]);

        // An extension whose lines are known is somebody's work.
        let mut known = stack.clone();
        known[1] = frame("/t/ext.so", "my_op(Tensor)", Some("/home/me/ext.cu"));
        assert_eq!(names(&known, kernel)[0], "my_op(Tensor)");

        // Libraries call from lines of their own, too.
        assert_eq!(names(&stack[..3], kernel), ["linear"]);

        let stack = [
            frame("/lib/libffi.so.8", "ffi_call", None),
            frame(
                "/l/_ctypes.cpython-312-x86_64-linux-gnu.so",
                "_ctypes_callproc",
                Some("callproc.c"),
            ),
            python("Buffer.alloc", "/home/me/buffer.py"),
        ];
        assert_eq!(names(&stack, None), ["Buffer.alloc"]);
    }

    #[test]
    fn something_is_always_left() {
        let stack = [
            frame("/x/libcublas.so.13", "", None),
            frame("/x/libcudart.so.13", "cudaMalloc", None),
        ];
        assert_eq!(names(&stack, None), ["cudaMalloc"]);
        assert_eq!(names(&[frame("/a", "_start", None)], None), ["_start"]);
        assert!(user_frames(&[], None).is_empty());
    }

    #[test]
    fn an_applications_own_names_stay() {
        for function in [
            "cudaCheck(int)",
            "CUDACachingAllocator::free",
            "cuboid()",
            "core::run()",
            "cuda::Buffer::free()",
            "cudaDeviceInfo()",
            "a::cudaFree()",
        ] {
            assert!(
                !is_wrapper(&frame("/a", function, None), None),
                "{function}"
            );
        }
    }

    #[test]
    fn names_are_taken_out_of_signatures() {
        for (function, name) in [
            ("main", "main"),
            ("saxpy(int, float*)", "saxpy"),
            ("void a::f<int>(float*)", "a::f"),
            ("(anonymous namespace)::g(int)", "(anonymous namespace)::g"),
            (
                "void (anonymous namespace)::g<int>(int)",
                "(anonymous namespace)::g",
            ),
            ("<a::T<X> as Trait>::method", "a::T"),
            ("<module>", "<module>"),
            ("Model.fit.<locals>.<lambda>", "Model.fit.<locals>.<lambda>"),
            ("", ""),
            ("(", ""),
        ] {
            assert_eq!(bare_name(function), name, "{function}");
        }
    }
}
