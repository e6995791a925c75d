//! What a kernel is called, and where among its parameters pointers may lie.
//!
//! The layout comes from the driver (`cuFuncGetParamInfo`) where there is one, else
//! from the runtime (`cudaFuncGetParamInfo`), else from the module's image, else from
//! the mangled name. What the kernel does with each comes from its code where there is
//! PTX, else from the mangled name. The name comes from the registration that nvcc's code makes,
//! from the driver, from the call that looked the kernel up, or from the symbol of
//! the host function that stands for it.

use core::ffi::{CStr, c_char};

use object::{Object as _, ObjectSymbol as _};
use streamcheck_model::NameId;

use crate::runtime::ErrorPending;
use crate::{capture, driver, images, objects, provider, runtime};

mod layout;
mod registered;

pub(crate) use layout::{Layout, MOST_PLANNED, Parameters, Planned};
pub(crate) use registered::{fat_binary, handle_made, is_loaded, registered, unregistered};

use layout::{Parameter, mode_of};
use registered::{Registration, registration};

/// A kernel as the recorder remembers it.
pub(crate) struct Kernel {
    pub(crate) name: NameId,
    pub(crate) layout: Option<Layout>,
}

/// What was found out about a kernel.
pub(crate) struct Learned {
    /// The mangled name, or an address where there is none.
    pub(crate) name: String,
    pub(crate) layout: Option<Layout>,
    /// Whether asking again would give no more.
    pub(crate) lasting: bool,
}

/// Finds out about a kernel that was launched through the runtime as `handle`, or
/// through the driver as `function`; 0 where not known. CUDA is not asked while a stream
/// captures.
pub(crate) fn learn(handle: u64, function: u64) -> Learned {
    let host_function = registered::host_function(handle);
    let registration = registration(host_function);
    let name = registration
        .map(registered_name)
        .or_else(|| driver_name(function))
        .or_else(|| images::name(function))
        .or_else(|| symbol_name(host_function));
    let types = name.as_deref().and_then(parameter_types);
    let mut asked = !capture::any();
    let layout = driver_layout(function)
        .or_else(|| {
            if handle == 0 || capture::any() {
                return None;
            }
            runtime_layout(handle).unwrap_or_else(|ErrorPending| {
                asked = false;
                None
            })
        })
        .or_else(|| {
            let wrapper = registration.map_or(0, |registration| registration.wrapper);
            // SAFETY: the wrapper's module is loaded, as its kernel was just launched.
            let params = unsafe { images::layout(function, wrapper, name.as_deref()) };
            params.map(Layout::from_params)
        })
        .or_else(|| types.as_deref().and_then(layout_of_types))
        .map(|layout| match &types {
            Some(types) => layout.with_modes(types),
            None => layout,
        })
        .map(|layout| {
            let wrapper = registration.map_or(0, |registration| registration.wrapper);
            // SAFETY: as above.
            match unsafe { images::code(function, wrapper, name.as_deref()) } {
                Some(code) => layout.with_code(&code),
                None => layout,
            }
        });
    let number = if function != 0 { function } else { handle };
    Learned {
        lasting: asked || (layout.is_some() && name.is_some()),
        name: name.unwrap_or_else(|| format!("kernel {number:#x}")),
        layout,
    }
}

fn registered_name(registration: Registration) -> String {
    // SAFETY: the module that registered the text is loaded, as its kernel was
    // just launched, or as its file was just found there.
    let text = unsafe { CStr::from_ptr(registration.name as *const c_char) };
    text.to_string_lossy().into_owned()
}

fn driver_name(function: u64) -> Option<String> {
    type GetName = unsafe extern "C-unwind" fn(*mut *const c_char, u64) -> u32;
    if function == 0 || capture::any() {
        return None;
    }
    [c"cuFuncGetName", c"cuKernelGetName"]
        .into_iter()
        .filter_map(driver::unhooked)
        .find_map(|get| {
            let mut text = core::ptr::null();
            // SAFETY: the type is cuda.h's; the handle was just launched.
            let status =
                unsafe { core::mem::transmute::<*const (), GetName>(get)(&mut text, function) };
            if status != 0 || text.is_null() {
                return None;
            }
            // SAFETY: the driver's own text, which lives as long as the module.
            Some(
                unsafe { CStr::from_ptr(text) }
                    .to_string_lossy()
                    .into_owned(),
            )
        })
}

type GetParamInfo = unsafe extern "C-unwind" fn(u64, usize, *mut usize, *mut usize) -> u32;

/// Asks for one parameter after the other; the count is where it first fails.
/// `Err` is the code of a failure that says that the handle is not understood.
fn ask_layout(get: *const (), handle: u64) -> Result<Layout, u32> {
    const INVALID_VALUE: u32 = 1;
    const MOST: usize = 4096;
    // SAFETY: all functions passed here have this type.
    let get = unsafe { core::mem::transmute::<*const (), GetParamInfo>(get) };
    let mut parameters = Vec::new();
    while parameters.len() < MOST {
        let (mut offset, mut size) = (0, 0);
        // SAFETY: the handle was just launched, the rest is written to.
        match unsafe { get(handle, parameters.len(), &mut offset, &mut size) } {
            0 => parameters.push(Parameter {
                offset,
                size,
                mode: mode_of(size),
                element: 0,
            }),
            INVALID_VALUE => break,
            other if parameters.is_empty() => return Err(other),
            _ => break,
        }
    }
    Ok(Layout::new(parameters.into_iter()))
}

fn driver_layout(function: u64) -> Option<Layout> {
    if function == 0 || capture::any() {
        return None;
    }
    [c"cuFuncGetParamInfo", c"cuKernelGetParamInfo"]
        .into_iter()
        .filter_map(driver::unhooked)
        .find_map(|get| ask_layout(get, function).ok())
}

fn runtime_layout(handle: u64) -> Result<Option<Layout>, ErrorPending> {
    let Some(get) = provider::unhooked(c"cudaFuncGetParamInfo") else {
        return Ok(None);
    };
    runtime::ask(|| ask_layout(get, handle).ok())
}

/// The name of the function at an address, from the symbols of its file.
fn symbol_name(address: u64) -> Option<String> {
    let object = objects::containing(address)?;
    let path = if object.path.is_empty() {
        "/proc/self/exe"
    } else {
        &object.path
    };
    let cache = object::ReadCache::new(std::fs::File::open(path).ok()?);
    let file = object::File::parse(&cache).ok()?;
    let wanted = address - object.base;
    file.symbols()
        .chain(file.dynamic_symbols())
        .find(|symbol| symbol.address() == wanted && symbol.kind() == object::SymbolKind::Text)
        .and_then(|symbol| symbol.name().ok())
        .map(str::to_owned)
}

/// The parameter types that a mangled name spells; `None` if it spells none.
fn parameter_types(name: &str) -> Option<Vec<String>> {
    if !name.starts_with("_Z") {
        return None;
    }
    let text = cpp_demangle::Symbol::new(name).ok()?.demangle().ok()?;
    let list = text.strip_suffix(')')?;
    // The opening parenthesis that matches the last closing one.
    let mut depth = 0;
    let open = list
        .char_indices()
        .rev()
        .find(|&(_, letter)| match letter {
            ')' => {
                depth += 1;
                false
            }
            '(' if depth == 0 => true,
            '(' => {
                depth -= 1;
                false
            }
            _ => false,
        })?;
    let list = &list[open.0 + 1..];
    if list.is_empty() || list == "void" {
        return Some(Vec::new());
    }
    let (mut types, mut depth, mut start) = (Vec::new(), 0, 0);
    for (place, letter) in list.char_indices() {
        match letter {
            '(' | '<' | '[' | '{' => depth += 1,
            ')' | '>' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => {
                types.push(list[start..place].trim().to_owned());
                start = place + 1;
            }
            _ => {}
        }
    }
    types.push(list[start..].trim().to_owned());
    Some(types)
}

/// The layout, if every type's size is known.
fn layout_of_types(types: &[String]) -> Option<Layout> {
    let sizes = types
        .iter()
        .map(|kind| size_of_type(kind))
        .collect::<Option<Vec<_>>>()?;
    Some(Layout::from_sizes(sizes.into_iter()))
}

fn size_of_type(kind: &str) -> Option<usize> {
    if kind.ends_with('*') || kind.ends_with('&') || kind.ends_with("* restrict") {
        return Some(8);
    }
    match kind {
        "bool" | "char" | "signed char" | "unsigned char" => Some(1),
        "short" | "unsigned short" => Some(2),
        "int" | "unsigned int" | "float" => Some(4),
        "long" | "unsigned long" | "long long" | "unsigned long long" | "double" => Some(8),
        _ => None,
    }
}

/// The locks of this file, for a process that forks.
pub(crate) fn before_fork() -> [crate::life::Held; 2] {
    [registered::before_fork(), images::before_fork()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_read_from_mangled_names() {
        let types = parameter_types("_Z5saxpyfPKfPf").unwrap();
        assert_eq!(types, ["float", "float const*", "float*"]);
        assert_eq!(parameter_types("_Z5emptyv").unwrap(), [""; 0]);
        assert_eq!(parameter_types("add_kernel"), None);
        let template = parameter_types("_Z3sumIfEvPKT_S1_RKSt4pairIiiE").unwrap();
        assert_eq!(template.len(), 3);
    }
}
